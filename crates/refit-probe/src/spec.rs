//! Parses specifications, such as
//! `uprobe:redis-server:lookupKey* /arg2 > 4096/ { count, histogram arg1, by tid }`.
//!
//! ```text
//! specification := place (',' place)* ['/' condition '/'] '{' item (',' item)* '}'
//! place         := ('uprobe' | 'func' | 'insn') ':' [module ':'] what
//! what          := name of a function, with * and ? for any characters
//!                | 0xADDRESS | NAME+0xOFFSET
//! item          := action | 'by' VALUE
//! action        := 'count' | 'latency' | 'cpu' | 'concurrency' | 'span' | 'poison'
//!                | ('sum' | 'avg' | 'min' | 'max') VALUE
//!                | 'histogram' (VALUE | 'latency' | 'cpu') | 'event' [VALUE [',' VALUE]]
//! ```
//!
//! [`operand`] defines values and conditions. Where bpftrace and perf have a word for a concept, it
//! is used here.

use std::fmt;

use refit_splice::{Base, Clock, Fold, Test};

use crate::operand::{self, Operand};

/// Places, and the actions at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The places.
    pub places: Vec<Place>,
    /// Conditions: actions run only if all tests of one of these hold, or if there are none.
    pub when: Vec<Vec<Test>>,
    /// The value by which counts are separated.
    pub by: Option<Operand>,
    /// The actions.
    pub actions: Vec<Do>,
    /// Whether the condition or the key exists only when a function is left.
    pub leaving: bool,
}

/// A place, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, by its file name, with or without the part after the first dot, or by its path;
    /// `None` for any file.
    pub module: Option<String>,
    /// The place in the file.
    pub what: What,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The entry of every function whose name matches.
    Functions(String),
    /// One instruction, by its offset from a function's entry.
    Behind(String, u64),
    /// One instruction, by its address in the file.
    At(u64),
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

/// Why a specification was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot parse the probe `{text}`: {what}; write e.g. uprobe:redis-server:lookupKey {{ count }}"
)]
pub struct NotUnderstood {
    what: String,
    text: String,
}

impl std::str::FromStr for Spec {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        parse(text).map_err(|what| NotUnderstood { what, text: text.to_owned() })
    }
}

fn parse(text: &str) -> Result<Spec, String> {
    let (head, rest) = text.split_once('{').ok_or("no `{ action }`")?;
    let body = rest.trim_end().strip_suffix('}').ok_or("no closing `}`")?;
    // A path has slashes too, but no space before them.
    let opens = head.find(char::is_whitespace).and_then(|at| Some(at + head[at..].find(" /")?));
    let (places, (when, tested)) = match opens {
        Some(at) => {
            let inner = head[at + 2..].trim_end().strip_suffix('/');
            (&head[..at], operand::condition(inner.ok_or("no closing `/` after the condition")?)?)
        }
        None => (head, (Vec::new(), Vec::new())),
    };
    let places: Vec<_> = places.split(',').map(place).collect::<Result<_, _>>()?;
    let (actions, by) = items(body)?;
    let operands = tested.iter().chain(&by);
    let leaving = operands.clone().any(|operand| operand.leaving);
    if leaving && operands.clone().any(|operand| !operand.leaving && !operand.is_lasting()) {
        return Err("retval cannot be combined with values that exist only at the entry".to_owned());
    }
    // A timer is per thread: its condition must be the same at entry and exit, and its only
    // possible key is the thread.
    let lasting = tested.iter().all(|operand| operand.is_lasting())
        && by.is_none_or(|by| by.value.base == Base::Thread);
    let spec = Spec { places, when, by, actions, leaving };
    spec.actions.iter().try_for_each(|action| check(&spec, action, lasting))?;
    Ok(spec)
}

