//! Resolving faults. Each request proceeds from the beginning of its range, and may stop short:
//! [`Short`] says how far it came and why. After [`Cause::Again`] the caller reads messages and
//! repeats the request for the rest.

use std::fmt;
use std::io;
use std::ops::Range;

use bitflags::bitflags;
use linux_raw_sys::general as raw;
use rustix::ioctl::{Opcode, opcode};

use super::{GROUP, Userfault, span};
use crate::agent::Call;
use crate::memory::SharedMapping;

/// Constants that are not generated from the kernel's headers: `UFFDIO_CONTINUE_MODE_*`,
/// `UFFDIO_WRITEPROTECT_MODE_*`, `UFFDIO_POISON_MODE_DONTWAKE`.
const CONTINUE_DONT_WAKE: u32 = 1 << 0;
const CONTINUE_PROTECTED: u32 = 1 << 1;
const WRITE_PROTECT: u32 = 1 << 0;
const WRITE_PROTECT_DONT_WAKE: u32 = 1 << 1;
const POISON_DONT_WAKE: u32 = 1 << 0;

bitflags! {
    /// Flags of copying pages in.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CopyModes: u64 {
        /// Waiting threads stay asleep until [`Userfault::wake`].
        const DONT_WAKE = raw::UFFDIO_COPY_MODE_DONTWAKE as u64;
        /// The pages are write-protected from the beginning.
        const WRITE_PROTECT = raw::UFFDIO_COPY_MODE_WP as u64;
    }

    /// Flags of moving pages.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MoveModes: u64 {
        /// Waiting threads stay asleep until [`Userfault::wake`].
        const DONT_WAKE = 1 << 0;
        /// Missing source pages are skipped; without this flag they fail with `ENOENT`.
        const ALLOW_HOLES = 1 << 1;
    }
}

/// Whether threads that wait for the pages continue at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// They continue at once.
    #[default]
    Now,
    /// They stay asleep until [`Userfault::wake`].
    Later,
}

/// The error that a request was not completed.
#[derive(Debug)]
pub struct Short {
    /// The number of bytes, from the beginning, that are done.
    pub done: u64,
    /// The error that stopped it.
    pub error: io::Error,
}

/// The reason that stopped a request, as far as callers distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `EAGAIN`: some are done, or the process is changing its memory; repeat the request for the
    /// rest.
    Again,
    /// `EEXIST`: the page is present already; it needs nothing but [`Userfault::wake`].
    Present,
    /// `ENOENT`: the range, or part of it, is not registered any more.
    Unregistered,
    /// `ESRCH`: the process has ended.
    Gone,
    /// Any other error: `EFAULT` (a minor fault without a page in the file), `EINVAL`, `ENOMEM`,
    /// `EBUSY` (a page that cannot be moved).
    Other,
}

impl Short {
    /// Returns the reason.
    pub fn cause(&self) -> Cause {
        match self.error.raw_os_error() {
            Some(libc::EAGAIN) => Cause::Again,
            Some(libc::EEXIST) => Cause::Present,
            Some(libc::ENOENT) => Cause::Unregistered,
            Some(libc::ESRCH) => Cause::Gone,
            _ => Cause::Other,
        }
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pages were not all resolved ({} bytes were): {}", self.done, self.error)
    }
}

impl std::error::Error for Short {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl Userfault {
    /// Puts pages with these bytes, a whole number of pages, at `to`, where pages are missing.
    ///
    /// # Errors
    /// [`Short`]; `EFAULT`: `from` itself is in memory whose faults nobody resolves.
    pub fn copy(&self, to: u64, from: &[u8], modes: CopyModes) -> Result<(), Short> {
        self.copy_address(to, from.as_ptr() as u64, from.len() as u64, modes)
    }

    /// As [`copy`](Self::copy), from a mapping.
    ///
    /// # Errors
    /// [`Short`].
    ///
    /// # Panics
    /// If `range` lies beyond the mapping.
    pub fn copy_from(
        &self,
        to: u64,
        from: &SharedMapping,
        range: Range<usize>,
        modes: CopyModes,
    ) -> Result<(), Short> {
        let address = from.place(range.start, range.len()) as u64;
        self.copy_address(to, address, range.len() as u64, modes)
    }

    fn copy_address(&self, to: u64, src: u64, len: u64, modes: CopyModes) -> Result<(), Short> {
        let mut copy = raw::uffdio_copy { dst: to, src, len, mode: modes.bits(), copy: 0 };
        // SAFETY: the structure is that of the request, which changes registered memory only.
        let answer = unsafe { self.ask(request::<raw::uffdio_copy>(raw::_UFFDIO_COPY), &mut copy) };
        done(answer, copy.copy)
    }

