//! Parses what is done at a place: `count, histogram arg1, by tid`, or, with the words of bpftrace,
//! `@calls[tid] = count(); if (arg0 > 4096) { @start[tid] = nsecs }`.
//!
//! ```text
//! statements := item ((',' | ';') item)* [';']; `flow` has blocks
//! item       := action | 'by' KEY | map '=' function | 'delete' '(' map [',' KEY] ')'
//!             | (map | variable) ('=' | '+=' | '-=') NUMBER | (map | variable) ('++' | '--')
//! map        := '@' [NAME] ['[' KEY (',' KEY)* ']']        variable := '$' NAME
//! action     := 'count' | 'latency' | 'cpu' | 'concurrency' | 'exits' | 'span' | 'poison'
//!             | ('sum' | 'avg' | 'min' | 'max') NUMBER
//!             | 'histogram' (NUMBER | 'latency' | 'cpu') | 'event' [NUMBER [',' VALUE]]
//!             | 'printf' '(' FORMAT (',' ARGUMENT)* ')' | 'time' '(' [FORMAT] ')'
//! function   := 'count()' | ('sum' | 'avg' | 'stats' | 'min' | 'max' | 'hist') '(' NUMBER ')'
//!             | 'lhist' '(' NUMBER ',' from ',' to ',' step ')'
//! ```
//!
//! A map, which has a name after `@` or none, adds up what is counted at all places that name it,
//! or keeps the numbers that are assigned to it. `by` is the key of all actions that are in no map.

use refit_splice::{Clock, Operator, Relation, Test, Unary};

use crate::action::{Buckets, Do, Folding};
use crate::argument::{Argument, gathered};
use crate::arithmetic;
use crate::expression::{self, call, split};
use crate::flow::{self, Part};
use crate::format::Format;
use crate::lowering::{Assignment, Condition, Lowering, both};
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
    /// The condition under which it is done.
    pub when: Condition,
    /// The values that the conditions of its blocks (`if`) compare.
    pub tested: Vec<Operand>,
}

impl Statement {
    /// Returns the values that it reads, without those of the condition of its probe.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> + Clone {
        let arguments = self.what.arguments().iter().chain(&self.by);
        arguments.flat_map(Argument::operands).chain(&self.tested)
    }

    /// Returns an upper bound of the bytes that it takes of the stack.
    pub(crate) fn gathered(&self) -> usize {
        match &self.what {
            // A word for each value.
            Do::Assign { local, value, .. } => {
                let numbers = value.operands().len() + value.inner().len() + 1;
                8 * (usize::from(*local) + 2 + numbers)
            }
            what => gathered(what.arguments()).max(gathered(&self.by)),
        }
    }

    /// Whether it can be done only when a function is left.
    pub fn leaves(&self) -> bool {
        self.operands().any(|operand| operand.leaving)
    }
}

/// Parses the text between the braces of a probe with this condition.
///
/// # Errors
/// The part that is not understood.
pub(crate) fn parse(
    body: &str,
    lowering: &mut Lowering,
    when: &Condition,
) -> Result<Vec<Statement>, String> {
    let mut parser = Parser { lowering, all: Vec::new(), by: Vec::new(), tested: Vec::new() };
    if body.trim().is_empty() {
        return Err("an empty action".to_owned());
    }
    parser.body(body, when)?;
    let Parser { mut all, by, .. } = parser;
    if all.is_empty() {
        return Err("no action".to_owned());
    }
    let own = all.iter_mut().filter(|one| one.map.is_none() && one.what.is_read());
    own.for_each(|one| one.by.clone_from(&by));
    Ok(all)
}

/// The parts between the braces of a probe that have been parsed.
struct Parser<'l> {
    lowering: &'l mut Lowering,
    all: Vec<Statement>,
    by: Vec<Argument>,
    /// The values that the conditions of the blocks around compare.
    tested: Vec<Operand>,
}

/// The most blocks within each other; what follows `else` is within its `if`.
const MOST_BLOCKS: usize = 30;

/// A change of a map or a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set,
    Add,
    Subtract,
}