/// Refuses combinations that are not possible.
fn check(spec: &Spec, action: &Do, lasting: bool) -> Result<(), String> {
    let functions = spec.places.iter().all(|place| matches!(place.what, What::Functions(_)));
    let operands = action.operands();
    let leaves = spec.leaving || operands.iter().any(|operand| operand.leaving);
    if (leaves || action.is_timed()) && !functions {
        return Err(format!("`{action}` needs functions, not instructions"));
    }
    if action.is_timed() && !lasting {
        return Err(format!(
            "`{action}` allows only pid and tid in a condition, and only tid after `by`"
        ));
    }
    if leaves && operands.iter().any(|operand| !operand.leaving && !operand.is_lasting()) {
        return Err("retval cannot be combined with values that exist only at the entry".to_owned());
    }
    Ok(())
}

/// Parses the text between the braces.
fn items(body: &str) -> Result<(Vec<Do>, Option<Operand>), String> {
    let (mut actions, mut by) = (Vec::new(), None);
    for item in body.split(',') {
        let item = item.trim();
        let (word, rest) = item.split_once(char::is_whitespace).unwrap_or((item, ""));
        match (word, actions.last_mut()) {
            ("by", _) if by.is_some() => return Err("`by` is given twice".to_owned()),
            ("by", _) => by = Some(Operand::parse(rest)?),
            // The text after the comma of an event's first value.
            (_, Some(Do::Event(values))) if values.len() == 1 && Operand::parse(item).is_ok() => {
                values.push(Operand::parse(item)?);
            }
            _ => actions.push(action(word, rest.trim())?),
        }
    }
    if actions.is_empty() {
        return Err("no action".to_owned());
    }
    Ok((actions, by))
}