    /// Puts pages of zeros where pages are missing. Not for huge pages.
    ///
    /// # Errors
    /// [`Short`].
    pub fn zero(&self, range: Range<u64>, wake: Wake) -> Result<(), Short> {
        let mode = wake.bit(raw::UFFDIO_ZEROPAGE_MODE_DONTWAKE);
        let mut zero = raw::uffdio_zeropage { range: span(&range), mode, zeropage: 0 };
        let request = request::<raw::uffdio_zeropage>(raw::_UFFDIO_ZEROPAGE);
        // SAFETY: the structure is that of the request, which changes registered memory only.
        let answer = unsafe { self.ask(request, &mut zero) };
        done(answer, zero.zeropage)
    }

    /// Resolves minor faults: maps the pages that the file holds. With `protect`, they are
    /// write-protected (6.4).
    ///
    /// # Errors
    /// [`Short`]; `EFAULT`: the file has no such page.
    pub fn continue_minor(
        &self,
        range: Range<u64>,
        protect: bool,
        wake: Wake,
    ) -> Result<(), Short> {
        let protect = if protect { u64::from(CONTINUE_PROTECTED) } else { 0 };
        let mode = wake.bit(CONTINUE_DONT_WAKE) | protect;
        let mut with = raw::uffdio_continue { range: span(&range), mode, mapped: 0 };
        let request = request::<raw::uffdio_continue>(raw::_UFFDIO_CONTINUE);
        // SAFETY: the structure is that of the request, which changes registered memory only.
        let answer = unsafe { self.ask(request, &mut with) };
        done(answer, with.mapped)
    }

    /// Write-protects the pages of a range: a thread that writes to one waits.
    ///
    /// # Errors
    /// `ENOENT`: the range is not registered for it. `EAGAIN`: the process is changing its memory;
    /// try again. `ESRCH`: the process has ended.
    pub fn protect(&self, range: Range<u64>) -> io::Result<()> {
        self.write_protection(&range, u64::from(WRITE_PROTECT))
    }

    /// Removes the write protection of the pages of a range, which resolves its faults.
    ///
    /// # Errors
    /// As [`protect`](Self::protect).
    pub fn unprotect(&self, range: Range<u64>, wake: Wake) -> io::Result<()> {
        self.write_protection(&range, wake.bit(WRITE_PROTECT_DONT_WAKE))
    }

    fn write_protection(&self, range: &Range<u64>, mode: u64) -> io::Result<()> {
        let mut protect = raw::uffdio_writeprotect { range: span(range), mode };
        let request = request::<raw::uffdio_writeprotect>(raw::_UFFDIO_WRITEPROTECT);
        // SAFETY: the structure is that of the request, which concerns registered memory only.
        unsafe { self.ask(request, &mut protect) }
    }

    /// Poisons these pages, which have to be missing: an access raises `SIGBUS`, or fails with
    /// `EFAULT` in a system call (6.6).
    ///
    /// # Errors
    /// [`Short`].
    pub fn poison(&self, range: Range<u64>, wake: Wake) -> Result<(), Short> {
        let mode = wake.bit(POISON_DONT_WAKE);
        let mut poison = raw::uffdio_poison { range: span(&range), mode, updated: 0 };
        let request = request::<raw::uffdio_poison>(raw::_UFFDIO_POISON);
        // SAFETY: the structure is that of the request, which changes registered memory only.
        let answer = unsafe { self.ask(request, &mut poison) };
        done(answer, poison.updated)
    }

    /// Moves `length` bytes of pages of anonymous private memory from `from` to `to`, without a
    /// copy (6.8); the pages at `from` are missing afterwards. Only a thread of the process itself
    /// can do this (`EINVAL`).
    ///
    /// # Errors
    /// [`Short`]; `EBUSY`: a page is shared with a child, or pinned.
    ///
    /// # Safety
    /// Nothing in this process may hold a reference to the memory at `from`, or rely on its
    /// contents.
    pub unsafe fn move_pages(
        &self,
        to: u64,
        from: u64,
        length: u64,
        modes: MoveModes,
    ) -> Result<(), Short> {
        let mut pages =
            raw::uffdio_move { dst: to, src: from, len: length, mode: modes.bits(), move_: 0 };
        // SAFETY: the structure is that of the request; the caller answers for `from`.
        let answer =
            unsafe { self.ask(request::<raw::uffdio_move>(raw::_UFFDIO_MOVE), &mut pages) };
        done(answer, pages.move_)
    }

