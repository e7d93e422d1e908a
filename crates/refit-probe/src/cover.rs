//! Finds which basic blocks of a program are reached: refit puts a store of a flag before each
//! block that is not implied by others, and removes it once the flag is set.
//!
//! The store needs no register. Flags are in memory that refit has mapped too, so reading them
//! costs the program nothing. Removing stores costs it a stop, so many are removed in one stop, and
//! stops become rarer as fewer new flags are set (`Pace`). A long-running program soon runs as if
//! it were not watched.
//!
//! With [`Watching::Counters`], blocks are counted instead, and their counters stay. A block has no
//! counter if its count follows from those of others.
//!
//! A block without room for a jump is reported, and not watched. With [`Blocks::All`], its function
//! is copied instead, with the stores of its blocks in it, and the copy stays until the end.

use std::io;
use std::time::{Duration, Instant};

use refit_analysis::FunctionId;
use refit_splice::process::{Program, Refusal};
use refit_splice::remains::Removed;
use refit_splice::{AHEAD, Installed, StopTimes, Why, Withdrawn};

pub use crate::blocks::{Block, Blocks, File, Function, Prepared, Watching};
use crate::blocks::{Derived, Wanted};
use crate::error::Error;
use crate::file_pattern::FilePattern;
use crate::files::{Files, open};
use crate::modules::{self, Mapped};
use crate::session::ProbeSession;

/// Maximum number of sites that are removed in one stop. Such a stop takes some milliseconds.
const BATCH: usize = 2000;
/// Time within which threads have to stop for a removal. If a thread does not, the stop is retried
/// later.
const BATCH_STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// Counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks that were reached.
    pub reached: u64,
    /// Blocks that are watched.
    pub watched: u64,
    /// All blocks.
    pub blocks: u64,
    /// Number of times that they ran, all together; how many were reached, if they are flagged.
    pub runs: u64,
}

impl Tally {
    /// Adds the counts of another tally.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            reached: self.reached + other.reached,
            watched: self.watched + other.watched,
            blocks: self.blocks + other.blocks,
            runs: self.runs.saturating_add(other.runs),
        }
    }
}

/// Flags or counters that are installed in a program. They stay until [`remove`](Self::remove) or
/// [`remains::repair`](refit_splice::remains::repair).
#[derive(Debug)]
pub struct Cover {
    /// The files, by address.
    pub files: Vec<File>,
    /// Sites removed because they were reached, and the longest stop for a removal.
    pub relieved: Withdrawn,
    /// Number of stops for removals.
    pub stops: usize,
    session: ProbeSession,
    installed: Installed,
    addresses: Vec<u64>,
    watching: Watching,
    /// The flags or counts as of the last [`look`](Self::look), then the derived ones.
    values: Vec<u64>,
    derived: Derived,
    /// Flags that are set, and whose sites are still installed.
    pending: Vec<u32>,
    /// Number of sites that are still installed.
    left: usize,
    pace: Pace,
}

/// Decides which blocks can be watched: in the files whose path or file name matches one of the
/// patterns `modules`, or in the program's own file if there is no pattern. Changes nothing.
///
/// # Errors
/// [`Error`]: a pattern that matches no file, a file that cannot be read, no block that can be
/// watched.
pub fn prepare(
    program: &Program,
    modules: &[String],
    which: Blocks,
    watching: Watching,
) -> Result<Prepared, Error> {
    let mut wanted = Wanted::default();
    for mapped in chosen(program, modules)? {
        let (module, bias) = open(&mapped)?;
        let all: Vec<_> = (0..module.functions().len() as u32).map(FunctionId).collect();
        let file = wanted.file(mapped, (&module, bias), &all, which, watching);
        wanted.files.push(file);
    }
    wanted.decide(watching)
}

/// Decides which blocks of these functions of one file can be watched, as [`prepare`] does.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_functions(
    files: &mut Files,
    file: usize,
    functions: &[FunctionId],
    which: Blocks,
    watching: Watching,
) -> Result<Prepared, Error> {
    let mapped = files.mapped(file).clone();
    let (module, bias) = files.open(file)?;
    let mut wanted = Wanted::default();
    let file = wanted.file(mapped, (module, bias), functions, which, watching);
    wanted.files.push(file);
    wanted.decide(watching)
}

