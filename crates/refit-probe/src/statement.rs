//! Parses what is done at a place: `count, histogram arg1, by tid`, or, with the words of bpftrace,
//! `@calls[tid] = count(); @sizes[arg0] = hist(arg1)`.
//!
//! ```text
//! statements := item ((',' | ';') item)* [';']
//! item       := action | 'by' KEY | '@' [NAME] ['[' KEY (',' KEY)* ']'] '=' function
//! action     := 'count' | 'latency' | 'cpu' | 'concurrency' | 'span' | 'poison'
//!             | ('sum' | 'avg' | 'min' | 'max') VALUE
//!             | 'histogram' (VALUE | 'latency' | 'cpu') | 'event' [VALUE [',' VALUE]]
//!             | 'printf' '(' FORMAT (',' ARGUMENT)* ')' | 'time' '(' [FORMAT] ')'
//! function   := 'count()' | ('sum' | 'avg' | 'min' | 'max' | 'hist') '(' VALUE ')'
//! ```
//!
//! A map, which has a name after `@` or none, adds up what is counted at all places that name it.
//! `by` is the key of all actions that are in no map.

use std::fmt;

use refit_splice::{Clock, Fold};

use crate::argument::{self, Argument, MOST_GATHERED, call, split};
use crate::format::Format;
use crate::operand::Operand;

/// An action, and how its results are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The action.
    pub what: Do,
    /// The parts of the key by which results are separated; empty if they are not.
    pub by: Vec<Argument>,
    /// The name of the map that has the results of all places together, without the `@`; `None` if
    /// each place has its own.
    pub map: Option<String>,
}

impl Statement {
    /// Returns the values that it reads.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> + Clone {
        let arguments = self.what.arguments().iter().chain(&self.by);
        self.what.operands().iter().chain(arguments.flat_map(Argument::operands))
    }

    /// Returns the number of bytes that it gathers on the stack: its message, or its key.
    pub(crate) fn gathered(&self) -> usize {
        argument::gathered(self.what.arguments()).max(argument::gathered(&self.by))
    }

    /// Whether it can be done only when a function is left.
    pub fn leaves(&self) -> bool {
        self.operands().any(|operand| operand.leaving)
    }
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Do {
    /// Counts.
    Count,
    /// Counts calls, and sums the time from entry to exit.
    Latency,
    /// The same in CPU time: waiting does not count.
    Cpu,
    /// The mean number of threads inside.
    Concurrency,
    /// Writes garbage into dead registers and flags, to test the analysis.
    Poison,
    /// Keeps the sum, the mean, the least or the greatest of a value.
    Fold(Folding, Operand),
    /// Counts the sizes of a value, by powers of two.
    Histogram(Operand),
    /// Counts the durations of calls, by powers of two.
    Durations(Clock),
    /// Writes a record with these values, at most two.
    Event(Vec<Operand>),
    /// Writes records when a function is entered and left.
    Span,
    /// Writes a message.
    Print(Format),
}

/// A number that is reported of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

impl Folding {
    const WORDS: [(&str, Self); 4] =
        [("sum", Self::Sum), ("avg", Self::Mean), ("min", Self::Least), ("max", Self::Greatest)];

    /// Returns what a cell keeps for it.
    pub(crate) fn kept(self) -> Fold {
        match self {
            Self::Sum | Self::Mean => Fold::Sum,
            Self::Least => Fold::Least,
            Self::Greatest => Fold::Greatest,
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, folding)| *folding)
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

/// Parses the text between the braces.
///
/// # Errors
/// The part that is not understood.
pub(crate) fn parse(body: &str) -> Result<Vec<Statement>, String> {
    let (mut all, mut by) = (Vec::<Statement>::new(), Vec::new());
    let body = body.trim_end().strip_suffix(';').unwrap_or(body);
    for item in split(body) {
        let item = item.trim();
        if let Some(map) = item.strip_prefix('@') {
            all.push(in_map(map)?);
            continue;
        }
        let message = match (call(item, "printf"), call(item, "time")) {
            (Some(inner), _) => Some(Format::parse(inner)?),
            (_, Some(inner)) => Some(Format::time(inner)?),
            _ => None,
        };
        if let Some(message) = message {
            let what = Do::Print(message);
            all.push(Statement { what, by: Vec::new(), map: None });
            continue;
        }
        let (word, rest) = item.split_once(char::is_whitespace).unwrap_or((item, ""));
        match (word, all.last_mut().map(|last| &mut last.what)) {
            ("by", _) if !by.is_empty() => return Err("`by` is given twice".to_owned()),
            ("by", _) => by.push(Argument::parse_key(rest)?),
            // The text after the comma of an event's first value.
            (_, Some(Do::Event(values))) if values.len() == 1 && Operand::parse(item).is_ok() => {
                values.push(Operand::parse(item)?);
            }
            _ => {
                let what = action(word, rest.trim())?;
                all.push(Statement { what, by: Vec::new(), map: None });
            }
        }
    }
    if all.is_empty() {
        return Err("no action".to_owned());
    }
    let own = all.iter_mut().filter(|one| one.map.is_none() && !one.what.prints());
    own.for_each(|one| one.by.clone_from(&by));
    Ok(all)
}

/// Parses an assignment to a map, after its `@`.
fn in_map(text: &str) -> Result<Statement, String> {
    let whole = || format!("`@{text}`");
    let (map, call) = text.split_once('=').ok_or_else(|| {
        format!("{} is no assignment (write e.g. @calls[arg0] = count())", whole())
    })?;
    let (name, key) = match map.trim().split_once('[') {
        None => (map.trim(), Vec::new()),
        Some((name, rest)) => {
            let key = rest.strip_suffix(']').ok_or_else(|| format!("no `]` in {}", whole()))?;
            let parts = split(key).map(Argument::parse_key).collect::<Result<Vec<_>, _>>()?;
            let bytes = argument::gathered(&parts);
            if bytes > MOST_GATHERED {
                return Err(format!(
                    "a key of {bytes} bytes in {}; it may have {MOST_GATHERED}",
                    whole()
                ));
            }
            (name.trim_end(), parts)
        }
    };
    if !name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_') {
        return Err(format!("`@{name}` is no name of a map (letters, digits and _)"));
    }
    let call = call.trim();
    let parts = call.strip_suffix(')').and_then(|call| call.split_once('('));
    let (word, value) = parts.ok_or_else(|| {
        format!("`{call}` is no function of a map (known: count(), sum(…), avg(…), min(…), max(…), hist(…))")
    })?;
    let word = if word.trim() == "hist" { "histogram" } else { word.trim() };
    let what = action(word, value.trim())?;
    match what {
        Do::Count | Do::Fold(..) | Do::Histogram(_) => {
            Ok(Statement { what, by: key, map: Some(name.to_owned()) })
        }
        _ => Err(format!("`{what}` cannot be assigned to a map")),
    }
}