impl Parser<'_> {
    /// Parses a body that runs under a condition.
    fn body(&mut self, body: &str, when: &Condition) -> Result<(), String> {
        for part in flow::divide(body)? {
            let mark = self.lowering.mark();
            match part {
                Part::Action(item) => self.item(item, when)?,
                Part::If { condition, then, otherwise } => {
                    self.block(condition, [then, otherwise], when)?;
                }
            }
            self.lowering.release(mark);
        }
        Ok(())
    }

    /// Parses two bodies of which one runs.
    fn block(
        &mut self,
        condition: &str,
        bodies: [&str; 2],
        when: &Condition,
    ) -> Result<(), String> {
        if self.tested.len() >= MOST_BLOCKS {
            return Err(format!("more than {MOST_BLOCKS} blocks (`if`) within each other"));
        }
        let (operand, holds) = self.lowering.is_not_0(condition)?;
        self.assign_pending(when);
        self.tested.push(operand);
        let fails = Test { relation: Relation::Equal, ..holds };
        for (body, test) in bodies.into_iter().zip([holds, fails]) {
            self.body(body, &both(when, &vec![vec![test]]))?;
        }
        self.tested.pop();
        Ok(())
    }

    fn item(&mut self, item: &str, when: &Condition) -> Result<(), String> {
        if let Some(map) = item.strip_prefix('@') {
            let (what, name, by) = self.in_map(map)?;
            self.push(what, Some(name), by, when);
            return Ok(());
        }
        if let Some(variable) = item.strip_prefix('$') {
            let assignment = self.variable(variable)?;
            self.assign_pending(when);
            self.assign(assignment, when);
            return Ok(());
        }
        if let Some(inner) = call(item, "delete") {
            let (name, by) = self.deleted(inner)?;
            let value = self.lowering.value(Argument::Number(0))?;
            self.push(Do::Keep { value, adds: false, of: None }, Some(name), by, when);
            return Ok(());
        }
        let message = match (call(item, "printf"), call(item, "time")) {
            (Some(inner), _) => Some(Format::parse(inner, self.lowering)?),
            (_, Some(inner)) => Some(Format::time(inner)?),
            _ => None,
        };
        if let Some(message) = message {
            self.push(Do::Print(message), None, Vec::new(), when);
            return Ok(());
        }
        let (word, rest) = item.split_once(char::is_whitespace).unwrap_or((item, ""));
        match (word, self.all.last_mut().map(|last| &mut last.what)) {
            ("by", _) if !self.by.is_empty() => return Err("`by` is given twice".to_owned()),
            ("by", _) => {
                let part = self.lowering.part(Argument::parse_key(rest)?, false)?;
                if !self.lowering.take().is_empty() {
                    return Err(format!(
                        "`by` needs a value or a text (write e.g. @[{}] = count())",
                        rest.trim()
                    ));
                }
                self.by.push(part);
            }
            // The text after the comma of an event's first value.
            (_, Some(Do::Event(values))) if values.len() == 1 && Operand::parse(item).is_ok() => {
                let value = Argument::Value(Operand::parse(item)?);
                let value = self.lowering.value(value)?;
                let last = self.all.pop();
                // Before the event that needs them.
                self.assign_pending(when);
                self.all.extend(last.map(|mut last| {
                    if let Do::Event(values) = &mut last.what {
                        values.push(value);
                    }
                    last
                }));
            }
            _ => {
                let what = self.action(word, rest.trim())?;
                self.push(what, None, Vec::new(), when);
            }
        }
        Ok(())
    }

    /// Adds an action, after the assignments that it needs.
    fn push(&mut self, what: Do, map: Option<String>, by: Vec<Argument>, when: &Condition) {
        self.assign_pending(when);
        let tested = self.tested.clone();
        self.all.push(Statement { what, by, map, when: when.clone(), tested });
    }

    fn assign_pending(&mut self, when: &Condition) {
        for assignment in self.lowering.take() {
            self.assign(assignment, when);
        }
    }

    fn assign(&mut self, assignment: Assignment, when: &Condition) {
        let mut statement = Statement::from(assignment);
        statement.when.clone_from(when);
        statement.tested.clone_from(&self.tested);
        self.all.push(statement);
    }

    /// Parses an assignment to a variable, after its `$`.
    fn variable(&mut self, text: &str) -> Result<Assignment, String> {
        let (name, change, value) = change(text)
            .ok_or_else(|| format!("`${text}` is no assignment (write e.g. $size = arg0)"))?;
        let name = expression::name(name, &format!("${name}"))?;
        let value = Argument::number(value, value)?;
        let variable = || Box::new(Argument::Variable(name.clone()));
        let value = match change {
            Change::Set => value,
            Change::Add => Argument::Computed(variable(), Operator::Add, Box::new(value)),
            Change::Subtract => Argument::Computed(variable(), Operator::Subtract, Box::new(value)),
        };
        self.lowering.assign(&name, value)
    }

    /// Parses an assignment to a map, after its `@`: the action, the name and the key.
    fn in_map(&mut self, text: &str) -> Result<(Do, String, Vec<Argument>), String> {
        // A key that does not end has no assignment behind it; its own error says more.
        let (map, change, value) = match change(text) {
            Some(change) => change,
            None => {
                expression::map(text.split('=').next().unwrap_or(text))?;
                return Err(format!(
                    "`@{text}` is no assignment (write e.g. @calls[arg0] = count())"
                ));
            }
        };
        let (name, key) = expression::map(map)?;
        let value = value.trim();
        let function = value.strip_suffix(')').and_then(|call| call.split_once('('));
        let function = function.filter(|(word, _)| FUNCTIONS.contains(&word.trim()));
        let whole = format!("@{}", map.trim());
        if let (Change::Set, Some((word, value))) = (change, function) {
            let key = self.lowering.key(key, false, &whole)?;
            let word = if word.trim() == "hist" { "histogram" } else { word.trim() };
            let what = self.action(word, value.trim())?;
            return match what {
                Do::Count | Do::Fold(..) | Do::Histogram(_) | Do::Linear { .. } => {
                    Ok((what, name, key))
                }
                _ => Err(format!("`{what}` cannot be assigned to a map")),
            };
        }
        if FUNCTIONS.contains(&value) {
            return Err(format!(
                "`{value}` is no function of a map (known: count(), sum(…), avg(…), stats(…), min(…), max(…), hist(…), lhist(…))"
            ));
        }
        let key = self.lowering.key(key, true, &whole)?;
        let number = match Argument::parse(value)? {
            // Functions are kept by their addresses.
            function @ (Argument::Function | Argument::Symbol(_)) if change == Change::Set => function,
            other => other.checked(value, value).map_err(|what| {
                format!("{what}; a map keeps numbers (of a text, the address: write str(…) where it is printed)")
            })?,
        };
        let number = match change {
            Change::Subtract => Argument::Unary(Unary::Negate, Box::new(number)),
            Change::Set | Change::Add => number,
        };
        let adds = change != Change::Set;
        let (value, of) = self.lowering.kept(&name, number, adds)?;
        Ok((Do::Keep { value, adds, of }, name, key))
    }

    /// Parses what is deleted, and lowers the key.
    fn deleted(&mut self, text: &str) -> Result<(String, Vec<Argument>), String> {
        let (name, key) = deleted(text)?;
        let whole = format!("@{name}");
        Ok((name, self.lowering.key(key, true, &whole)?))
    }

    /// Parses a value and the ranges by which it is counted.
    fn linear(&mut self, text: &str) -> Result<Do, String> {
        let whole = format!("lhist({text})");
        let parts: Vec<&str> = split(text).collect();
        let [value, least, end, step] = parts[..] else {
            return Err(format!("`{whole}` needs a value, from, to, and step"));
        };
        let buckets = Buckets::parse([least, end, step], &whole)?;
        let number = self.number(value)?;
        let bucket = self.lowering.value(buckets.bucket(&number))?;
        Ok(Do::Linear { number, bucket, buckets })
    }

    /// Parses a number for an action.
    fn number(&mut self, text: &str) -> Result<Argument, String> {
        let number = Argument::number(text, text)?;
        self.lowering.value(number)
    }

    fn action(&mut self, word: &str, rest: &str) -> Result<Do, String> {
        let alone = match word {
            "count" => Do::Count,
            "latency" => Do::Latency,
            "cpu" => Do::Cpu,
            "concurrency" => Do::Concurrency,
            "exits" => Do::Exits,
            "span" => Do::Span,
            "poison" => Do::Poison,
            "event" if rest.is_empty() => Do::Event(Vec::new()),
            "event" => return Ok(Do::Event(vec![self.number(rest)?])),
            _ if Folding::of(word).is_some() && rest.is_empty() => {
                return Err(format!("{word} needs a value (arg0 … arg11, retval, or a register)"));
            }
            "histogram" if rest.is_empty() => {
                return Err("histogram needs a value (latency, cpu, arg0 … arg11, or a register)"
                    .to_owned());
            }
            "histogram" if rest == "latency" => return Ok(Do::Durations(Clock::Wall)),
            "histogram" if rest == "cpu" => return Ok(Do::Durations(Clock::Thread)),
            "histogram" => return Ok(Do::Histogram(self.number(rest)?)),
            "lhist" => return self.linear(rest),
            "" => return Err("an empty action".to_owned()),
            _ => {
                let folding = Folding::of(word).ok_or_else(|| {
                    format!(
                        "unknown action `{word}` (known: count, latency, cpu, concurrency, exits, sum, avg, min, max, histogram, span, event, poison, printf, delete, if)"
                    )
                })?;
                return Ok(Do::Fold(folding, self.number(rest)?));
            }
        };
        if rest.is_empty() { Ok(alone) } else { Err(format!("unexpected `{rest}` after `{word}`")) }
    }
}

