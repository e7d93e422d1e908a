//! Undoes the changes that patch areas record.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::maps::Mapping;
use refit_sys::patch_area::{is_area, is_name};
use refit_sys::process::same_memory;
use tracing::debug;

use super::found::{Remains, find, find_again};
use super::removed::{KeptReason, Removed};
use super::restore_ahead::restore_ahead;
use super::take_out::{Areas, Part, rules, search};
use crate::process::searched::Searched;
use crate::process::{self, Call, Program, Refusal, STOP_TIMEOUT, Still, contexts, signal_frames};
use crate::record::Contents;
use crate::rules::Rules;
use crate::why::Why;

/// Number and length of the pauses in which threads may leave an area. Snippets and handlers are
/// short, but a thread in one may have to wait for a processor.
const AGAIN: [(usize, Duration); 2] =
    [(50, Duration::from_millis(5)), (20, Duration::from_millis(100))];

/// Which areas are taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// The areas of probes.
    Probes,
    /// The areas of arrangements of copies ([`Arrangement`](crate::Arrangement)), and of versions.
    Arrangements,
    /// The areas of versions of functions ([`Versions`](crate::Versions)).
    Versions,
    /// The areas of immediates that have been replaced ([`immediates`](crate::immediates)).
    Immediates,
}

impl Which {
    fn has(self, one: &Remains) -> bool {
        match self {
            Self::All => true,
            Self::Probes => one.head.contents == Contents::Snippets,
            Self::Arrangements => one.head.calls(),
            Self::Versions => one.has_versions(),
            Self::Immediates => one.holds_immediates(),
        }
    }
}

/// Takes out everything that refit has put into a program, and into processes forked from it since.
/// Areas to which a signal handler returns are retried a few times: handlers are short.
///
/// # Errors
/// [`Why`]: the program cannot be changed, or a thread does not leave the spliced code.
pub fn repair(program: &Program) -> Result<Removed, Why> {
    take_out_in_parts(program, Which::All)
}

/// Takes out a part of it, as [`repair`] does. All sites cease to count at the same moment.
///
/// # Errors
/// As [`repair`].
pub fn take_out(program: &Program, which: Which) -> Result<Removed, Why> {
    take(program, which, false)
}

/// Takes out a part of it, as [`repair`] does. Sites in many pages are taken out in several stops,
/// which are shorter than one; so they cease to count one after the other.
///
/// # Errors
/// As [`repair`].
pub fn take_out_in_parts(program: &Program, which: Which) -> Result<Removed, Why> {
    take(program, which, true)
}

fn take(program: &Program, which: Which, in_parts: bool) -> Result<Removed, Why> {
    let before = Before::new(program, in_parts);
    let found = before.found.iter().filter(|one| which.has(one));
    let files: BTreeSet<_> = found.map(|remains| remains.file).collect();
    let ahead = before.restore_ahead(program, |one| which.has(one))?;
    let once = |last| take_out_once((program, &before), which, &files, last);
    let removed = until_gone(program, once)?.and(ahead);
    let kept = removed.kept;
    debug!(process = program.id(), ?which, kept, because = ?removed.because, "taken out");
    Ok(removed)
}

/// Takes out areas again while threads are in them, or return there: `once` does it, and receives
/// whether it is the last time.
fn until_gone(
    program: &Program,
    mut once: impl FnMut(bool) -> Result<Removed, Why>,
) -> Result<Removed, Why> {
    let mut removed = once(false)?;
    let mut again = |removed: Removed, last: bool| match once(last) {
        // The memory of a program ends with it.
        Err(_) if program.ended() => Ok(removed.again(Removed::default())),
        more => more.map(|more| removed.again(more)),
    };
    let pauses = AGAIN.iter().flat_map(|&(times, pause)| std::iter::repeat_n(pause, times));
    for pause in pauses {
        if !removed.because.is_some_and(KeptReason::passes) {
            break;
        }
        // Another process is not notified when a handler has returned, so this polls.
        std::thread::sleep(pause);
        removed = again(removed, false)?;
    }
    if removed.finds {
        // A handler does not end, or an area stays for another reason.
        removed = again(removed, true)?;
    }
    Ok(removed)
}

