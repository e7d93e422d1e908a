//! Knobs: constants in the code of a function that act as tunables, with their uses and risks.

use std::fmt;

use iced_x86::ConditionCode;
use refit_analysis::FunctionId;

use crate::arguments::Direction;
use crate::compare::Stepping;
use crate::immediate::Immediate;

/// A constant in the code of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    /// Its function.
    pub function: FunctionId,
    /// Its name: function, distance from the entry, use.
    pub name: String,
    /// The number, as the file has it.
    pub value: i64,
    /// The immediates that are set together: the def-use web. At least one; the first one is the
    /// knob's address.
    pub immediates: Vec<Immediate>,
    /// Its use.
    pub usage: Use,
    /// Reasons for which it is not known what else depends on it.
    pub risks: Vec<Risk>,
    /// The ways in which it escapes from what can be followed; a knob that escapes cannot be set.
    pub escapes: Vec<Escape>,
    /// The directions in which it may be changed without a risk.
    pub direction: Direction,
    /// The likelihood that it is a tunable, from 0 to 100.
    pub score: u32,
}

impl Knob {
    /// Returns the address in the file of the instruction that the knob is named after.
    pub fn address(&self) -> u64 {
        self.immediates.first().map_or(0, |one| one.instruction)
    }
}

/// The use of a constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Use {
    /// The number of rounds of a loop that waits by pausing the processor.
    Spin(Rounds),
    /// The number of rounds of another loop.
    Loop(Rounds),
    /// A number is compared with it for its order.
    Limit(ConditionCode),
    /// A number is compared with it for equality.
    Equal,
    /// Bits of a number are tested.
    Mask,
    /// An argument of a function, by its number from 1 on.
    Argument {
        /// Name of the function.
        function: String,
        /// Number of the argument.
        number: u8,
        /// The directions in which it may change, if the function is known.
        direction: Option<Direction>,
    },
    /// A summand.
    Step,
    /// Anything else.
    Number,
}

/// The way in which a loop counts its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The change of the counter in each round.
    pub step: Stepping,
    /// The number that the counter begins with, if it counts up from one that is known.
    pub from: Option<i64>,
    /// Whether it counts down from the number, rather than up to it.
    pub down: bool,
    /// Whether the loop ends only if the counter meets its end exactly.
    pub exact: bool,
}

impl Use {
    /// Returns the word for it in the names of knobs.
    pub fn word(&self) -> String {
        match self {
            Self::Spin(_) => "spin".to_owned(),
            Self::Loop(_) => "loop".to_owned(),
            Self::Limit(_) => "limit".to_owned(),
            Self::Equal => "equal".to_owned(),
            Self::Mask => "mask".to_owned(),
            Self::Argument { number, .. } => format!("argument{number}"),
            Self::Step => "step".to_owned(),
            Self::Number => "number".to_owned(),
        }
    }

    /// Describes it, with its number.
    pub fn text(&self, value: i64) -> String {
        match self {
            Self::Spin(rounds) => format!("spin: {} with pauses", rounds.text(value)),
            Self::Loop(rounds) => format!("loop: {}", rounds.text(value)),
            Self::Limit(condition) => format!("branch if {} {value}", order(*condition)),
            Self::Equal => format!("branch if equal to {value}, or not"),
            Self::Mask => format!("test of the bits {value:#x}"),
            Self::Argument { function, number, .. } => format!("argument {number} of {function}"),
            Self::Step => format!("step of {value}"),
            Self::Number => format!("the number {value}"),
        }
    }
}

impl Rounds {
    fn text(&self, value: i64) -> String {
        let way = if self.down { "from" } else { "to" };
        match self.step {
            Stepping::By(1 | -1) if self.down || self.from == Some(0) => {
                format!("at most {value} rounds")
            }
            Stepping::By(by) => format!("rounds {way} {value} by {by}"),
            Stepping::Times => format!("rounds {way} {value}, multiplied each time"),
        }
    }
}

fn order(condition: ConditionCode) -> &'static str {
    match condition {
        ConditionCode::a => "above",
        ConditionCode::ae => "not below",
        ConditionCode::b => "below",
        ConditionCode::be => "not above",
        ConditionCode::g => "greater than",
        ConditionCode::ge => "not less than",
        ConditionCode::l => "less than",
        ConditionCode::le => "not greater than",
        _ => "compared otherwise with",
    }
}

/// Why it is not known what else depends on a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Risk {
    /// The comparison may be a check of bounds.
    Guards,
    /// The loop goes through memory, as far as it has rounds.
    Walks,
    /// The number that is compared is in memory.
    InMemory,
    /// The number may be a name, such as a character or a state.
    Identity,
    /// Other numbers come to its uses.
    Merged,
    /// The number is passed to a function about which nothing is known.
    Passed(String),
    /// The function may return a counter that depends on it.
    Returned,
    /// No use of the number was understood.
    Unused,
    /// The sum is not followed.
    Summed,
    /// The function has the same number, or one beside it, at these addresses in the file.
    Related(Vec<u64>),
    /// Some jumps of the function were not understood.
    Unresolved,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guards => f.write_str(
                "the number compared with it addresses memory or is passed on, on one side of the branch only: this may be a check of bounds",
            ),
            Self::Walks => f.write_str(
                "the loop addresses memory by a register that changes in it: the number may say how much memory there is",
            ),
            Self::InMemory => f.write_str(
                "the number compared with it is in memory, and what else reads it is not known",
            ),
            Self::Identity => {
                f.write_str("it is compared for equality: it may name something, and be no amount")
            }
            Self::Merged => f.write_str("its uses may have other numbers, too"),
            Self::Passed(function) => write!(f, "what {function} does with it is not known"),
            Self::Returned => f.write_str(
                "a counter that depends on it is in the register of results when the function returns",
            ),
            Self::Unused => f.write_str("no use of it was understood"),
            Self::Summed => f.write_str("what depends on the sum is not known"),
            Self::Related(addresses) => {
                f.write_str("the function has the same number, or one beside it, at")?;
                let mut separator = " ";
                for address in addresses {
                    write!(f, "{separator}{address:#x}")?;
                    separator = ", ";
                }
                Ok(())
            }
            Self::Unresolved => f.write_str("some jumps of the function were not understood"),
        }
    }
}

/// The way in which a constant leaves what can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Escape {
    /// Stored in memory.
    Stored,
    /// Returned by the function.
    Returned,
    /// Used to compute something.
    Computed,
    /// Used to address memory or code.
    Addresses,
    /// Kept in a register that a called function may change.
    Crosses,
    /// Passed to the kernel: the number or an argument of a system call.
    SystemCall,
    /// Taken along to an unknown address.
    Lost,
    /// Used for several things.
    Several,
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stored => "it is stored in memory",
            Self::Returned => "the function returns it",
            Self::Computed => "something is computed from it",
            Self::Addresses => "it addresses memory or code",
            Self::Crosses => "it stays in a register that a called function may change",
            Self::SystemCall => "it is the number or an argument of a system call",
            Self::Lost => "it goes with control to an unknown address",
            Self::Several => "it is used for several things that may depend on each other",
        })
    }
}
