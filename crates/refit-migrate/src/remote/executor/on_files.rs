//! Calls on files that the executor makes itself ([`files`](crate::remote::files) argues why their
//! results are those of the shadow).

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use refit_sys::foreign::{gather, scatter};
use refit_sys::pidfd;
use rustix::fs::SeekFrom;

use crate::remote::executor::residency::{ExecutorThread, Residency};
use crate::remote::files::MAX_LENGTH;
use crate::remote::files::call::{FileCall, Operation, first, image};

/// The number of times that a neighbour may have the memory invalidated before the call is left to
/// the shadow.
const MAX_RETRIES: usize = 16;

impl ExecutorThread<'_> {
    /// Makes a call on a file here. Returns its result, or `None` if the call was not made.
    pub(super) fn on_file(
        &mut self,
        residency: &Residency,
        number: u64,
        arguments: &[u64; 6],
    ) -> Option<u64> {
        // Where pages move, touching memory may wait for one, and other hosts have other files.
        let call = residency.slot.and_then(|_| FileCall::of(number, arguments));
        let made = call.and_then(|call| self.make(residency, &call));
        if made.is_none() {
            self.files.on_shadow_call(number);
        }
        made
    }

    fn make(&mut self, residency: &Residency, call: &FileCall) -> Option<u64> {
        let writes = matches!(call.operation, Operation::Write(_));
        let (file, equivalent) = self.files.open(call.file, writes)?;
        let made = if equivalent { self.make_on(residency, call, &file) } else { None };
        // The kernel reports this error once, so it must become the result of the call.
        match pidfd::close(file) {
            Ok(()) => made,
            Err(error) => Some(i64::from(-error.raw_os_error()?).cast_unsigned()),
        }
    }

    fn make_on(&mut self, residency: &Residency, call: &FileCall, file: &OwnedFd) -> Option<u64> {
        let task = self.tracee.thread();
        let fetch = |place: Range<u64>, into: &mut [u8]| {
            let length = into.len();
            gather(task, &[place], into).is_ok_and(|count| count == length)
        };
        if let Operation::Seek(to) = call.operation {
            return rustix::fs::seek(file, to).ok();
        }
        let places = call.memory.places(fetch)?;
        let lengths = places.iter().map(|place| place.end - place.start);
        let length = lengths.fold(0, u64::saturating_add);
        // A call on no bytes at all has checks of its own in the kernel.
        let length =
            usize::try_from(length).ok().filter(|length| (1..=MAX_LENGTH).contains(length))?;
        self.buffer.resize(self.buffer.len().max(length), 0);
        match call.operation {
            Operation::Read(at) => self.read(residency, file, at, &places, length),
            Operation::Write(at) => self.write(file, at, &places, length),
            Operation::Status(name) => {
                let mut empty = [0];
                if name.is_some_and(|at| !fetch(at..at.saturating_add(1), &mut empty)) {
                    return None;
                }
                (empty == [0] && self.missing(&places).is_none()).then_some(())?;
                let status = rustix::fs::fstat(file).ok()?;
                self.buffer[..length].copy_from_slice(&image(&status));
                self.deliver(residency, &places, length).then_some(0)
            }
            Operation::Seek(_) => None,
        }
    }

    fn read(
        &mut self,
        residency: &Residency,
        file: &OwnedFd,
        at: Option<u64>,
        places: &[Range<u64>],
        length: usize,
    ) -> Option<u64> {
        if self.missing(places).is_some() {
            return None;
        }
        let into = &mut self.buffer[..length];
        let count = match at {
            Some(at) => rustix::io::pread(file, into, at),
            None => rustix::io::read(file, into),
        };
        let count = count.ok()?;
        let length = count as u64;
        if self.deliver(residency, &first(places, length), count) {
            return Some(length);
        }
        if at.is_none() {
            // The position of a file that can be read like this can be set.
            let _ = rustix::fs::seek(file, SeekFrom::Current(-length.cast_signed()));
        }
        None
    }

    fn write(
        &mut self,
        file: &OwnedFd,
        at: Option<u64>,
        places: &[Range<u64>],
        length: usize,
    ) -> Option<u64> {
        let from = &mut self.buffer[..length];
        let fetched = gather(self.tracee.thread(), places, from);
        if !fetched.is_ok_and(|count| count == length) || !self.files.may_grow() {
            return None;
        }
        let written = match at {
            Some(at) => rustix::io::pwrite(file, from, at),
            None => rustix::io::write(file, from),
        };
        match written.map_err(io::Error::from) {
            Ok(count) => Some(count as u64),
            Err(error) => match error.raw_os_error()? {
                // Nothing was written, and the shadow may have the permission.
                libc::EACCES | libc::EPERM | libc::EINTR => None,
                other => Some(i64::from(-other).cast_unsigned()),
            },
        }
    }

    /// Returns the first address of these places that is not known to be mapped as writable frames.
    fn missing(&self, places: &[Range<u64>]) -> Option<u64> {
        let writable = libc::PROT_WRITE.cast_unsigned();
        let known = self.replica.mapped.known();
        places.iter().find_map(|place| {
            let mut at = place.start;
            while at < place.end {
                match known.at(at) {
                    Some((range, access)) if access & writable != 0 => at = range.end,
                    _ => return Some(at),
                }
            }
            None
        })
    }

    /// Copies this many bytes of the buffer into the thread's memory. Returns whether all were
    /// copied.
    fn deliver(&mut self, residency: &Residency, places: &[Range<u64>], length: usize) -> bool {
        let task = self.tracee.thread();
        for _ in 0..MAX_RETRIES {
            let replica = self.replica;
            let copied = replica.unchanged(|| match self.missing(places) {
                None => Ok(scatter(task, &self.buffer[..length], places)),
                Some(address) => Err(address),
            });
            match copied {
                Ok(copied) => return length == 0 || copied.is_ok_and(|count| count == length),
                Err(address) if matches!(self.retrieve(residency, address), Ok(true)) => {}
                Err(_) => return false,
            }
        }
        false
    }
}
