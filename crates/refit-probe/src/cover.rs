//! Finds which basic blocks of a program are reached: refit puts a store of a flag before each
//! block, and removes it once the flag is set.
//!
//! The store needs no register. Flags are in memory that refit has mapped too, so reading them
//! costs the program nothing. Removing stores costs it a stop, so many are removed in one stop, and
//! stops become rarer as fewer new flags are set (`Pace`). A long-running program soon runs as if
//! it were not watched.
//!
//! A block without room for a jump is reported, and not watched. With [`Blocks::All`], its function
//! is copied instead, with a store for each of its blocks, and these stores stay until the end.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fs, io};

use rayon::prelude::*;
use refit_analysis::functions::Sources;
use refit_analysis::{FunctionId, Module};
use refit_splice::process::{Program, Refusal};
use refit_splice::remains::Removed;
use refit_splice::{Action, At, Installed, Plan, Site, StopTimes, Why, Withdrawn};
use refit_sys::glob;
use refit_sys::memory::PAGE_SIZE_U64;

use crate::code::behind_mark;
use crate::error::Error;
use crate::files::open;
use crate::modules::{self, Mapped};
use crate::session::ProbeSession;
use crate::sites::{NoSite, Place};

/// Maximum number of sites that are removed in one stop. Such a stop takes some milliseconds.
const BATCH: usize = 2000;
/// Time within which threads have to stop for a removal. If a thread does not, the stop is retried
/// later.
const BATCH_STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// A file whose blocks are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// File name.
    pub name: String,
    /// Path, as the program sees it.
    pub path: PathBuf,
    /// Distance of addresses in the program from those in the file.
    pub bias: u64,
    /// Its lowest address and the one after its highest, in the file.
    pub span: (u64, u64),
    /// Functions by address, without stubs of the procedure linkage table.
    pub functions: Vec<Function>,
}

/// A function whose blocks are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Its entry, in the file.
    pub address: u64,
    /// Its blocks by address.
    pub blocks: Vec<Block>,
}

/// A basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address in the file.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Index of its flag; `None` if it is not watched.
    flag: Option<u32>,
}

/// Counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks that were reached.
    pub reached: u64,
    /// Blocks that are watched.
    pub watched: u64,
    /// All blocks.
    pub blocks: u64,
}

impl Tally {
    /// Adds the counts of another tally.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            reached: self.reached + other.reached,
            watched: self.watched + other.watched,
            blocks: self.blocks + other.blocks,
        }
    }
}

/// Blocks that can be watched.
#[derive(Debug)]
pub struct Prepared {
    files: Vec<File>,
    /// Number of blocks that are not watched, by the reason.
    pub refused: BTreeMap<&'static str, u64>,
    plan: Plan,
    /// Addresses of the sites in the program, by the indices of their flags.
    addresses: Vec<u64>,
    watched: usize,
}

/// Flags that are installed in a program. They stay until [`remove`](Self::remove) or
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
    /// Flags that were seen set.
    reached: Vec<bool>,
    /// Flags that are set, and whose sites are still installed.
    pending: Vec<u32>,
    /// Number of sites that are still installed.
    left: usize,
    pace: Pace,
}

/// Which blocks are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Blocks with room for a jump; their flags are removed once set.
    Roomy,
    /// All blocks, except in functions that cannot be copied. Where a block has no room, its
    /// function runs in a copy, with a store for each block until the end.
    All,
}

/// Decides which blocks can be watched: in the files whose path or file name matches one of the
/// patterns `modules`, or in the program's own file if there is no pattern. Changes nothing.
///
/// # Errors
/// [`Error`]: a pattern that matches no file, a file that cannot be read, no block that can be
/// watched.
pub fn prepare(program: &Program, modules: &[String], which: Blocks) -> Result<Prepared, Error> {
    let (mut files, mut sites, mut refused) = (Vec::new(), Vec::new(), BTreeMap::new());
    for mapped in chosen(program, modules)? {
        let (module, bias) = open(&mapped)?;
        let ids: Vec<_> = (0..module.functions().len() as u32).map(FunctionId).collect();
        let found: Vec<_> =
            ids.into_par_iter().filter_map(|id| function(&module, id, bias, which)).collect();
        let mut functions = Vec::with_capacity(found.len());
        for (mut function, wanted) in found {
            for (block, site) in function.blocks.iter_mut().zip(wanted) {
                match site {
                    Ok(mut site) => {
                        let cell = sites.len() as u32;
                        block.flag = Some(cell);
                        site.actions = vec![Action::Flag { cell }.into()];
                        sites.push(site);
                    }
                    Err(_) => *refused.entry("its code cannot be read").or_default() += 1,
                }
            }
            functions.push(function);
        }
        let span = span(&module);
        let (name, path) = (mapped.name(), mapped.path.clone());
        files.push(File { name, path, bias, span, functions });
    }
    decide(files, sites, refused)
}

