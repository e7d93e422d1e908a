//! Reads which memory a program has mapped, and how much of it is resident.

use std::io;
use std::ops::Range;

use refit_memory::PAGE_SIZE;
use refit_sys::maps::{self, Kind, Mapping};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pagemap::{Categories, Pagemap, Scan};
use refit_sys::process::{self, Doing};

/// The largest growth of a mapping while it is looked at, in bytes.
const MAX_GROWTH: u64 = 64 << 20;

/// Memory of a program that can be served.
pub(crate) struct Servable {
    pub(crate) range: Range<u64>,
    /// Where the next mapping begins: the mapping may grow up to there while it is looked at.
    pub(crate) room: u64,
    pub(crate) name: String,
}

/// Returns the private anonymous memory of a program whose pages can be evicted and brought back;
/// if the program is `guarded`, without mappings that have guards, where no page may be put.
pub(crate) fn anonymous(process: u32, guarded: bool) -> io::Result<Vec<Servable>> {
    let mappings = maps::of(process)?;
    let pagemap = if guarded { Some(Pagemap::of(process)?) } else { None };
    let after = mappings.iter().skip(1).map(Some).chain([None]);
    let ours = mappings.iter().zip(after).filter(|(one, _)| {
        let kind = matches!(one.kind(), Kind::Anonymous | Kind::Heap | Kind::Stack);
        // Only writable memory can be moved; code that is written at run time stays resident.
        let may = one.readable && one.writable && !one.executable && !one.shared;
        kind && may
            && one.file == (0, 0)
            && pagemap.as_ref().is_none_or(|pagemap| !has_guards(pagemap, &one.range))
    });
    let servable = |(one, after): (&Mapping, Option<&Mapping>)| {
        // A stack grows downwards, and keeps a gap from what is below it.
        let after = after.filter(|after| !matches!(after.kind(), Kind::Stack));
        let room = after.map_or(one.range.end, |after| after.range.start);
        let room = room.min(one.range.end.saturating_add(MAX_GROWTH));
        let name = one.name.to_string_lossy().into_owned();
        Servable { range: one.range.clone(), room, name }
    };
    Ok(ours.map(servable).collect())
}

/// Returns whether a program has guards (`MADV_GUARD_INSTALL`) in anonymous memory.
pub(crate) fn is_guarded(process: u32) -> io::Result<bool> {
    let pagemap = Pagemap::of(process)?;
    Ok(anonymous(process, false)?.iter().any(|one| has_guards(&pagemap, &one.range)))
}

/// Returns whether there is a guard in a range. A kernel that cannot report guards (before 6.15)
/// reports none.
fn has_guards(pagemap: &Pagemap, range: &Range<u64>) -> bool {
    let guard = Categories::GUARD;
    let scan = Scan { all: guard, tell: guard, most: 1, ..Scan::default() };
    let (mut found, mut from) = (Vec::new(), range.start);
    while from < range.end && found.is_empty() {
        match pagemap.scan(from..range.end, &scan, &mut found) {
            Ok(next) if next > from => from = next,
            _ => break,
        }
    }
    !found.is_empty()
}

/// Returns the number of bytes of resident anonymous memory; 0 if the process has ended.
pub(crate) fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut words =
        text.split_ascii_whitespace().skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    // All resident pages, and those of files or shared memory among them.
    let (all, of_files) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    all.saturating_sub(of_files) * PAGE_SIZE_U64
}

/// Returns the parts of `range` that are in none of `taken`, which are sorted.
pub(crate) fn apart(range: &Range<u64>, taken: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut from = range.start;
    for one in taken.iter().filter(|one| one.start < range.end && range.start < one.end) {
        if from < one.start {
            left.push(from..one.start);
        }
        from = from.max(one.end);
    }
    if from < range.end {
        left.push(from..range.end);
    }
    left
}

/// Returns whether no thread of a process can be in a call that throws memory away, or that lets
/// another process do so meanwhile.
pub(crate) fn throws_nothing_away(process: u32) -> bool {
    let throws = [
        libc::SYS_madvise,
        libc::SYS_process_madvise,
        // The child uses this memory until it has its own.
        libc::SYS_vfork,
        libc::SYS_clone,
        libc::SYS_clone3,
    ];
    process::doing(process).into_iter().all(|doing| match doing {
        Doing::Running | Doing::Kernels => false,
        Doing::Call(number) => !throws.contains(&number),
        Doing::Waiting => true,
    })
}

/// Returns the memory of [`resident`], where each page counts as one divided by the number of
/// processes that have it: the sum over a tree is what the tree takes. The kernel looks at every
/// page for it.
pub(crate) fn share(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map_or_else(|| resident(process), |kilobytes| kilobytes << 10)
}

/// Returns the addresses of resident pages of a range; without those that were only read, and
/// without those that other processes have, too, unless `shared`.
pub(crate) fn present(pagemap: &Pagemap, range: &Range<u64>, shared: bool) -> io::Result<Vec<u64>> {
    let scan = Scan {
        all: Categories::PRESENT,
        none: Categories::ZERO | Categories::FILE,
        tell: Categories::PRESENT,
        ..Scan::default()
    };
    let mut found = Vec::new();
    let mut from = range.start;
    while from < range.end {
        from = pagemap.scan(from..range.end, &scan, &mut found)?;
    }
    let mut alone = Vec::new();
    for one in found {
        let pages = pagemap.pages(one.range.clone())?;
        let addresses = one.range.step_by(PAGE_SIZE).zip(pages);
        let counts = addresses.filter(|(_, page)| shared || page.exclusive());
        alone.extend(counts.map(|(address, _)| address));
    }
    Ok(alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_left_out() {
        let left = |range: Range<u64>| -> Vec<(u64, u64)> {
            let parts = apart(&range, &[10..20, 30..40]).into_iter();
            parts.map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(left(0..50), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(left(12..35), [(20, 30)]);
        assert_eq!(left(12..18), []);
        assert_eq!(left(0..5), [(0, 5)]);
    }
}
