//! Resolving faults. Each request works from the beginning of its range on, and can stop short: [`Short`] says how far
//! it came and why. Who stopped for [`Cause::Again`] reads messages and asks for the rest.

use std::fmt;
use std::io;
use std::ops::Range;

use bitflags::bitflags;
use linux_raw_sys::general as raw;
use rustix::ioctl::{Opcode, opcode};

use super::{GROUP, Userfault, span};
use crate::agent::Call;
use crate::memory::SharedMapping;

/// Not among the constants that are generated from the kernel's headers: `UFFDIO_CONTINUE_MODE_*`,
/// `UFFDIO_WRITEPROTECT_MODE_*`, `UFFDIO_POISON_MODE_DONTWAKE`.
const CONTINUE_DONT_WAKE: u32 = 1 << 0;
const CONTINUE_PROTECTED: u32 = 1 << 1;
const WRITE_PROTECT: u32 = 1 << 0;
const WRITE_PROTECT_DONT_WAKE: u32 = 1 << 1;
const POISON_DONT_WAKE: u32 = 1 << 0;

bitflags! {
    /// How pages are copied in.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CopyModes: u64 {
        /// Who waits goes on waiting until [`Userfault::wake`].
        const DONT_WAKE = raw::UFFDIO_COPY_MODE_DONTWAKE as u64;
        /// The pages are write-protected from the beginning.
        const WRITE_PROTECT = raw::UFFDIO_COPY_MODE_WP as u64;
    }

    /// How pages are moved.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MoveModes: u64 {
        /// Who waits goes on waiting until [`Userfault::wake`].
        const DONT_WAKE = 1 << 0;
        /// Pages that are not there are left out; without it they are `ENOENT`.
        const ALLOW_HOLES = 1 << 1;
    }
}

/// Whether threads that wait for the pages go on at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// They do.
    #[default]
    Now,
    /// They wait for [`Userfault::wake`].
    Later,
}

/// A request has not been done to its end.
#[derive(Debug)]
pub struct Short {
    /// How many bytes from the beginning on are done.
    pub done: u64,
    /// What stood in the way of the next one.
    pub error: io::Error,
}

/// Why a request stopped, as far as one acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `EAGAIN`: some are done, or the process changes its memory; ask for the rest.
    Again,
    /// `EEXIST`: there is a page already; nothing is to be done for it but [`Userfault::wake`].
    Present,
    /// `ENOENT`: the range is not registered any more, or not all of it.
    Unregistered,
    /// `ESRCH`: the process has ended.
    Gone,
    /// Anything else: `EFAULT` (nothing in the file for a minor fault), `EINVAL`, `ENOMEM`, `EBUSY` (a page that cannot be moved).
    Other,
}

impl Short {
    /// Why it stopped.
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
    /// Puts pages with these bytes, whole pages of them, at `to`, where none are.
    ///
    /// # Errors
    /// [`Short`]; `EFAULT`: `from` lies itself where nobody resolves faults.
    pub fn copy(&self, to: u64, from: &[u8], modes: CopyModes) -> Result<(), Short> {
        self.copy_address(to, from.as_ptr() as u64, from.len() as u64, modes)
    }

