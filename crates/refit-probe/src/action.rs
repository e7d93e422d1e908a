//! The actions of probes.

use std::fmt;
use std::sync::Arc;

use refit_splice::{Clock, Fold, Operator, Relation};

use crate::argument::Argument;
use crate::format::Format;
use crate::operand::number;

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
    /// Counts calls, and the ways in which they end.
    Exits,
    /// Writes garbage into dead registers and flags, to test the analysis.
    Poison,
    /// Keeps the sum, the mean, the least or the greatest of a value.
    Fold(Folding, Argument),
    /// Counts the sizes of a value, by powers of two.
    Histogram(Argument),
    /// Counts a value by ranges of the same size.
    Linear {
        /// The value.
        number: Argument,
        /// The number of its range.
        bucket: Argument,
        /// The ranges.
        buckets: Buckets,
    },
    /// Counts the durations of calls, by powers of two.
    Durations(Clock),
    /// Writes a record with these values, at most two.
    Event(Vec<Argument>),
    /// Writes records when a function is entered and left.
    Span,
    /// Writes a message.
    Print(Format),
    /// Computes a local of the snippet.
    Assign {
        /// Its number.
        local: u8,
        /// The number that it is assigned.
        value: Argument,
        /// Whether nothing was assigned to it before.
        first: bool,
    },
    /// Keeps a number in a map.
    Keep {
        /// The number; 0 deletes what is there.
        value: Argument,
        /// Whether it is added to what is there.
        adds: bool,
        /// The value that says the type of the map, if it is an address of a type.
        of: Option<Arc<Argument>>,
    },
}

/// Ranges of numbers, of the same size. What is less, and what is not less than the last one, has a
/// bucket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The least number of the first range.
    pub least: i64,
    /// The number after the last range.
    pub end: i64,
    /// Size of a range.
    pub step: i64,
}

impl Buckets {
    /// The most ranges.
    const MOST: i64 = 1000;

    /// Parses three numbers.
    pub(crate) fn parse(texts: [&str; 3], whole: &str) -> Result<Self, String> {
        let [least, end, step] = texts.map(number);
        let (Some(least), Some(end), Some(step)) = (least, end, step) else {
            return Err(format!("`{whole}` needs three numbers after its value: from, to, step"));
        };
        let room = end.checked_sub(least).filter(|room| *room > 0 && step > 0);
        let buckets = room.map(|_| Self { least, end, step });
        match buckets.filter(|buckets| buckets.ranges() <= Self::MOST) {
            Some(buckets) => Ok(buckets),
            None => Err(format!("`{whole}` has not 1 to {} ranges", Self::MOST)),
        }
    }

    /// Returns the number of ranges; the last one may be smaller.
    fn ranges(self) -> i64 {
        let room = self.end - self.least;
        room / self.step + i64::from(room % self.step > 0)
    }

    /// Returns the number of buckets.
    pub fn number(self) -> u32 {
        self.ranges() as u32 + 2
    }

    /// Returns the least number of a bucket, from the second on.
    pub fn from(self, bucket: usize) -> i64 {
        // The last range may end beyond all numbers.
        self.end.min(self.least.saturating_add((bucket as i64 - 1).saturating_mul(self.step)))
    }

    /// Returns the formula of the bucket of a value.
    pub(crate) fn bucket(self, value: &Argument) -> Argument {
        let compute = |left: &Argument, operator, right| {
            let right = Box::new(Argument::Number(right));
            Argument::Computed(Box::new(left.clone()), operator, right)
        };
        let less = compute(value, Operator::Compare(Relation::Less), self.least);
        let more = compute(value, Operator::Compare(Relation::AtLeast), self.end);
        // Snippets wrap around too.
        let above = compute(value, Operator::Subtract, self.least.wrapping_sub(self.step));
        let inside = compute(&above, Operator::Divide, self.step);
        let last = Argument::Number(i64::from(self.number()) - 1);
        let rest = Argument::Choice(Box::new([more, last, inside]));
        Argument::Choice(Box::new([less, Argument::Number(0), rest]))
    }
}

/// A number that is reported of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their sum and their mean.
    Stats,
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

impl Folding {
    const WORDS: [(&str, Self); 5] = [
        ("sum", Self::Sum),
        ("avg", Self::Mean),
        ("stats", Self::Stats),
        ("min", Self::Least),
        ("max", Self::Greatest),
    ];

    /// Returns what a cell keeps for it.
    pub(crate) fn kept(self) -> Fold {
        match self {
            Self::Sum | Self::Mean | Self::Stats => Fold::Sum,
            Self::Least => Fold::Least,
            Self::Greatest => Fold::Greatest,
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, folding)| *folding)
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

impl Do {
    /// Whether it needs the entry and the exits of a function together.
    pub fn is_timed(&self) -> bool {
        matches!(
            self,
            Self::Latency
                | Self::Cpu
                | Self::Concurrency
                | Self::Exits
                | Self::Span
                | Self::Durations(_)
        )
    }

    /// Returns the numbers that it reads, and the arguments of its message.
    pub fn arguments(&self) -> &[Argument] {
        match self {
            Self::Histogram(number)
            | Self::Linear { bucket: number, .. }
            | Self::Fold(_, number)
            | Self::Assign { value: number, .. }
            | Self::Keep { value: number, .. } => std::slice::from_ref(number),
            Self::Event(numbers) => numbers,
            Self::Print(format) => format.arguments(),
            _ => &[],
        }
    }

    /// Whether it has results that can be read.
    pub fn is_read(&self) -> bool {
        !matches!(self, Self::Print(_) | Self::Assign { .. })
    }

    /// Whether its results are taken from the program when they are cleared: they are no counts or
    /// sums, of which what was there before can be subtracted.
    pub fn is_taken(&self) -> bool {
        let least = matches!(self, Self::Fold(Folding::Least | Folding::Greatest, _));
        least || matches!(self, Self::Keep { .. })
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
            Self::Exits => to.write_str("exits"),
            Self::Poison => to.write_str("poison"),
            Self::Span => to.write_str("span"),
            Self::Durations(Clock::Wall) => to.write_str("histogram latency"),
            Self::Durations(Clock::Thread) => to.write_str("histogram cpu"),
            Self::Histogram(operand) => write!(to, "histogram {operand}"),
            Self::Linear { number, buckets: Buckets { least, end, step }, .. } => {
                write!(to, "lhist({number}, {least}, {end}, {step})")
            }
            Self::Fold(folding, operand) => write!(to, "{} {operand}", folding.word()),
            Self::Print(format) => format.fmt(to),
            Self::Assign { value, .. } | Self::Keep { value, adds: false, .. } => {
                write!(to, "= {value}")
            }
            Self::Keep { value, adds: true, .. } => write!(to, "+= {value}"),
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

    #[test]
    fn ranges_may_be_at_the_ends_of_all_numbers() {
        let parse = |texts| Buckets::parse(texts, "lhist");
        let least = parse(["-9223372036854775808", "-9223372036854775798", "5"]).expect("ranges");
        assert_eq!((least.number(), least.from(2)), (4, i64::MIN + 5));
        assert!(least.bucket(&Argument::Time).to_string().contains("nsecs"));
        let most = parse(["0", "9223372036854775807", "5000000000000000000"]).expect("ranges");
        assert_eq!((most.number(), most.from(3)), (4, i64::MAX));
        assert!(parse(["-9223372036854775808", "0", "1"]).is_err());
    }
}
