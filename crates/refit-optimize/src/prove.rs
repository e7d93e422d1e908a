//! Measures a program with the copies of an arrangement, and without them.
//!
//! Control enters and leaves the copies in the order A B B A, again and again: what changes slowly
//! in the program's load is in both. In each slot, the calls of some function are counted, and the
//! processor time that the program spends; their ratio is the program's *progress*. It does not
//! depend on how much load there is, as long as its kind is the same.
//!
//! Both are read while no thread runs: only then is the processor time exact, and belongs to the
//! same moment as the count. A stop also costs the program what the caches held of it, so there is
//! one before each slot, not only where control changes sides. Slots are short, since the speed of
//! a shared machine changes at all time scales, and slots that follow each other at once have most
//! of it in common.

use std::time::{Duration, Instant};

use refit_analysis::FunctionId;
use refit_probe::files::Files;
use refit_probe::spec::{Place, Spec, What};
use refit_probe::watch::{self, Error, Watch};
use refit_splice::process::{Program, Refusal, STOP_TIMEOUT, Still};
use refit_splice::remains::Removed;
use refit_splice::{Installed, Why};
use refit_sys::clock;
use tracing::debug;

use crate::interval::{Interval, gain};

/// Numbers of rounds after which the result is looked at.
pub const LOOKS: [usize; 5] = [20, 35, 55, 80, 120];
/// Maximum number of rounds.
pub const MOST: usize = LOOKS[LOOKS.len() - 1];
/// Number of rounds in which the program may do nothing.
const IDLE: usize = 60;

/// Counts progress while the program runs.
#[derive(Debug)]
pub struct Progress {
    watch: Watch,
}

/// Calls and processor time, in nanoseconds, up to some moment, or between two.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    calls: u64,
    spent: u64,
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

    /// Returns what has been done so far, by a program whose threads are stopped.
    fn done(&self, program: &Program) -> Done {
        let places = self.watch.watched.iter().flat_map(|place| &place.actions);
        let counts =
            places.map(|watching| self.watch.read(watching).map_or(0, |counts| counts.all.count()));
        Done { calls: counts.sum(), spent: clock::of_process(program.id()).unwrap_or(0) }
    }

    /// Ends the counting.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be changed any more.
    pub fn end(&self, program: &Program) -> Result<Removed, Why> {
        self.watch.remove(program)
    }
}

impl Done {
    fn since(self, before: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(before.calls),
            spent: self.spent.saturating_sub(before.spent),
        }
    }

    fn and(self, other: Self) -> Self {
        Self { calls: self.calls + other.calls, spent: self.spent + other.spent }
    }

    /// Returns the logarithm of the progress; `None` if there was none.
    fn progress(self) -> Option<f64> {
        (self.calls > 0 && self.spent > 0).then(|| (self.calls as f64 / self.spent as f64).ln())
    }
}

/// Returns the name of a function of a file, and how progress is measured by its calls.
///
/// # Errors
/// [`Error`]: the file cannot be analysed.
pub fn calls_of(files: &mut Files, file: usize, id: FunctionId) -> Result<(String, Spec), Error> {
    let (module, _) = files.open(file)?;
    let (name, entry) = (module.function(id).name(), module.function(id).entry);
    let module = Some(files.mapped(file).path.display().to_string());
    Ok((name, Spec::count(Place { module, what: What::At(entry) })))
}

/// Does as [`prove`] does, by the calls at a place, which are counted for that long.
///
/// # Errors
/// As [`Progress::new`], [`prove`] and [`Progress::end`].
pub fn measure<E: From<Error> + From<NoProof> + From<Why>>(
    program: &Program,
    installed: &Installed,
    place: &Spec,
    slot: Duration,
    most: usize,
    enough: impl Fn(&Interval) -> bool,
) -> Result<Proof, E> {
    let progress = Progress::new(program, place.clone())?;
    let proof = prove(program, installed, &progress, slot, most, enough);
    progress.end(program)?;
    Ok(proof?)
}

/// Measures what an arrangement of copies, which control has just entered, gains, until it is
/// `enough`, in at most this many rounds. Control is in the copies afterwards.
///
/// # Errors
/// [`NoProof`]; control may be in the copies or not.
pub fn prove(
    program: &Program,
    installed: &Installed,
    progress: &Progress,
    slot: Duration,
    most: usize,
    enough: impl Fn(&Interval) -> bool,
) -> Result<Proof, NoProof> {
    let (mut logarithms, mut stop, mut idle) = (Vec::new(), Duration::ZERO, 0);
    let looks: Vec<usize> = LOOKS.into_iter().filter(|&look| look <= most).collect();
    let mut begin = looked(program, progress)?;
    loop {
        let (mut first, mut second) = (begin, begin);
        pass(slot);
        stop = stop.max(installed.leave(program, || first = progress.done(program))?);
        pass(slot);
        looked(program, progress)?;
        pass(slot);
        stop = stop.max(installed.enter(program, || second = progress.done(program))?);
        pass(slot);
        let end = looked(program, progress)?;
        let with = first.since(begin).and(end.since(second)).progress();
        let without = second.since(first).progress();
        begin = end;
        let Some((with, without)) = with.zip(without) else {
            idle += 1;
            if idle > IDLE {
                return Err(NoProof::Idle);
            }
            continue;
        };
        logarithms.push(with - without);
        let rounds = logarithms.len();
        if !looks.contains(&rounds) {
            continue;
        }
        let Some(gain) = gain(&logarithms, looks.len() as u32) else { continue };
        debug!(?gain, rounds, "measured");
        if enough(&gain) || looks.last() == Some(&rounds) {
            return Ok(Proof { gain, rounds, stop });
        }
    }
}

/// Stops the program, and returns what it has done.
fn looked(program: &Program, progress: &Progress) -> Result<Done, NoProof> {
    let work = |_: &mut Still<'_>| Ok::<_, Refusal>(progress.done(program));
    let (done, _) = program.stand_still(STOP_TIMEOUT, work).map_err(Why::from)?;
    Ok(done)
}

/// Lets the program run for some time.
fn pass(time: Duration) {
    let began = Instant::now();
    while let Some(rest) = time.checked_sub(began.elapsed()) {
        std::thread::sleep(rest);
    }
}
