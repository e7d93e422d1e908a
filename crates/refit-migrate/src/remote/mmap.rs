//! Makes the mappings of a group in its replica.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use refit_sys::foreign::Memory;
use refit_sys::trace::{Tracee, batch};

use crate::dsm::Store;
use crate::lookup::MappingCache;
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{Frames, Mapping};
use crate::remote::stub;

/// The mappings of a replica.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    known: Mutex<MappingCache>,
    /// Odd while something is being mapped that no thread may touch yet.
    changes: AtomicU64,
}

impl Mapped {
    /// Locks the mapping cache. Its holder waits for nothing.
    pub(crate) fn known(&self) -> MutexGuard<'_, MappingCache> {
        self.known.lock()
    }

    /// Returns how many of the `count` pages from this one on are mapped; at least one.
    pub(crate) fn pages_from(&self, page: u64, count: u16) -> u16 {
        let there =
            self.known().at(page).map_or(1, |(range, _)| (range.end - page).div_ceil(PAGE_SIZE));
        u16::try_from(there.clamp(1, count.into())).unwrap_or(count)
    }

    /// Returns the count of mappings made. A thread that has met a page without access since the
    /// count was `seen` may have met a mapping in the making.
    pub(crate) fn seen(&self) -> u64 {
        // Pairs with both stores in `make_moving`; in between, a thread of the replica meets the
        // mapping itself.
        self.changes.load(Ordering::SeqCst)
    }

    /// Returns whether a mapping was made since, or was being made then.
    pub(crate) fn since(&self, seen: u64) -> bool {
        seen % 2 == 1 || self.seen() != seen
    }
}

/// Makes a mapping of pages that move, as [`make`] does otherwise. Returns whether anything is at
/// the address.
///
/// # Errors
/// The task has ended; the kernel does not map the pages, or does not serve their faults.
pub(crate) fn make_moving(
    tracee: &mut Tracee,
    instruction: u64,
    (store, mapped): (&Store, &Mapped),
    mapping: &Mapping,
    address: u64,
) -> io::Result<bool> {
    let Mapping::Frames { range, access } = mapping else { return Ok(false) };
    // Another thread was faster.
    if mapped.known().at(address).is_some() {
        return Ok(true);
    }
    let (range, access) = (range.clone(), *access);
    let kind = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let none = libc::PROT_NONE.cast_unsigned();
    // Pairs with `seen`.
    mapped.changes.fetch_add(1, Ordering::SeqCst);
    let tracee = std::cell::RefCell::new(tracee);
    let done = store.map(
        &range,
        || map(&mut tracee.borrow_mut(), instruction, &range, none, kind, 0, range.start),
        || {
            let arguments = [range.start, range.end - range.start, access.into(), 0, 0, 0];
            tracee.borrow_mut().call(instruction, libc::SYS_mprotect, arguments)?;
            Ok(())
        },
    );
    if done.is_ok() {
        mapped.known().insert(&range, access);
    }
    mapped.changes.fetch_add(1, Ordering::SeqCst);
    done.map(|()| true)
}

/// A replica, as far as mappings are made in it.
pub(crate) struct ReplicaMappings<'a> {
    pub(crate) window: &'a Range<u64>,
    pub(crate) memory: &'a Memory,
    pub(crate) mapped: &'a Mapped,
}