/// Takes out those areas that no thread is in now. Unless it is the last time, unwinders go on
/// learning of the others.
fn take_out_once(
    (program, before): (&Program, &Before),
    which: Which,
    files: &BTreeSet<(u64, u64)>,
    last: bool,
) -> Result<Removed, Why> {
    let mut removed = take_out_of((program, before), &|one| which.has(one), last)?;
    // Nothing is left in these, or what is left has to stay.
    let mut done = BTreeSet::from([program.id()]);
    // A child whose fork was in progress while this list was made is in the next list.
    loop {
        let mut sharers: Vec<u32> = sharers(files);
        let face = program.face();
        sharers.retain(|&id| !done.contains(&id) && !same_memory(face, id).unwrap_or(false));
        if sharers.is_empty() {
            return Ok(removed);
        }
        for id in sharers {
            let cleaned = program.open_forked(id).map_err(Why::from);
            let clean = |child| {
                let before = Before::new(&child, before.in_parts);
                let ahead = before.restore_ahead(&child, |one| which.has(one))?;
                let removed = take_out_of((&child, &before), &|one| which.has(one), last)?;
                Ok(removed.and(ahead))
            };
            match cleaned.and_then(clean) {
                Ok(more) => {
                    if more.areas == 0 || more.kept > 0 {
                        done.insert(id);
                    }
                    removed = removed.and(more);
                }
                // Or it is a replica of a program that moves, which loses the mappings with it.
                Err(Why::Program(Refusal::NoSuch { .. } | Refusal::Ended { .. })) => {
                    _ = done.insert(id)
                }
                Err(why) => return Err(why),
            }
        }
    }
}

/// Returns the processes that have mapped one of these files.
fn sharers(files: &BTreeSet<(u64, u64)>) -> Vec<u32> {
    refit_sys::process::all()
        .filter(|&id| {
            let mappings = refit_sys::maps::of(id).unwrap_or_default();
            // One that reads the counts may have mapped the file, too, in one part.
            let runs = |one: &Mapping| is_area(one) && one.offset == 0 && !one.writable;
            mappings.iter().any(|one| runs(one) && files.contains(&one.file))
        })
        .collect()
}

/// Facts of a program that are looked up before it is stopped, once for all attempts.
struct Before {
    /// Descriptors that a killed refit may have left.
    leaked: Vec<u64>,
    found: Vec<Arc<Remains>>,
    searched: Option<Arc<Searched>>,
    rules: Option<Rules>,
    /// Whether there may be several stops.
    in_parts: bool,
}

impl Before {
    fn new(program: &Program, in_parts: bool) -> Self {
        let found: Vec<_> = find(program).unwrap_or_default().into_iter().map(Arc::new).collect();
        found.iter().filter(|one| one.head.calls()).for_each(|one| _ = one.back());
        let (searched, rules) = (search(program, &found), rules(program, &found));
        Self { leaked: leaked(program), found, searched, rules, in_parts }
    }

    /// Restores most sites of wanted areas, if there may be several stops.
    fn restore_ahead(
        &self,
        program: &Program,
        wanted: impl Fn(&Remains) -> bool,
    ) -> Result<Removed, Why> {
        let Self { found, searched, .. } = self;
        let wanted = found.iter().filter(|one| self.in_parts && wanted(one));
        restore_ahead(program, searched.as_ref(), wanted.map(|one| &**one))
    }
}

fn take_out_of(
    (program, before): (&Program, &Before),
    wanted: &(dyn Fn(&Remains) -> bool + Sync),
    last: bool,
) -> Result<Removed, Why> {
    let work = |still: &mut Still<'_>| {
        // Searched while no task runs, so that no fork copies an area between this search and its
        // removal.
        let remains = find_again(program, &before.found)?;
        let removed = remove(still, (&remains, before.rules.as_ref()), wanted, last)?;
        if !before.leaked.is_empty() {
            close(still, &before.leaked)?;
        }
        process::clean(still)?;
        Ok::<_, Why>(removed)
    };
    let searched = before.searched.as_ref();
    let (removed, stood) = contexts::stand_still(program, STOP_TIMEOUT, searched, work)?;
    Ok(Removed { stood, ..removed })
}

