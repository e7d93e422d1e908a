//! Measures a program with the copies of an arrangement, and without them.
//!
//! Control enters and leaves the copies in the order A B B A, again and again: what changes slowly
//! in the program's load is in both. In each slot, the calls of some function are counted, and the
//! processor time that the program spends; their ratio is the program's *progress*. It does not
//! depend on how much load there is, as long as its kind is the same.

use std::fs;
use std::time::{Duration, Instant};

use refit_probe::reading::Reading;
use refit_probe::spec::Spec;
use refit_probe::watch::{self, Error, Watch};
use refit_splice::process::Program;
use refit_splice::remains::Removed;
use refit_splice::{Installed, Why};
use tracing::debug;

use crate::interval::{Interval, gain};

/// Time at the beginning of a slot that is not measured: caches fill.
const SETTLE: Duration = Duration::from_millis(15);
/// Numbers of rounds after which the result is looked at.
const LOOKS: [usize; 5] = [8, 14, 20, 30, 45];

/// Counts progress while the program runs.
#[derive(Debug)]
pub struct Progress {
    watch: Watch,
}

/// A gain that has been measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    /// The gain: how much more the program does in the same processor time.
    pub gain: Interval,
    /// Number of rounds, each of four slots.
    pub rounds: usize,
    /// The longest stop by which control entered or left the copies.
    pub stop: Duration,
}

/// Why nothing could be proved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoProof {
    /// The program made no progress that could be measured.
    #[error("the program did not run what was to be measured, or used no processor time")]
    Idle,
    /// The program could not be changed.
    #[error(transparent)]
    Splice(#[from] Why),
}

impl Progress {
    /// Counts the calls of a function.
    ///
    /// # Errors
    /// [`Error`]: it cannot be counted.
    pub fn new(program: &Program, spec: Spec) -> Result<Self, Error> {
        Ok(Self { watch: watch::prepare(program, &[spec], None)?.install(program)? })
    }

    /// Returns the number of calls so far.
    fn calls(&self) -> u64 {
        let places = self.watch.watched.iter().flat_map(|place| &place.actions);
        let counts = places.map(|watching| match self.watch.read(watching).map(|one| one.all) {
            Ok(Reading::Count(count)) => count,
            _ => 0,
        });
        counts.sum()
    }

    /// Returns the progress in some time; `None` if there was none.
    fn of(&self, program: &Program, time: Duration) -> Option<f64> {
        // Nothing is waited for: the first part of a slot is left out.
        std::thread::sleep(SETTLE);
        let (calls, spent) = (self.calls(), processor_time(program));
        let began = Instant::now();
        while let Some(rest) = time.checked_sub(began.elapsed()) {
            std::thread::sleep(rest);
        }
        let (calls, spent) = (self.calls() - calls, processor_time(program).saturating_sub(spent));
        (calls > 0 && spent > 0).then(|| calls as f64 / spent as f64)
    }

    /// Ends the counting.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be changed any more.
    pub fn end(&self, program: &Program) -> Result<Removed, Why> {
        self.watch.remove(program)
    }
}

/// Measures what an arrangement of copies, which control has just entered, gains. Control is in the
/// copies afterwards.
///
/// # Errors
/// [`NoProof`]; control may be in the copies or not.
pub fn prove(
    program: &Program,
    installed: &Installed,
    progress: &Progress,
    slot: Duration,
    enough: impl Fn(&Interval) -> bool,
) -> Result<Proof, NoProof> {
    let (mut logarithms, mut stop) = (Vec::new(), Duration::ZERO);
    let looks = LOOKS.len() as u32;
    loop {
        let mut slots = [0.0; 4];
        for (number, measured) in slots.iter_mut().enumerate() {
            match number {
                1 => stop = stop.max(installed.leave(program)?),
                3 => stop = stop.max(installed.enter(program)?),
                _ => {}
            }
            *measured = progress.of(program, slot).ok_or(NoProof::Idle)?;
        }
        let [with, without, again, last] = slots.map(f64::ln);
        debug!(?slots, "a round");
        logarithms.push((with + last - without - again) / 2.0);
        let rounds = logarithms.len();
        if !LOOKS.contains(&rounds) {
            continue;
        }
        let Some(gain) = gain(&logarithms, looks) else { continue };
        debug!(?gain, rounds, "measured");
        if enough(&gain) || LOOKS.last() == Some(&rounds) {
            return Ok(Proof { gain, rounds, stop });
        }
    }
}

/// Returns the processor time of all threads of a program, in nanoseconds.
pub fn processor_time(program: &Program) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.face())).into_iter().flatten();
    let spent = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    spent.sum()
}
