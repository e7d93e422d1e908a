//! The state of a process's pages: `/proc/PID/pagemap` (proc_pid_pagemap(5)) and its `PAGEMAP_SCAN`
//! (6.7).
//!
//! The file has one word for each page ([`Pagemap::pages`]). A scan returns only the pages that
//! match, as ranges. It can write-protect them in the same step, so that each page written since
//! the last scan is reported exactly once
//! ([`userfault::Features::WP_ASYNC`](crate::userfault::Features::WP_ASYNC)). Neither accesses the
//! pages. Addresses are in bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use bitflags::bitflags;
use linux_raw_sys::general as raw;
use rustix::ioctl::{Opcode, opcode};

const SCAN: Opcode = opcode::read_write::<raw::pm_scan_arg>(b'f', 16);
/// Maximum number of regions that one scan returns.
const REGIONS_PER_SCAN: usize = 512;

bitflags! {
    /// The properties of a page (`PAGE_IS_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Categories: u64 {
        /// The kernel tracks its writes asynchronously (`WP_ASYNC`).
        const FOLLOWED = raw::PAGE_IS_WPALLOWED as u64;
        /// The page is not write-protected: it was written to since the last scan that protected
        /// it.
        const WRITTEN = raw::PAGE_IS_WRITTEN as u64;
        /// The page belongs to a file, or to shared memory.
        const FILE = raw::PAGE_IS_FILE as u64;
        /// The page is in memory.
        const PRESENT = raw::PAGE_IS_PRESENT as u64;
        /// The page is in swap.
        const SWAPPED = raw::PAGE_IS_SWAPPED as u64;
        /// The page is the shared page of zeros, which backs all pages that were only read.
        const ZERO = raw::PAGE_IS_PFNZERO as u64;
        /// The page is part of a huge page.
        const HUGE = raw::PAGE_IS_HUGE as u64;
        /// The page was written since soft-dirty bits were cleared, on kernels that have them.
        const SOFT_DIRTY = raw::PAGE_IS_SOFT_DIRTY as u64;
        /// The page is a guard page (`MADV_GUARD_INSTALL`).
        const GUARD = raw::PAGE_IS_GUARD as u64;
        /// Properties that later kernels add.
        const _ = !0;
    }
}

/// The parameters of a scan: which pages match, and what the scan does with them.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// A page matches if it has all of these properties,
    pub all: Categories,
    /// and, unless this is empty, at least one of these,
    pub any: Categories,
    /// and none of these.
    pub none: Categories,
    /// The properties that are reported; adjacent pages that agree in these are joined.
    pub tell: Categories,
    /// Maximum number of matching pages; 0 for no limit.
    pub most: u64,
    /// Write-protects the matching pages in the same step. Memory whose writes are not tracked is
    /// skipped.
    pub protect: bool,
    /// Fails with `EPERM` where writes are not tracked.
    pub must_follow: bool,
}

/// A range of pages with the same properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Their addresses.
    pub range: Range<u64>,
    /// Their properties, of those in [`Scan::tell`].
    pub categories: Categories,
}

/// The entry of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(u64);

impl Page {
    /// Returns whether the page is in memory.
    pub fn present(self) -> bool {
        self.bit(63)
    }

    /// Returns whether the page is in swap.
    pub fn swapped(self) -> bool {
        self.bit(62)
    }

    /// Returns whether the page belongs to a file or to shared memory (3.5).
    pub fn file(self) -> bool {
        self.bit(61)
    }

    /// Returns whether only this process maps the page (4.2).
    pub fn exclusive(self) -> bool {
        self.bit(56)
    }

    /// Returns whether `userfaultfd` write-protects the page (5.13).
    pub fn protected(self) -> bool {
        self.bit(57)
    }

    fn bit(self, bit: u32) -> bool {
        self.0 & (1 << bit) != 0
    }
}

/// Access to the page map of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Opens the page map of a process.
    ///
    /// # Errors
    /// `ENOENT`: no such process. `EACCES`, `EPERM`: the caller may not trace it.
    pub fn of(process: u32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{process}/pagemap"))? })
    }

    /// Returns the entries of the pages of a range, in order; fewer where the process has no such
    /// addresses.
    ///
    /// # Errors
    /// The errors of reading the file.
    pub fn pages(&self, range: Range<u64>) -> io::Result<Vec<Page>> {
        let size = rustix::param::page_size() as u64;
        let first = range.start / size;
        let count = range.end.div_ceil(size).saturating_sub(first);
        let mut bytes =
            vec![0; 8 * usize::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], 8 * first + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        Ok(bytes[..done].chunks_exact(8).map(|bytes| Page(word(bytes))).collect())
    }

    /// Scans a range and appends what matches to `into`, in order, up to 512 regions. Returns the
    /// address at which the scan stopped: the end of the range, or where the next scan has to
    /// continue.
    ///
    /// # Errors
    /// `ENOTTY`: the kernel is older than 6.7. `EINVAL`: the range is not whole pages, or a
    /// property is unknown. `EPERM`: see [`Scan::must_follow`].
    pub fn scan(&self, range: Range<u64>, scan: &Scan, into: &mut Vec<Region>) -> io::Result<u64> {
        let none = raw::page_region { start: 0, end: 0, categories: 0 };
        let mut found = vec![none; REGIONS_PER_SCAN];
        let mut flags = 0;
        if scan.protect {
            flags |= raw::PM_SCAN_WP_MATCHING;
        }
        if scan.must_follow {
            flags |= raw::PM_SCAN_CHECK_WPASYNC;
        }
        let mut scan = raw::pm_scan_arg {
            size: size_of::<raw::pm_scan_arg>() as u64,
            flags: flags.into(),
            start: range.start,
            end: range.end,
            walk_end: 0,
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            max_pages: scan.most,
            category_inverted: scan.none.bits(),
            category_mask: (scan.all | scan.none).bits(),
            category_anyof_mask: scan.any.bits(),
            return_mask: scan.tell.bits(),
        };
        // SAFETY: the structure is that of the request, and holds the address and length of
        // `found`, which the kernel fills. Write protection of tracked memory delays writes, and
        // changes none.
        let count = unsafe { crate::ioctl::ask(self.file.as_fd(), SCAN, &mut scan) }?;
        into.extend(found[..count as usize].iter().map(|one| Region {
            range: one.start..one.end,
            categories: Categories::from_bits_retain(one.categories),
        }));
        Ok(scan.walk_end)
    }
}