/// Returns the files of the program that match the patterns.
fn chosen(program: &Program, patterns: &[String]) -> Result<Vec<Mapped>, Error> {
    let mapped = modules::of(program)?;
    let there = || mapped.iter().map(Mapped::name).collect();
    let missing = |wanted: &str| Error::NoModule { wanted: wanted.to_owned(), there: there() };
    let process = program.face();
    let named: Vec<_> = patterns.iter().map(|one| FilePattern::new(one, process)).collect();
    for (wanted, pattern) in patterns.iter().zip(&named) {
        if !mapped.iter().any(|file| pattern.matches(file)) {
            return Err(missing(wanted));
        }
    }
    let own = modules::own_path(program);
    let wanted = |file: &&Mapped| match &named[..] {
        [] => file.path.to_string_lossy() == own,
        _ => named.iter().any(|pattern| pattern.matches(file)),
    };
    let chosen: Vec<_> = mapped.iter().filter(wanted).cloned().collect();
    if chosen.is_empty() { Err(missing(&own)) } else { Ok(chosen) }
}

impl Prepared {
    /// Describes the changes, a line per site.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.plan.lines()
    }

    /// Installs the flags or counters in the program.
    ///
    /// # Errors
    /// [`Error`]; the program is unchanged then.
    pub fn install(self, program: &Program) -> Result<Cover, Error> {
        let Self { files, plan, addresses, derived, watching, watched, .. } = self;
        let mut mapped = Files::new(program)?;
        let (session, installed) = ProbeSession::install(
            "cover",
            program,
            &mut mapped,
            plan,
            addresses.len() as u32,
            None,
        )?;
        Ok(Cover {
            files,
            relieved: Withdrawn::default(),
            stops: 0,
            session,
            installed,
            addresses,
            watching,
            values: vec![0; derived.values()],
            derived,
            pending: Vec::new(),
            left: watched,
            pace: Pace::new(Instant::now()),
        })
    }
}

impl Cover {
    /// Returns how long the program was stopped to install the flags.
    pub fn stood(&self) -> StopTimes {
        self.installed.stood
    }

    /// Returns the number of sites that are still installed.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns the number of sites that were reached, as of the last [`look`](Self::look), and are
    /// still installed.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a block was reached, as of the last [`look`](Self::look).
    pub fn is_reached(&self, block: &Block) -> bool {
        self.runs(block) > Some(0)
    }

    /// Returns how often a block ran, as of the last [`look`](Self::look); 1 if it was reached, if
    /// blocks are flagged. `None` if the block is not watched.
    pub fn runs(&self, block: &Block) -> Option<u64> {
        block.value.map(|value| self.values[value as usize])
    }

    /// Returns the blocks that ran most often, at most this many, with what they belong to.
    pub fn hottest(&self, most: usize) -> Vec<(&File, &Function, &Block)> {
        let functions = self
            .files
            .iter()
            .flat_map(|file| file.functions.iter().map(move |function| (file, function)));
        let mut all: Vec<_> = functions
            .flat_map(|(file, function)| {
                function.blocks.iter().map(move |block| (file, function, block))
            })
            .filter(|(_, _, block)| self.is_reached(block))
            .collect();
        all.sort_by_key(|(_, _, block)| std::cmp::Reverse(self.runs(block)));
        all.truncate(most);
        all
    }

    /// Counts the blocks of a function.
    pub fn tally(&self, function: &Function) -> Tally {
        let count = |wanted: &dyn Fn(&Block) -> bool| {
            function.blocks.iter().filter(|block| wanted(block)).count() as u64
        };
        Tally {
            reached: count(&|block| self.is_reached(block)),
            watched: count(&|block| block.value.is_some()),
            blocks: function.blocks.len() as u64,
            runs: function.blocks.iter().filter_map(|block| self.runs(block)).sum(),
        }
    }

    /// Reads which blocks have been reached, or how often they ran, without stopping the program.
    ///
    /// # Errors
    /// The error of reading the flags or counters.
    pub fn look(&mut self) -> io::Result<()> {
        match self.watching {
            Watching::Flags => self.look_at_flags()?,
            Watching::Counters => {
                let mut lanes = self.installed.lanes(AHEAD);
                for (cell, value) in (0..).zip(&mut self.values[..self.addresses.len()]) {
                    *value = lanes.cell(cell)?;
                }
            }
        }
        self.derived.derive(&mut self.values);
        Ok(())
    }