/// Takes out the areas at these addresses, with the changes that they record.
pub(crate) fn give_back(program: &Program, areas: &[u64]) -> Result<Removed, Why> {
    // Descriptors that another refit has left are not its own.
    let before = Before { leaked: Vec::new(), ..Before::new(program, true) };
    let wanted = |one: &Remains| areas.contains(&one.head.address);
    let ahead = before.restore_ahead(program, wanted)?;
    let removed = until_gone(program, |last| take_out_of((program, &before), &wanted, last))?;
    Ok(removed.and(ahead))
}

/// Takes out those of all areas of a program that are wanted, as far as no thread is in them.
/// Unless it is the last time, unwinders learn of all areas until no thread is in any; in any case
/// while return addresses on stacks lead to one.
fn remove(
    still: &mut Still<'_>,
    (all, rules): (&[Arc<Remains>], Option<&Rules>),
    wanted: impl Fn(&Remains) -> bool,
    last: bool,
) -> Result<Removed, Why> {
    let areas = Areas::new(still, all, rules)?;
    let mut restored = Vec::new();
    for one in all.iter().filter(|one| wanted(one)) {
        restored.push((one, one.restore(still, &areas, Part::Others)?));
    }
    let mut counters = signal_frames::counters(still)?;
    // Frames on stacks are in these copies, or in those of other areas with the same finders.
    let described = restored.iter().any(|(_, result)| result.returned_to.is_some())
        || all.iter().any(|one| !wanted(one) && one.head.calls());
    let finds = described || !last && restored.iter().any(|(one, _)| one.is_at(&counters));
    let mut removed = Removed::default();
    if !finds {
        for (one, result) in restored.iter_mut().filter(|(one, _)| one.has_finders()) {
            *result = result.and(one.restore(still, &areas, Part::Finders)?);
            // Threads have been moved.
            counters = signal_frames::counters(still)?;
        }
    }
    for (one, result) in restored {
        let because = if one.head.has_code() && still.is_switching() {
            // The handler has been waited for, so that no further attempt is made.
            Some(KeptReason::Handler)
        } else if finds && one.has_finders() {
            Some(result.returned_to.unwrap_or(KeptReason::InUse))
        } else {
            one.release(still, &areas, &counters, result)?
        };
        let (kept, gone) = (usize::from(because.is_some()), usize::from(because.is_none()));
        removed = removed.and(Removed {
            areas: gone,
            sites: result.sites,
            foreign: result.foreign,
            kept,
            because,
            finds,
            ..Removed::default()
        });
    }
    Ok(removed)
}

/// Returns the descriptors that the program has open because refit was killed between two of its
/// calls: those of areas, and userfaultfds whose user has not said yet what it wants of them. The
/// program's own are so for the instant between two of its calls only; those to be closed are so
/// before the stop and in the stop.
fn leaked(program: &Program) -> Vec<u64> {
    let face = program.face();
    let entries = std::fs::read_dir(format!("/proc/{face}/fd")).into_iter().flatten();
    let numbers = entries.flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let link = std::fs::read_link(entry.path()).ok()?;
        let name = link.as_os_str().as_encoded_bytes();
        let is_unused = || name == USERFAULTFD && is_unused(face, number);
        (is_name(name) || is_unused()).then_some(number)
    });
    numbers.collect()
}

/// Name of a userfaultfd in `/proc/PID/fd`.
const USERFAULTFD: &[u8] = b"anon_inode:[userfaultfd]";

/// Whether no features of a userfaultfd have been agreed on: the second number of `API`, in
/// `/proc/PID/fdinfo`, is 0 (fs/userfaultfd.c).
fn is_unused(process: u32, number: u64) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{number}"));
    let about = about.unwrap_or_default();
    let api = about.lines().find_map(|line| line.strip_prefix("API:"));
    api.and_then(|api| api.split(':').nth(1)) == Some("0")
}

fn close(still: &mut Still<'_>, numbers: &[u64]) -> Result<(), Refusal> {
    let call = match Call::new(still) {
        Ok(call) => call,
        Err(Refusal::Filtered { .. } | Refusal::Restless { .. }) => return Ok(()),
        Err(refusal) => return Err(refusal),
    };
    // The program may have closed them itself while it ran, and opened others under these numbers.
    let there = leaked(still.program());
    for &number in numbers.iter().filter(|number| there.contains(number)) {
        call.make(still, "close", libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}
