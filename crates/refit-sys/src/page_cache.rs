//! The pages of a file that the kernel caches: `cachestat(2)` (Linux 6.5).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use linux_raw_sys::general as raw;

/// The pages of a file in the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedPages {
    /// The number of all of them.
    pub cached: u64,
    /// The number of these that must be written to the file.
    pub dirty: u64,
    /// The number of these that are being written to the file.
    pub written_back: u64,
}

/// Counts the cached pages of a file.
///
/// # Errors
///
/// `ENOSYS` if the kernel is older; `EOPNOTSUPP` for files of huge pages; `EPERM` for a file that
/// the caller neither owns nor may write to.
pub fn cached(file: impl AsFd) -> io::Result<CachedPages> {
    // Without an end it is the whole file.
    let range = raw::cachestat_range { off: 0, len: 0 };
    let mut pages = MaybeUninit::<raw::cachestat>::uninit();
    // SAFETY: the kernel reads `range` and writes `pages`, both of which outlive the call.
    let outcome = unsafe {
        libc::syscall(
            raw::__NR_cachestat.into(),
            file.as_fd().as_raw_fd(),
            &raw const range,
            pages.as_mut_ptr(),
            0,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so that the kernel has filled the structure.
    let pages = unsafe { pages.assume_init() };
    Ok(CachedPages {
        cached: pages.nr_cache,
        dirty: pages.nr_dirty,
        written_back: pages.nr_writeback,
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::memory::PAGE_SIZE;

    #[test]
    fn pages_that_were_written_are_cached() {
        let file = rustix::fs::memfd_create("pages", MemfdFlags::empty()).expect("a file");
        let written = rustix::io::write(&file, &[1; 3 * PAGE_SIZE]).expect("it is written");
        assert_eq!(written, 3 * PAGE_SIZE);
        let pages = match cached(&file) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                return eprintln!("skipped: this kernel has no cachestat (Linux 6.5)");
            }
            pages => pages.expect("the pages are counted"),
        };
        assert_eq!(pages.cached, 3);
        assert!(pages.dirty <= 3);
    }

    #[test]
    fn a_pipe_has_no_pages() {
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let pages = cached(&reader);
        assert!(pages.is_err() || pages.is_ok_and(|pages| pages.cached == 0));
    }
}