    /// Wakes threads that wait for pages of a range, which then look again.
    ///
    /// # Errors
    /// `EINVAL`: the range is not whole pages.
    pub fn wake(&self, range: Range<u64>) -> io::Result<()> {
        let request = opcode::read::<raw::uffdio_range>(GROUP, raw::_UFFDIO_WAKE as u8);
        // SAFETY: the structure is that of the request; no memory is changed.
        unsafe { self.ask(request, &mut span(&range)) }
    }
}

/// Bytes of the argument of [`move_call`].
pub const MOVE_LENGTH: usize = size_of::<raw::uffdio_move>();

/// As [`Userfault::move_pages`], for a task that shares the process's memory: returns the call that
/// the task has to make, and the call's argument, which has to be stored at `argument` in that
/// memory. `userfault` is the number of the descriptor in that task.
pub fn move_call(
    userfault: u32,
    argument: u64,
    to: u64,
    from: u64,
    length: u64,
    modes: MoveModes,
) -> (Call, [u8; MOVE_LENGTH]) {
    let request = request::<raw::uffdio_move>(raw::_UFFDIO_MOVE);
    let arguments = [u64::from(userfault), u64::from(request), argument, 0, 0, 0];
    let mut bytes = [0; MOVE_LENGTH];
    let words = [to, from, length, modes.bits(), 0];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    (Call { number: libc::SYS_ioctl, arguments }, bytes)
}

/// Returns the number of bytes that the call has moved, from its argument after the call.
pub fn moved(bytes: &[u8]) -> u64 {
    let word = bytes.get(MOVE_LENGTH - 8..MOVE_LENGTH).and_then(|word| word.try_into().ok());
    // If nothing was moved, the field holds the error.
    word.map_or(0, |word| u64::try_from(i64::from_ne_bytes(word)).unwrap_or(0))
}

impl Wake {
    /// Returns `bit`, the one that suppresses the wake-up, if that is wanted.
    fn bit(self, bit: u32) -> u64 {
        match self {
            Wake::Now => 0,
            Wake::Later => u64::from(bit),
        }
    }
}

const fn request<T>(number: u32) -> Opcode {
    opcode::read_write::<T>(GROUP, number as u8)
}

/// The kernel stores the number of bytes, or the error that it also returns.
fn done(answer: io::Result<()>, count: i64) -> Result<(), Short> {
    answer.map_err(|error| Short { done: u64::try_from(count).unwrap_or(0), error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::ioctl as known;

    #[test]
    fn requests_have_the_numbers_of_the_kernels_header() {
        let pairs = [
            (request::<raw::uffdio_copy>(raw::_UFFDIO_COPY), known::UFFDIO_COPY),
            (request::<raw::uffdio_zeropage>(raw::_UFFDIO_ZEROPAGE), known::UFFDIO_ZEROPAGE),
            (request::<raw::uffdio_continue>(raw::_UFFDIO_CONTINUE), known::UFFDIO_CONTINUE),
            (
                request::<raw::uffdio_writeprotect>(raw::_UFFDIO_WRITEPROTECT),
                known::UFFDIO_WRITEPROTECT,
            ),
            (opcode::read::<raw::uffdio_range>(GROUP, raw::_UFFDIO_WAKE as u8), known::UFFDIO_WAKE),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_call_for_another_is_laid_out_as_the_kernels_header_says() {
        let (call, bytes) = move_call(5, 0x9000, 0x1000, 0x2000, 0x3000, MoveModes::ALLOW_HOLES);
        assert_eq!(
            call.arguments[..3],
            [5, u64::from(request::<raw::uffdio_move>(raw::_UFFDIO_MOVE)), 0x9000]
        );
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(word(std::mem::offset_of!(raw::uffdio_move, dst)), 0x1000);
        assert_eq!(word(std::mem::offset_of!(raw::uffdio_move, src)), 0x2000);
        assert_eq!(word(std::mem::offset_of!(raw::uffdio_move, len)), 0x3000);
        assert_eq!(word(std::mem::offset_of!(raw::uffdio_move, mode)), 2);
        assert_eq!(std::mem::offset_of!(raw::uffdio_move, move_), MOVE_LENGTH - 8);
        assert_eq!(moved(&bytes), 0);
    }

    #[test]
    fn what_was_done_is_told_beside_what_was_not() {
        let error = || Err(io::Error::from_raw_os_error(libc::EAGAIN));
        let short = done(error(), 8192).expect_err("an error");
        assert_eq!((short.done, short.cause()), (8192, Cause::Again));
        // If nothing was done, the field holds the error.
        assert_eq!(done(error(), -11).expect_err("an error").done, 0);
    }
}