    /// As [`copy`](Self::copy), out of a mapping.
    ///
    /// # Errors
    /// [`Short`].
    ///
    /// # Panics
    /// When `range` lies beyond the mapping.
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
        // SAFETY: the structure is that of the request; it changes registered memory only.
        let answer = unsafe { self.ask(request::<raw::uffdio_copy>(raw::_UFFDIO_COPY), &mut copy) };
        done(answer, copy.copy)
    }

    /// Puts pages of zeros where none are. Not for huge pages.
    ///
    /// # Errors
    /// [`Short`].
    pub fn zero(&self, range: Range<u64>, wake: Wake) -> Result<(), Short> {
        let mode = wake.bit(raw::UFFDIO_ZEROPAGE_MODE_DONTWAKE);
        let mut zero = raw::uffdio_zeropage { range: span(&range), mode, zeropage: 0 };
        let request = request::<raw::uffdio_zeropage>(raw::_UFFDIO_ZEROPAGE);
        // SAFETY: the structure is that of the request; it changes registered memory only.
        let answer = unsafe { self.ask(request, &mut zero) };
        done(answer, zero.zeropage)
    }

    /// Lets the process have the pages that its file holds: resolves minor faults. With `protect`, write-protected (6.4).
    ///
    /// # Errors
    /// [`Short`]; `EFAULT`: the file holds no such page.
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
        // SAFETY: the structure is that of the request; it changes registered memory only.
        let answer = unsafe { self.ask(request, &mut with) };
        done(answer, with.mapped)
    }

    /// Write-protects the pages of a range: who writes to one waits.
    ///
    /// # Errors
    /// `ENOENT`: not registered for it. `EAGAIN`: the process changes its memory, ask again. `ESRCH`: it has ended.
    pub fn protect(&self, range: Range<u64>) -> io::Result<()> {
        self.write_protection(&range, u64::from(WRITE_PROTECT))
    }

    /// Lets the pages of a range be written to: resolves faults of write protection.
    ///
    /// # Errors
    /// As [`protect`](Self::protect).
    pub fn unprotect(&self, range: Range<u64>, wake: Wake) -> io::Result<()> {
        self.write_protection(&range, wake.bit(WRITE_PROTECT_DONT_WAKE))
    }

    fn write_protection(&self, range: &Range<u64>, mode: u64) -> io::Result<()> {
        let mut protect = raw::uffdio_writeprotect { range: span(range), mode };
        let request = request::<raw::uffdio_writeprotect>(raw::_UFFDIO_WRITEPROTECT);
        // SAFETY: the structure is that of the request; it concerns registered memory only.
        unsafe { self.ask(request, &mut protect) }
    }

    /// Whoever touches these pages, none of which is there, gets `SIGBUS`, or `EFAULT` in a system call (6.6).
    ///
    /// # Errors
    /// [`Short`].
    pub fn poison(&self, range: Range<u64>, wake: Wake) -> Result<(), Short> {
        let mode = wake.bit(POISON_DONT_WAKE);
        let mut poison = raw::uffdio_poison { range: span(&range), mode, updated: 0 };
        let request = request::<raw::uffdio_poison>(raw::_UFFDIO_POISON);
        // SAFETY: the structure is that of the request; it changes registered memory only.
        let answer = unsafe { self.ask(request, &mut poison) };
        done(answer, poison.updated)
    }

    /// Moves pages of `length` bytes of anonymous private memory, without a copy (6.8): `from` has none of them
    /// afterwards. Only a thread of the process itself can (`EINVAL`).
    ///
    /// # Errors
    /// [`Short`]; `EBUSY`: a page is shared with a child or pinned.
    ///
    /// # Safety
    /// Nothing in this process holds a reference to the memory at `from`, or counts on its contents.
    pub unsafe fn move_pages(
        &self,
        to: u64,
        from: u64,
        length: u64,
        modes: MoveModes,
    ) -> Result<(), Short> {
        let mut pages =
            raw::uffdio_move { dst: to, src: from, len: length, mode: modes.bits(), move_: 0 };
        // SAFETY: the structure is that of the request; `from` is the caller's duty.
        let answer =
            unsafe { self.ask(request::<raw::uffdio_move>(raw::_UFFDIO_MOVE), &mut pages) };
        done(answer, pages.move_)
    }

    /// Lets threads that wait for pages of a range look again.
    ///
    /// # Errors
    /// `EINVAL`: not whole pages.
    pub fn wake(&self, range: Range<u64>) -> io::Result<()> {
        let request = opcode::read::<raw::uffdio_range>(GROUP, raw::_UFFDIO_WAKE as u8);
        // SAFETY: the structure is that of the request; no memory is changed.
        unsafe { self.ask(request, &mut span(&range)) }
    }
}

/// Bytes of what [`move_call`] puts beside its call.
pub const MOVE_LENGTH: usize = size_of::<raw::uffdio_move>();

/// As [`Userfault::move_pages`], for a task that shares the process's memory to make: the call, and what it reads and writes, which has
/// to stand at `argument` there. `userfault` is the descriptor's number there.
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

/// How many bytes the call has moved, by what it has left where it read.
pub fn moved(bytes: &[u8]) -> u64 {
    let word = bytes.get(MOVE_LENGTH - 8..MOVE_LENGTH).and_then(|word| word.try_into().ok());
    // Where nothing was moved the field holds the error.
    word.map_or(0, |word| u64::try_from(i64::from_ne_bytes(word)).unwrap_or(0))
}

impl Wake {
    /// `bit` says not to wake.
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

/// The kernel tells bytes, or an error that it returns as well.
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
        // Where nothing was done the field holds the error.
        assert_eq!(done(error(), -11).expect_err("an error").done, 0);
    }
}
