//! Putting into a replica what its group has at an address.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use refit_sys::foreign::Memory;
use refit_sys::trace::Held;

use super::stub;
use super::wire::Mapping;

/// Maps it, by a task of the replica; whether it is anything.
///
/// # Errors
/// The task is no more; the file cannot be opened, or the kernel does not map it.
pub(super) fn make(
    held: &mut Held,
    instruction: u64,
    window: &Range<u64>,
    mapping: &Mapping,
) -> io::Result<bool> {
    match mapping {
        Mapping::Nothing => Ok(false),
        Mapping::Frames { range, access } => {
            let kind = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
            // Its descriptor 0 is the frames'.
            map(held, instruction, range, *access, kind, 0, range.start)?;
            Ok(true)
        }
        Mapping::File { range, access, offset, shared, path } => {
            let writes = *shared && *access & libc::PROT_WRITE.cast_unsigned() != 0;
            let file = File::options().read(true).write(writes).open(path)?;
            let number = pass(held, instruction, window, &file, writes)?;
            let sharing = if *shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let kind = sharing | libc::MAP_FIXED;
            let mapped = map(held, instruction, range, *access, kind, number, *offset);
            held.call(instruction, libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
            mapped.map(|()| true)
        }
    }
}

fn map(
    held: &mut Held,
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
    held.call(instruction, libc::SYS_mmap, arguments)?;
    Ok(())
}

/// Has the replica open what this process has open; the number that it has there. The name is put behind the code that is ours.
fn pass(
    held: &mut Held,
    instruction: u64,
    window: &Range<u64>,
    file: &File,
    writes: bool,
) -> io::Result<u64> {
    let name = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let name = CString::new(name)?;
    let at = window.start + stub::BEHIND;
    Memory::of(held.thread())?.write(at, name.as_bytes_with_nul())?;
    let how = libc::O_CLOEXEC | if writes { libc::O_RDWR } else { libc::O_RDONLY };
    let from = i64::from(libc::AT_FDCWD).cast_unsigned();
    let arguments = [from, at, u64::from(how.cast_unsigned()), 0, 0, 0];
    Ok(held.call(instruction, libc::SYS_openat, arguments)?)
}