/// Parses what is deleted: a map with its key, or both one after the other.
///
/// # Errors
/// The part that is not understood.
pub(crate) fn deleted(text: &str) -> Result<(String, Vec<Argument>), String> {
    let mut parts = split(text);
    let first = parts.next().unwrap_or_default().trim();
    let map = first
        .strip_prefix('@')
        .ok_or_else(|| format!("`{first}` is no map (write e.g. delete(@start[tid]))"))?;
    let (name, mut key) = expression::map(map)?;
    for part in parts {
        let part = part.trim();
        // Several parts of a key may be in brackets.
        let inner = part.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let each = split(inner.unwrap_or(part)).map(Argument::parse_key);
        key.extend(each.collect::<Result<Vec<_>, _>>()?);
    }
    Ok((name, key))
}

/// The functions of maps, and the actions that look like one.
const FUNCTIONS: [&str; 14] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "stats",
    "hist",
    "lhist",
    "latency",
    "cpu",
    "concurrency",
    "exits",
    "span",
    "poison",
];

impl From<Assignment> for Statement {
    fn from(assignment: Assignment) -> Self {
        let Assignment { local, value, first } = assignment;
        let what = Do::Assign { local, value, first };
        let (by, map, when, tested) = Default::default();
        Self { what, by, map, when, tested }
    }
}

/// Divides an assignment: what changes, how, and the number.
fn change(text: &str) -> Option<(&str, Change, &str)> {
    for (sign, change) in [("++", Change::Add), ("--", Change::Subtract)] {
        if let Some(name) = text.trim_end().strip_suffix(sign) {
            return Some((name, change, "1"));
        }
    }
    let before = arithmetic::split_at(text, "=").first().map(|before| before.len())?;
    let (name, value) = (&text[..before], text.get(before + 1..)?);
    if value.starts_with('=') {
        return None;
    }
    let changes = [('+', Change::Add), ('-', Change::Subtract)];
    let found =
        changes.iter().find_map(|(sign, change)| Some((name.strip_suffix(*sign)?, *change)));
    let (name, change) = found.unwrap_or((name, Change::Set));
    Some((name, change, value))
}