/// Returns the files of the program that match the patterns.
fn chosen(program: &Program, patterns: &[String]) -> Result<Vec<Mapped>, Error> {
    let mapped = modules::of(program)?;
    let there = || mapped.iter().map(Mapped::name).collect();
    let missing = |wanted: &str| Error::NoModule { wanted: wanted.to_owned(), there: there() };
    if let Some(wanted) = patterns.iter().find(|one| !mapped.iter().any(|file| names(one, file))) {
        return Err(missing(wanted));
    }
    let own = fs::read_link(format!("/proc/{}/exe", program.face())).unwrap_or_default();
    let own = own.to_string_lossy();
    let own = own.strip_suffix(" (deleted)").unwrap_or(&own);
    let wanted = |file: &&Mapped| match patterns {
        [] => file.path.to_string_lossy() == own,
        _ => patterns.iter().any(|pattern| names(pattern, file)),
    };
    let chosen: Vec<_> = mapped.iter().filter(wanted).cloned().collect();
    if chosen.is_empty() { Err(missing(own)) } else { Ok(chosen) }
}

fn names(pattern: &str, file: &Mapped) -> bool {
    file.is_called(pattern)
        || glob::matches(pattern.as_bytes(), file.name().as_bytes())
        || glob::matches(pattern.as_bytes(), file.path.as_os_str().as_bytes())
}

fn span(module: &Module) -> (u64, u64) {
    let segments = module.image().segments();
    let lowest = segments.iter().map(|segment| segment.addresses.start).min().unwrap_or(0);
    let highest = segments.iter().map(|segment| segment.addresses.end).max().unwrap_or(0);
    (lowest / PAGE_SIZE_U64 * PAGE_SIZE_U64, highest.next_multiple_of(PAGE_SIZE_U64))
}

/// Returns a function with its blocks, and a site for each of them.
fn function(
    module: &Module,
    id: FunctionId,
    bias: u64,
    which: Blocks,
) -> Option<(Function, Vec<Result<Site, NoSite>>)> {
    let known = module.function(id);
    // A stub only jumps to another function.
    if known.sources.contains(Sources::STUB) {
        return None;
    }
    let place = match which {
        Blocks::Roomy => Place::in_place(module, id, bias),
        Blocks::All => Place::new(module, id, bias),
    };
    let (mut blocks, mut sites) = (Vec::new(), Vec::new());
    for block in place.flow().blocks() {
        let size = block.end.saturating_sub(block.start);
        blocks.push(Block { address: block.start, size, flag: None });
        sites.push(place.site(behind_mark(module, block.start), At::Before, Vec::new()));
    }
    Some((Function { name: known.name(), address: known.entry, blocks }, sites))
}

fn decide(
    mut files: Vec<File>,
    mut sites: Vec<Site>,
    mut refused: BTreeMap<&'static str, u64>,
) -> Result<Prepared, Error> {
    let addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
    // A block that consists of an `endbr64` shares its site with the next one.
    let mut first: BTreeMap<u64, u32> = BTreeMap::new();
    let mut shared: BTreeMap<u32, u32> = BTreeMap::new();
    for (cell, &address) in (0..).zip(&addresses) {
        match first.get(&address) {
            Some(&other) => drop(shared.insert(cell, other)),
            None => drop(first.insert(address, cell)),
        }
    }
    let mut cells: Vec<u32> = (0..).take(sites.len()).collect();
    cells.retain(|cell| !shared.contains_key(cell));
    let mut numbers = 0..;
    sites.retain(|_| numbers.next().is_some_and(|cell| !shared.contains_key(&cell)));
    let (plan, lost) = Plan::new(sites);
    let mut why_first = None;
    let mut removed = BTreeSet::new();
    for (index, why) in lost {
        *refused.entry(reason(&why)).or_default() += 1;
        removed.insert(cells[index]);
        why_first.get_or_insert(why);
    }
    for block in files.iter_mut().flat_map(|file| &mut file.functions).flat_map(|f| &mut f.blocks) {
        block.flag = block.flag.map(|cell| shared.get(&cell).copied().unwrap_or(cell));
        block.flag = block.flag.filter(|cell| !removed.contains(cell));
    }
    if plan.is_empty() {
        let first = why_first.map_or("there is no code".to_owned(), |why| why.to_string());
        return Err(Error::Nothing { first });
    }
    let watched = plan.len();
    Ok(Prepared { files, refused, plan, addresses, watched })
}