fn action(word: &str, rest: &str) -> Result<Do, String> {
    let alone = match word {
        "count" => Do::Count,
        "latency" => Do::Latency,
        "cpu" => Do::Cpu,
        "concurrency" => Do::Concurrency,
        "span" => Do::Span,
        "poison" => Do::Poison,
        "event" if rest.is_empty() => Do::Event(Vec::new()),
        "event" => return Ok(Do::Event(vec![Operand::parse(rest)?])),
        _ if Folding::of(word).is_some() && rest.is_empty() => {
            return Err(format!("{word} needs a value (arg0 … arg5, retval, or a register)"));
        }
        "histogram" if rest.is_empty() => {
            return Err(
                "histogram needs a value (latency, cpu, arg0 … arg5, or a register)".to_owned()
            );
        }
        "histogram" if rest == "latency" => return Ok(Do::Durations(Clock::Wall)),
        "histogram" if rest == "cpu" => return Ok(Do::Durations(Clock::Thread)),
        "histogram" => return Ok(Do::Histogram(Operand::parse(rest)?)),
        "" => return Err("an empty action".to_owned()),
        _ => {
            let folding = Folding::of(word).ok_or_else(|| {
                format!(
                    "unknown action `{word}` (known: count, latency, cpu, concurrency, sum, avg, min, max, histogram, span, event, poison, printf)"
                )
            })?;
            return Ok(Do::Fold(folding, Operand::parse(rest)?));
        }
    };
    if rest.is_empty() { Ok(alone) } else { Err(format!("unexpected `{rest}` after `{word}`")) }
}

impl Do {
    /// Whether it needs the entry and the exits of a function together.
    pub fn is_timed(&self) -> bool {
        matches!(
            self,
            Self::Latency | Self::Cpu | Self::Concurrency | Self::Span | Self::Durations(_)
        )
    }

    /// Returns the values that it reads.
    pub fn operands(&self) -> &[Operand] {
        match self {
            Self::Histogram(operand) | Self::Fold(_, operand) => std::slice::from_ref(operand),
            Self::Event(operands) => operands,
            _ => &[],
        }
    }

    /// Returns the arguments of its message.
    pub fn arguments(&self) -> &[Argument] {
        match self {
            Self::Print(format) => format.arguments(),
            _ => &[],
        }
    }

    /// Whether it writes messages.
    pub fn prints(&self) -> bool {
        matches!(self, Self::Print(_))
    }

    /// Whether a single number expresses what it counts.
    pub fn is_sampled(&self) -> bool {
        matches!(self, Self::Count | Self::Latency | Self::Cpu | Self::Concurrency)
    }

    /// Whether it writes records.
    pub fn records(&self) -> bool {
        matches!(self, Self::Event(_) | Self::Span)
    }
}

impl fmt::Display for Do {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => to.write_str("count"),
            Self::Latency => to.write_str("latency"),
            Self::Cpu => to.write_str("cpu"),
            Self::Concurrency => to.write_str("concurrency"),
            Self::Poison => to.write_str("poison"),
            Self::Span => to.write_str("span"),
            Self::Durations(Clock::Wall) => to.write_str("histogram latency"),
            Self::Durations(Clock::Thread) => to.write_str("histogram cpu"),
            Self::Histogram(operand) => write!(to, "histogram {operand}"),
            Self::Fold(folding, operand) => write!(to, "{} {operand}", folding.word()),
            Self::Print(format) => format.fmt(to),
            Self::Event(operands) => {
                to.write_str("event")?;
                let mut before = " ";
                for operand in operands {
                    write!(to, "{before}{operand}")?;
                    before = ", ";
                }
                Ok(())
            }
        }
    }
}