/// Makes a mapping, by a task of the replica, and mappings `beside` it. Returns the number of the
/// latter, or `None` if nothing is at the address.
///
/// # Errors
/// The task has ended; the file cannot be opened, or the kernel does not map it.
pub(crate) fn make(
    tracee: &mut Tracee,
    instruction: u64,
    replica: &ReplicaMappings<'_>,
    (mapping, beside): (&Mapping, &[Frames]),
) -> io::Result<Option<u64>> {
    match mapping {
        Mapping::Nothing => Ok(None),
        Mapping::Frames { range, access } => {
            let one = Frames { range: range.clone(), access: *access };
            make_frames(tracee, instruction, replica, one, beside).map(Some)
        }
        Mapping::File { range, access, offset, shared, path, written, task } => {
            let writes = *shared && *access & libc::PROT_WRITE.cast_unsigned() != 0;
            let file = File::options().read(true).write(writes).open(path)?;
            let number =
                pass(tracee, instruction, (replica.window.start, replica.memory), &file, writes)?;
            let sharing = if *shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let kind = sharing | libc::MAP_FIXED;
            let mapped = if written.is_empty() {
                map(tracee, instruction, range, *access, kind, number, *offset)
            } else {
                let place = (range, *access, number, *offset);
                map_changed(tracee, instruction, replica.memory, place, (written, *task))
            };
            tracee.call(instruction, libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
            mapped.map(|()| Some(0))
        }
    }
}

/// Maps a file some of whose pages a task has changed. They are copied before any thread sees the
/// mapping.
fn map_changed(
    tracee: &mut Tracee,
    instruction: u64,
    memory: &Memory,
    (range, access, file, offset): (&Range<u64>, u32, u64, u64),
    (written, task): (&[Range<u64>], u32),
) -> io::Result<()> {
    let length = range.end - range.start;
    let private = libc::MAP_PRIVATE as u64;
    let arguments = [0, length, access.into(), private, file, offset];
    let aside = tracee.call(instruction, libc::SYS_mmap, arguments)?;
    let origin = Memory::of(task)?;
    let mut page = [0; PAGE_SIZE as usize];
    for at in written.iter().flat_map(|part| part.clone().step_by(PAGE_SIZE as usize)) {
        origin.read(at, &mut page)?;
        memory.write(aside + (at - range.start), &page)?;
    }
    let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let arguments = [aside, length, length, how, range.start, 0];
    tracee.call(instruction, libc::SYS_mremap, arguments)?;
    Ok(())
}

fn make_frames(
    tracee: &mut Tracee,
    instruction: u64,
    replica: &ReplicaMappings<'_>,
    one: Frames,
    beside: &[Frames],
) -> io::Result<u64> {
    let ReplicaMappings { window, memory, mapped } = *replica;
    let kind = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // Another thread may have been faster there.
    let free = |range: &Range<u64>| {
        let gap = mapped.known().gap(range.start);
        gap.start <= range.start && range.end <= gap.end
    };
    let ours = |range: &Range<u64>| range.start < window.end && window.start < range.end;
    let others = beside.iter().filter(|one| free(&one.range) && !ours(&one.range));
    let mut all = vec![one];
    all.extend(others.take(stub::CALLS - 1).cloned());
    if let [Frames { range, access }] = &all[..] {
        // The frames are its descriptor 0.
        map(tracee, instruction, range, *access, kind, 0, range.start)?;
        mapped.known().insert(range, *access);
        return Ok(0);
    }
    let kind = u64::from(kind.cast_unsigned());
    let call = |Frames { range, access }: &Frames| {
        let Range { start, end } = *range;
        (libc::SYS_mmap, [start, end.saturating_sub(start), (*access).into(), kind, 0, start])
    };
    let calls: Vec<batch::Entry> = all.iter().map(call).collect();
    let code = (window.start + stub::batch(), window.start + stub::BEHIND);
    let (count, refused) = tracee.calls(memory, code, &calls)?;
    all[..count].iter().for_each(|one| mapped.known().insert(&one.range, one.access));
    // The other mappings are made when they are touched.
    match (refused, count) {
        (Some(error), 0) => Err(error.into()),
        _ => Ok(count as u64 - 1),
    }
}

fn map(
    tracee: &mut Tracee,
    instruction: u64,
    range: &Range<u64>,
    access: u32,
    kind: i32,
    file: u64,
    offset: u64,
) -> io::Result<()> {
    let length = range.end - range.start;
    let kind = u64::from(kind.cast_unsigned());
    let arguments = [range.start, length, access.into(), kind, file, offset];
    tracee.call(instruction, libc::SYS_mmap, arguments)?;
    Ok(())
}

/// Has the replica open a file that this process has open. Returns its descriptor there. The name
/// is written into the replica's page, behind the code.
pub(crate) fn pass(
    tracee: &mut Tracee,
    instruction: u64,
    (page, memory): (u64, &Memory),
    file: &File,
    writes: bool,
) -> io::Result<u64> {
    let name = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let name = CString::new(name)?;
    let at = page + stub::BEHIND;
    memory.write(at, name.as_bytes_with_nul())?;
    let how = libc::O_CLOEXEC | if writes { libc::O_RDWR } else { libc::O_RDONLY };
    let from = i64::from(libc::AT_FDCWD).cast_unsigned();
    let arguments = [from, at, u64::from(how.cast_unsigned()), 0, 0, 0];
    Ok(tracee.call(instruction, libc::SYS_openat, arguments)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_pages_are_fetched_than_are_mapped() {
        let mapped = Mapped::default();
        mapped.known().insert(&(PAGE_SIZE..3 * PAGE_SIZE), 1);
        mapped.known().insert(&(4 * PAGE_SIZE..9 * PAGE_SIZE), 1);
        assert_eq!([mapped.pages_from(PAGE_SIZE, 8), mapped.pages_from(8 * PAGE_SIZE, 8)], [2, 1]);
        assert_eq!(mapped.pages_from(3 * PAGE_SIZE, 8), 1);
    }
}
