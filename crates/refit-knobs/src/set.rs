//! Sets knobs in running programs.

use std::time::Duration;

use refit_analysis::Module;
use refit_splice::Why;
use refit_splice::immediates::{self, Immediate as Replaced};
use refit_splice::process::Program;
use tracing::debug;

use crate::arguments::Direction;
use crate::find::ends;
use crate::knob::{Escape, Knob, Risk, Use};

/// Why a knob was not set. The program is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The constant escapes.
    #[error("{name} cannot be set: {}", list(.escapes))]
    Escapes {
        /// Name of the knob.
        name: String,
        /// The ways in which it escapes.
        escapes: Vec<Escape>,
    },
    /// Something else may depend on the constant.
    #[error("{name} is not set: {}", list(.risks))]
    Unchecked {
        /// Name of the knob.
        name: String,
        /// The reasons.
        risks: Vec<Risk>,
    },
    /// A function may do more than its caller expects, or less.
    #[error("{name} is not set: it is an argument of a function that is known to be safe only if the number is {} than {value}", .direction)]
    Direction {
        /// Name of the knob.
        name: String,
        /// The direction in words.
        direction: &'static str,
        /// The number of the file.
        value: i64,
    },
    /// The number does not fit.
    #[error("{number} does not fit into the instruction of {name}: it takes {least} to {greatest}")]
    Range {
        /// Name of the knob.
        name: String,
        /// The number.
        number: i64,
        /// The least number that fits.
        least: i64,
        /// The greatest number that fits.
        greatest: i64,
    },
    /// A loop would not end.
    #[error("with {number}, the loop of {name} would not end where it should: it counts {counts}")]
    Endless {
        /// Name of the knob.
        name: String,
        /// The number.
        number: i64,
        /// The way in which it counts, with the number of the file.
        counts: String,
    },
    /// The file does not have the bytes.
    #[error("the file does not have the code of {name}")]
    NoCode {
        /// Name of the knob.
        name: String,
    },
    /// The program cannot be changed.
    #[error(transparent)]
    Splice(#[from] Why),
}

fn list<T: ToString>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}

/// Result of setting a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The number before, if it was known.
    pub before: Option<i64>,
    /// Time for which the program was stopped.
    pub stood: Duration,
}

/// Sets a knob of a file that is mapped with this distance between its addresses and those in the
/// program. `unchecked` says that the caller takes the risks.
///
/// # Errors
/// [`Error`].
pub fn set(
    program: &Program,
    (module, bias): (&Module, u64),
    knob: &Knob,
    number: i64,
    unchecked: bool,
) -> Result<Changed, Error> {
    check(knob, number, unchecked)?;
    let before = current(program, bias, knob);
    if before == Some(number) {
        return Ok(Changed { before, stood: Duration::ZERO });
    }
    let no_code = || Error::NoCode { name: knob.name.clone() };
    let mut replaced = Vec::new();
    for one in &knob.immediates {
        let old = module.bytes(one.address, usize::from(one.bytes)).ok_or_else(no_code)?;
        let new = one.encode(number).ok_or_else(no_code)?;
        let (instruction, address) =
            (one.instruction.wrapping_add(bias), one.address.wrapping_add(bias));
        replaced.push(Replaced { instruction, address, old: old.to_vec(), new });
    }
    if replaced.iter().all(|one| one.old == one.new) {
        unset(program, bias, knob)?;
        return Ok(Changed { before, stood: Duration::ZERO });
    }
    let stood = immediates::set(program, &replaced)?;
    debug!(process = program.id(), knob = knob.name, number, ?before, "knob set");
    Ok(Changed { before, stood })
}

/// Restores the number of the file; whether it was set.
///
/// # Errors
/// [`Error`]: the program cannot be changed.
pub fn unset(program: &Program, bias: u64, knob: &Knob) -> Result<bool, Error> {
    let mut undone = 0;
    for one in &knob.immediates {
        let begin = one.address.wrapping_add(bias);
        undone += immediates::unset(program, begin..begin + u64::from(one.bytes))?;
    }
    debug!(process = program.id(), knob = knob.name, undone, "knob unset");
    Ok(undone > 0)
}

/// Returns the number that the program has; `None` if its immediates differ, or cannot be read.
pub fn current(program: &Program, bias: u64, knob: &Knob) -> Option<i64> {
    let mut numbers = knob.immediates.iter().map(|one| {
        let mut bytes = vec![0; usize::from(one.bytes)];
        program.read(one.address.wrapping_add(bias), &mut bytes).ok()?;
        one.decode(&bytes)
    });
    let first = numbers.next()??;
    numbers.all(|other| other == Some(first)).then_some(first)
}

/// Checks whether a knob may have this number.
///
/// # Errors
/// [`Error`].
pub fn check(knob: &Knob, number: i64, unchecked: bool) -> Result<(), Error> {
    let name = || knob.name.clone();
    if !knob.escapes.is_empty() {
        return Err(Error::Escapes { name: name(), escapes: knob.escapes.clone() });
    }
    for one in &knob.immediates {
        let (least, greatest) = one.range();
        if !(least..=greatest).contains(&number) {
            return Err(Error::Range { name: name(), number, least, greatest });
        }
    }
    if let Use::Spin(rounds) | Use::Loop(rounds) = &knob.usage
        && number != knob.value
        && !ends(rounds, knob.value, number)
    {
        let counts = knob.usage.text(knob.value);
        return Err(Error::Endless { name: name(), number, counts });
    }
    if unchecked || number == knob.value {
        return Ok(());
    }
    if !knob.risks.is_empty() {
        return Err(Error::Unchecked { name: name(), risks: knob.risks.clone() });
    }
    let direction = match knob.direction {
        Direction::Less if number > knob.value => "less",
        Direction::More if number < knob.value => "greater",
        _ => return Ok(()),
    };
    Err(Error::Direction { name: name(), direction, value: knob.value })
}