fn reason(why: &Why) -> &'static str {
    match why {
        Why::Short { .. } => "too short for a jump, without an unused place nearby",
        Why::Alone { .. } => "too short for a jump, in a function with unresolved jumps",
        Why::Fixed { .. } => "an instruction that cannot run elsewhere",
        Why::Uncopied { .. } => "in a function with unresolved jumps, which cannot be copied",
        Why::Torn { .. } => "in a function whose copy would have to change several pages at once",
        _ => "no instructions",
    }
}

impl Prepared {
    /// Describes the changes, a line per site.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.plan.lines()
    }

    /// Installs the flags in the program.
    ///
    /// # Errors
    /// [`Error`]; the program is unchanged then.
    pub fn install(self, program: &Program) -> Result<Cover, Error> {
        let Self { files, plan, addresses, watched, .. } = self;
        let (session, installed) =
            ProbeSession::install("cover", program, plan, addresses.len() as u32, None)?;
        Ok(Cover {
            files,
            relieved: Withdrawn::default(),
            stops: 0,
            session,
            installed,
            reached: vec![false; addresses.len()],
            addresses,
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

    /// Whether a block was reached, as of the last [`look`](Self::look).
    pub fn is_reached(&self, block: &Block) -> bool {
        block.flag.is_some_and(|flag| self.reached[flag as usize])
    }

    /// Counts the blocks of a function.
    pub fn tally(&self, function: &Function) -> Tally {
        let count = |wanted: &dyn Fn(&Block) -> bool| {
            function.blocks.iter().filter(|block| wanted(block)).count() as u64
        };
        Tally {
            reached: count(&|block| self.is_reached(block)),
            watched: count(&|block| block.flag.is_some()),
            blocks: function.blocks.len() as u64,
        }
    }

    /// Reads which blocks have been reached, without stopping the program.
    ///
    /// # Errors
    /// The error of reading the flags.
    pub fn look(&mut self) -> io::Result<()> {
        let flags = self.installed.flags()?;
        let flags = (0..).zip(flags);
        for (flag, _) in flags.filter(|&(_, set)| set) {
            if !std::mem::replace(&mut self.reached[flag as usize], true)
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
        if self.pending.is_empty() || !self.pace.is_due(now) {
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
        let wanted = |file: &&Mapped| patterns.iter().any(|pattern| names(pattern, file));
        let known = |file: &&Mapped| self.files.iter().any(|one| one.path == file.path);
        let mapped = modules::of(program)?;
        Ok(mapped.iter().filter(|file| wanted(file) && !known(file)).map(Mapped::name).collect())
    }

    /// Removes all flags, and reads them a last time. Returns what has been removed from the
    /// program.
    ///
    /// # Errors
    /// [`Why`]: the program can no longer be changed.
    pub fn remove(&mut self, program: &Program) -> Result<Removed, Why> {
        let removed = self.session.remove(program);
        // The flags are in memory that refit has mapped, even if the program has ended.
        let _ = self.look();
        removed
    }
}

/// Decides when the next stop is due: soon after a stop that removed many sites, and after ever
/// longer pauses if stops remove few.
#[derive(Clone, Copy, Debug)]
struct Pace {
    pause: Duration,
    next: Instant,
}

impl Pace {
    const SHORTEST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(8);
    /// Minimum number of sites that a stop has to remove to count as having removed many.
    const MANY: usize = 64;

    fn new(now: Instant) -> Self {
        Self { pause: Self::SHORTEST, next: now + Self::SHORTEST / 4 }
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    fn took(&mut self, sites: usize, now: Instant) {
        self.pause = match sites {
            Self::MANY.. => Self::SHORTEST,
            _ => (self.pause * 2).min(Self::LONGEST),
        };
        self.next = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_rarer_the_less_they_do() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        assert!(!pace.is_due(begin) && pace.is_due(begin + Pace::SHORTEST));
        let mut now = begin;
        for _ in 0..10 {
            now += Duration::from_secs(60);
            pace.took(1, now);
        }
        assert!(!pace.is_due(now + Pace::LONGEST / 2) && pace.is_due(now + Pace::LONGEST));
        pace.took(Pace::MANY, now);
        assert!(!pace.is_due(now) && pace.is_due(now + Pace::SHORTEST));
    }
}