    fn look_at_flags(&mut self) -> io::Result<()> {
        let flags = (0..).zip(self.installed.flags()?);
        for (flag, _) in flags.filter(|&(_, set)| set) {
            if std::mem::replace(&mut self.values[flag as usize], 1) == 0
                && self.installed.is_removable(self.addresses[flag as usize])
            {
                self.pending.push(flag);
            }
        }
        Ok(())
    }

    /// Removes sites that were reached, if a stop is due.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be stopped now; call it again later.
    pub fn relieve(&mut self, program: &Program, now: Instant) -> Result<(), Why> {
        if self.pending.is_empty() || !self.pace.is_due(now, self.pending.len()) {
            return Ok(());
        }
        let kept = self.pending.len().saturating_sub(BATCH);
        let batch: Vec<u64> =
            self.pending[kept..].iter().map(|&flag| self.addresses[flag as usize]).collect();
        match self.installed.remove_sites(program, &batch, BATCH_STOP_TIMEOUT) {
            Ok(removed) => {
                self.session.relieved(batch.len(), Ok(()));
                self.pending.truncate(kept);
                self.pace.took(batch.len(), now);
                self.stops += 1;
                self.left -= batch.len();
                self.relieved.sites += removed.sites;
                self.relieved.foreign += removed.foreign;
                self.relieved.stood = self.relieved.stood.max(removed.stood);
                Ok(())
            }
            Err(why) => {
                self.session.relieved(batch.len(), Err(&why));
                self.pace.took(0, now);
                Err(why)
            }
        }
    }

    /// Returns the names of files that match the patterns and that the program has loaded since:
    /// they are not watched.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub fn arrivals(&self, program: &Program, patterns: &[String]) -> Result<Vec<String>, Refusal> {
        let process = program.face();
        let patterns: Vec<_> =
            patterns.iter().map(|pattern| FilePattern::new(pattern, process)).collect();
        let wanted = |file: &&Mapped| patterns.iter().any(|pattern| pattern.matches(file));
        let known = |file: &&Mapped| self.files.iter().any(|one| one.path == file.path);
        let mapped = modules::of(program)?;
        Ok(mapped.iter().filter(|file| wanted(file) && !known(file)).map(Mapped::name).collect())
    }

    /// Removes all flags or counters, and reads them a last time. Returns what has been removed
    /// from the program.
    ///
    /// # Errors
    /// [`Why`]: the program can no longer be changed.
    pub fn remove(&mut self, program: &Program) -> Result<Removed, Why> {
        let removed = match self.watching {
            // A flag that is set says the same at any moment.
            Watching::Flags => self.session.remove_in_parts(program),
            Watching::Counters => self.session.remove(program),
        };
        // The flags are in memory that refit has mapped, even if the program has ended.
        let _ = self.look();
        removed
    }
}

/// Decides when the next stop is due: soon if it removes many sites, and after ever longer pauses
/// if stops remove few.
#[derive(Clone, Copy, Debug)]
struct Pace {
    pause: Duration,
    last: Instant,
}

impl Pace {
    const SHORTEST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(8);
    /// Minimum number of sites that a stop has to remove to count as removing many.
    const MANY: usize = 64;

    fn new(now: Instant) -> Self {
        Self { pause: Self::SHORTEST, last: now }
    }

    fn is_due(&self, now: Instant, pending: usize) -> bool {
        let pause = if pending < Self::MANY { self.pause } else { Self::SHORTEST };
        now >= self.last + pause
    }

    fn took(&mut self, sites: usize, now: Instant) {
        self.pause = match sites {
            Self::MANY.. => Self::SHORTEST,
            _ => (self.pause * 2).min(Self::LONGEST),
        };
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_rarer_the_less_they_do() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        assert!(!pace.is_due(begin, 1) && pace.is_due(begin + Pace::SHORTEST, 1));
        let mut now = begin;
        for _ in 0..10 {
            now += Duration::from_secs(60);
            pace.took(1, now);
        }
        assert!(!pace.is_due(now + Pace::LONGEST / 2, 1) && pace.is_due(now + Pace::LONGEST, 1));
        // A program that begins to work after a pause is relieved at once.
        assert!(pace.is_due(now + Pace::SHORTEST, Pace::MANY));
        pace.took(Pace::MANY, now);
        assert!(!pace.is_due(now, 1) && pace.is_due(now + Pace::SHORTEST, 1));
    }
}
