//! What pages of a process are: `/proc/PID/pagemap` (proc_pid_pagemap(5)) and its `PAGEMAP_SCAN` (6.7).
//!
//! One word a page tells ([`Pagemap::pages`]); a scan tells only of pages that one looks for, as ranges, and can write-protect
//! them in the same step, so that what was written since the last scan is told once, exactly
//! ([`userfault::Features::WP_ASYNC`](crate::userfault::Features::WP_ASYNC)). Nothing is touched by either. Addresses are bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use bitflags::bitflags;
use linux_raw_sys::general as raw;
use rustix::ioctl::{Opcode, opcode};

const SCAN: Opcode = opcode::read_write::<raw::pm_scan_arg>(b'f', 16);
/// How many ranges are told at once.
const AT_ONCE: usize = 512;

bitflags! {
    /// What a page is (`PAGE_IS_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Categories: u64 {
        /// Its writes are followed without waiting (`WP_ASYNC`).
        const FOLLOWED = raw::PAGE_IS_WPALLOWED as u64;
        /// It is not write-protected: it was written since.
        const WRITTEN = raw::PAGE_IS_WRITTEN as u64;
        /// It is of a file, or of shared memory.
        const FILE = raw::PAGE_IS_FILE as u64;
        /// It is in memory.
        const PRESENT = raw::PAGE_IS_PRESENT as u64;
        /// It is in swap.
        const SWAPPED = raw::PAGE_IS_SWAPPED as u64;
        /// It is the one page of zeros that stands for all that were only read.
        const ZERO = raw::PAGE_IS_PFNZERO as u64;
        /// It is part of a huge page.
        const HUGE = raw::PAGE_IS_HUGE as u64;
        /// It was written since soft-dirty bits were cleared, where the kernel has them.
        const SOFT_DIRTY = raw::PAGE_IS_SOFT_DIRTY as u64;
        /// It is a guard (`MADV_GUARD_INSTALL`).
        const GUARD = raw::PAGE_IS_GUARD as u64;
        /// What later kernels tell.
        const _ = !0;
    }
}

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Pages that are all of this,
    pub all: Categories,
    /// and, unless it is empty, one of this at least,
    pub any: Categories,
    /// and none of this.
    pub none: Categories,
    /// What is told of them; ranges are joined that are alike in this.
    pub tell: Categories,
    /// At most so many pages; 0: all.
    pub most: u64,
    /// Write-protects what is found, in the same step. The memory must be followed, or it is passed over.
    pub protect: bool,
    /// Fails with `EPERM` where memory is not followed.
    pub must_follow: bool,
}

/// Pages that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Their addresses.
    pub range: Range<u64>,
    /// What they are, of what was to be told.
    pub categories: Categories,
}

/// One page, as its word tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(u64);

impl Page {
    /// Whether it is in memory.
    pub fn present(self) -> bool {
        self.bit(63)
    }

    /// Whether it is in swap.
    pub fn swapped(self) -> bool {
        self.bit(62)
    }

    /// Whether it is of a file, or of shared memory (3.5).
    pub fn file(self) -> bool {
        self.bit(61)
    }

    /// Whether it is mapped here only (4.2).
    pub fn exclusive(self) -> bool {
        self.bit(56)
    }

    /// Whether it is write-protected by `userfaultfd` (5.13).
    pub fn protected(self) -> bool {
        self.bit(57)
    }

    fn bit(self, bit: u32) -> bool {
        self.0 & (1 << bit) != 0
    }
}

/// The pages of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Those of a process.
    ///
    /// # Errors
    /// `ENOENT`: no such process. `EACCES`, `EPERM`: the caller may not trace it.
    pub fn of(process: u32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{process}/pagemap"))? })
    }

    /// The pages of a range, one after the other; fewer where the process has no such addresses.
    ///
    /// # Errors
    /// What reading says.
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

    /// Adds to `into` what is found in a range, in order, up to 512 regions; where it stopped: at the end, or where one goes on.
    ///
    /// # Errors
    /// `ENOTTY`: a kernel before 6.7. `EINVAL`: not whole pages, or unknown categories. `EPERM`: [`Scan::must_follow`].
    pub fn scan(&self, range: Range<u64>, scan: &Scan, into: &mut Vec<Region>) -> io::Result<u64> {
        let none = raw::page_region { start: 0, end: 0, categories: 0 };
        let mut found = vec![none; AT_ONCE];
        let mut flags = 0;
        if scan.protect {
            flags |= raw::PM_SCAN_WP_MATCHING;
        }
        if scan.must_follow {
            flags |= raw::PM_SCAN_CHECK_WPASYNC;
        }
        let mut asked = raw::pm_scan_arg {
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
        // SAFETY: the structure is that of the request, and tells the place and number of `found`, which the kernel fills.
        // Write protection of followed memory delays writes, and changes none.
        let count = unsafe { crate::ioctl::ask(self.file.as_fd(), SCAN, &mut asked) }?;
        into.extend(found[..count as usize].iter().map(|one| Region {
            range: one.start..one.end,
            categories: Categories::from_bits_retain(one.categories),
        }));
        Ok(asked.walk_end)
    }
}