fn place(text: &str) -> Result<Place, String> {
    let text = text.trim();
    let (kind, rest) =
        text.split_once(':').ok_or_else(|| format!("no `:` in the place `{text}`"))?;
    // Paths rarely have a colon; C++ names have pairs of them.
    let module_ends = rest.find(':').filter(|&at| !rest[at..].starts_with("::"));
    let (module, what) = match module_ends {
        Some(at) => (Some(rest[..at].to_owned()).filter(|name| !name.is_empty()), &rest[at + 1..]),
        None => (None, rest),
    };
    if what.is_empty() {
        return Err(format!("no function or address in the place `{text}`"));
    }
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let behind = what.rsplit_once('+').and_then(|(name, offset)| Some((name, number(offset)?)));
    let what = match (kind, behind) {
        ("uprobe" | "func", None | Some((_, 0))) if number(what).is_none() => {
            What::Functions(what.to_owned())
        }
        ("uprobe" | "func" | "insn", Some((name, offset))) => What::Behind(name.to_owned(), offset),
        ("uprobe" | "func" | "insn", None) => match number(what) {
            Some(address) => What::At(address),
            None => What::Behind(what.to_owned(), 0),
        },
        _ => {
            return Err(format!("unknown kind of place `{kind}` (known: uprobe, func, insn)"));
        }
    };
    Ok(Place { module, what })
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
                    "unknown action `{word}` (known: count, latency, cpu, concurrency, sum, avg, min, max, histogram, span, event, poison)"
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Spec {
        text.parse().unwrap_or_else(|error: NotUnderstood| panic!("{error}"))
    }

    fn place_of(module: Option<&str>, what: What) -> Place {
        Place { module: module.map(str::to_owned), what }
    }

    fn operand(text: &str) -> Operand {
        Operand::parse(text).unwrap_or_else(|what| panic!("{what}"))
    }

    #[test]
    fn places_are_understood() {
        let functions = |name: &str| What::Functions(name.to_owned());
        let places = |text: &str| parse(text).places;
        assert_eq!(
            places("uprobe:redis-server:lookupKey { count }"),
            [place_of(Some("redis-server"), functions("lookupKey"))],
        );
        assert_eq!(
            places("func:nginx:ngx_http_*,func:/usr/lib/libssl.so.3:SSL_write{count}"),
            [
                place_of(Some("nginx"), functions("ngx_http_*")),
                place_of(Some("/usr/lib/libssl.so.3"), functions("SSL_write")),
            ],
        );
        assert_eq!(
            places("insn:prog:0x1234 { histogram rdi }"),
            [place_of(Some("prog"), What::At(0x1234))],
        );
        assert_eq!(
            places("insn::main+0x10 { count }"),
            [place_of(None, What::Behind("main".to_owned(), 16))],
        );
        assert_eq!(places("func:std::sort* { count }"), [place_of(None, functions("std::sort*"))],);
    }

    #[test]
    fn actions_and_conditions_are_understood() {
        let spec = parse("uprobe:a:b /rdi == 0 && tid != 7/ { event rdi, rsi, count, by tid }");
        assert_eq!(spec.actions, [Do::Event(vec![operand("rdi"), operand("rsi")]), Do::Count]);
        assert_eq!(spec.by, Some(operand("tid")));
        assert_eq!((spec.when.len(), spec.when[0].len(), spec.leaving), (1, 2, false));
        let spec = parse("uprobe:/usr/bin/a:b /tid == 1/ { latency, cpu, concurrency, span }");
        assert_eq!(spec.actions, [Do::Latency, Do::Cpu, Do::Concurrency, Do::Span]);
        assert_eq!(spec.places, [place_of(Some("/usr/bin/a"), What::Functions("b".to_owned()))]);
        let spec = parse("func:a:b /tid == 1/ { histogram latency, histogram cpu, by tid }");
        assert_eq!(spec.actions, [Do::Durations(Clock::Wall), Do::Durations(Clock::Thread)]);
        assert_eq!(spec.actions[1].to_string(), "histogram cpu");
        let spec = parse("uprobe:a:b { sum arg0, avg (i32)arg1, min arg2, max arg3, by tid }");
        let said: Vec<_> = spec.actions.iter().map(Do::to_string).collect();
        assert_eq!(said, ["sum rdi", "avg (i32)rsi", "min rdx", "max rcx"]);
        let spec = parse("uprobe:a:b /retval < 0/ { count, histogram retval }");
        assert!(spec.leaving);
        for text in ["uprobe:a:b { histogram arg1 }", "uprobe:a:b { event }"] {
            assert_eq!(parse(text).when, Vec::<Vec<Test>>::new(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("uprobe:a:b", "no `{ action }`"),
            ("uprobe:a:b { count", "no closing `}`"),
            ("uprobe:a:b { }", "an empty action"),
            ("uprobe:a:b { by tid }", "no action"),
            ("uprobe:a:b { count, by tid, by pid }", "`by` is given twice"),
            ("uprobe:a:b { count twice }", "unexpected `twice` after `count`"),
            ("uprobe:a:b { sum }", "sum needs a value"),
            ("uprobe:a:b { product arg0 }", "unknown action `product`"),
            ("uprobe:a:b { max arg9 }", "unknown value `arg9`"),
            ("insn:a:0x10 { max retval }", "needs functions, not"),
            ("uprobe:a:b { histogram arg9 }", "unknown value `arg9`"),
            ("uprobe:a:b { histogram }", "histogram needs a value"),
            ("uprobe:a:b { event rdi, rsi, rdx }", "unknown action `rdx`"),
            ("kprobe:a:b { count }", "unknown kind of place `kprobe`"),
            ("uprobe:a: { count }", "no function or address"),
            ("lookupKey { count }", "no `:`"),
            ("insn:a:0x10 { latency }", "`latency` needs functions"),
            ("insn:a:0x10 { histogram latency }", "needs functions, not"),
            ("insn:a:0x10 { histogram retval }", "needs functions, not"),
            ("uprobe:a:b /arg0 == 1/ { latency }", "`latency` allows only pid and tid"),
            ("uprobe:a:b /retval == 1/ { histogram arg0 }", "retval cannot be combined"),
            ("uprobe:a:b /arg0 == 1 { count }", "no closing `/`"),
            ("uprobe:a:b /arg0/ { count }", "no comparison"),
        ] {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
            assert!(error.contains(text), "{text}: {error}");
        }
    }
}
