//! Rings of bytes between two processes, in a memfd: each is written by one side and read by the other.
//!
//! # Shape
//!
//! A memfd holds some rings. Each begins with a page of four words, on a cache line each, then come [`CAPACITY`] bytes. The words are how
//! many bytes have ever been written, and read, and a wakeup word (`crate::wakeup`) for each side. Who finds no byte, or no room, looks out for it for a moment
//! ([`crate::adaptive_spin`]), then sleeps on its wakeup word.
//!
//! # What is believed of the other side
//!
//! Nothing. Each side knows its own count and never reads it back; the other's count is believed only if it leaves between 0 and
//! [`CAPACITY`] bytes in the ring, and what is at the place of a byte is never more than that byte. A side that changes bytes that it has
//! already given, or the bells, harms those bytes and delays the other one by `GUARD` at most. The memfd can be cut by nobody.
//!
//! # Orders
//!
//! The bytes are copied in before the writer's count is stored (`Release`), and copied out after it has been loaded (`Acquire`); the reader's count
//! is stored (`Release`) after they have been copied out, and loaded (`Acquire`) before their place is written again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::adaptive_spin::AdaptiveSpin;
use crate::memfd::{self, Pages, Seals};
use crate::memory::SharedMapping;
use crate::{futex, wakeup};

/// Bytes that a ring holds. A power of two, so that counts can overflow.
pub const CAPACITY: usize = 256 << 10;
/// Bytes before those of a ring.
const HEAD: usize = 4096;
/// Where the words are, from the beginning of a ring.
const WRITTEN: usize = 0;
const READ: usize = 64;
const READER_WAKEUP: usize = 128;
const WRITER_WAKEUP: usize = 192;
/// The longest sleep: a wakeup that the other side has broken is not waited for any longer.
const GUARD: Duration = Duration::from_secs(1);

/// Some rings, and whether the other side is gone.
#[derive(Debug)]
pub struct Rings {
    mapping: SharedMapping,
    count: usize,
    gone: AtomicBool,
}

impl Rings {
    /// Makes so many, empty, in a memfd that can be given to another process.
    ///
    /// # Errors
    /// What the system says; `EINVAL` for none.
    pub fn new(count: usize) -> io::Result<Arc<Self>> {
        let fd = memfd::create(c"refit-rings", length(count)? as u64, Pages::Base)?;
        memfd::seal(&fd, Seals::SHRINK | Seals::GROW | Seals::SEAL)?;
        Self::open(fd, count)
    }

    /// Maps the rings that another process has made.
    ///
    /// # Errors
    /// `InvalidData`: it could be made shorter, or is not as long as so many rings. What the system says.
    pub fn open(fd: OwnedFd, count: usize) -> io::Result<Arc<Self>> {
        let length = length(count)?;
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        let size = rustix::fs::fstat(&fd)?.st_size;
        if !seals.contains(Seals::SHRINK) || u64::try_from(size) != Ok(length as u64) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mapping = SharedMapping::of(fd, length)?;
        Ok(Arc::new(Self { mapping, count, gone: AtomicBool::new(false) }))
    }

    /// The other side is gone: readers come to an end when they have read all that there is, writers fail.
    pub fn end(&self) {
        // Ordered by the fence in `ring`; partner: `gone` within `sleep`.
        self.gone.store(true, Ordering::Relaxed);
        for ring in 0..self.count {
            for which in [READER_WAKEUP, WRITER_WAKEUP] {
                // The other side is not there any more, or wakes for nothing.
                wakeup::ring(self.word(ring, which), futex::wake);
            }
        }
    }

    /// The only one on this side that writes to this ring.
    ///
    /// # Panics
    /// When there are not so many rings.
    pub fn writer(self: &Arc<Self>, ring: usize) -> Writer {
        assert!(ring < self.count, "there is no ring {ring}");
        Writer { rings: Arc::clone(self), ring, written: 0, spin: AdaptiveSpin::default() }
    }

    /// The only one on this side that reads from this ring.
    ///
    /// # Panics
    /// When there are not so many rings.
    pub fn reader(self: &Arc<Self>, ring: usize) -> Reader {
        assert!(ring < self.count, "there is no ring {ring}");
        Reader { rings: Arc::clone(self), ring, read: 0, spin: AdaptiveSpin::default() }
    }

    fn word(&self, ring: usize, which: usize) -> &AtomicU64 {
        let place = self.mapping.place(ring * (HEAD + CAPACITY) + which, size_of::<AtomicU64>());
        // SAFETY: `place` lies in the mapping, which lives as long as `self` and is page-aligned, as `which` and `HEAD` and
        // `CAPACITY` keep it for a word; these bytes are never copied, only accessed as atomics, here and in the other process.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// How many bytes there are in a ring, of which the one count is one's own.
    fn held(written: u64, read: u64) -> io::Result<usize> {
        match usize::try_from(written.wrapping_sub(read)) {
            Ok(held) if held <= CAPACITY => Ok(held),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a ring's counts are impossible")),
        }
    }

    /// Where the byte of this count is, and how many follow it without a break.
    fn at(ring: usize, count: u64) -> (usize, usize) {
        let within = (count % CAPACITY as u64) as usize;
        (ring * (HEAD + CAPACITY) + HEAD + within, CAPACITY - within)
    }

    /// Waits until there may be what `ready` looks for.
    fn wait(&self, ring: usize, which: usize, spin: &AdaptiveSpin, ready: impl Fn() -> bool) {
        if spin.wait_for(&ready) {
            return;
        }
        let wait = |word: &AtomicU64| futex::wait(word, wakeup::ASLEEP, GUARD);
        wakeup::sleep(self.word(ring, which), || ready() || self.gone(), wait);
    }
}

impl AsFd for Rings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mapping.as_fd()
    }
}

fn length(count: usize) -> io::Result<usize> {
    count.checked_mul(HEAD + CAPACITY).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Puts bytes into a ring.
#[derive(Debug)]
pub struct Writer {
    rings: Arc<Rings>,
    ring: usize,
    written: u64,
    spin: AdaptiveSpin,
}

impl Writer {
    /// Writes some of these bytes, at least one if there are any; how many. Waits for room, or not.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room, and it does not wait. `BrokenPipe`: the other side is gone. `InvalidData`: it counts
    /// as nobody can.
    pub fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        let read = self.rings.word(self.ring, READ);
        loop {
            if self.rings.gone() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            // Partner: the reader's store of its count.
            let held = Rings::held(self.written, read.load(Ordering::Acquire))?;
            let count = bytes.len().min(CAPACITY - held);
            if count > 0 || bytes.is_empty() {
                self.put(&bytes[..count]);
                return Ok(count);
            }
            if !wait {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let full = self.written.wrapping_sub(CAPACITY as u64);
            let room = || read.load(Ordering::Acquire) != full;
            self.rings.wait(self.ring, WRITER_WAKEUP, &self.spin, room);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let (at, run) = Rings::at(self.ring, self.written);
        let (first, second) = bytes.split_at(bytes.len().min(run));
        self.rings.mapping.write_at(at, first);
        self.rings.mapping.write_at(Rings::at(self.ring, 0).0, second);
        self.written = self.written.wrapping_add(bytes.len() as u64);
        // Partner: the reader's load of this count.
        self.rings.word(self.ring, WRITTEN).store(self.written, Ordering::Release);
        wakeup::ring(self.rings.word(self.ring, READER_WAKEUP), futex::wake);
    }
}

/// Takes bytes out of a ring.
#[derive(Debug)]
pub struct Reader {
    rings: Arc<Rings>,
    ring: usize,
    read: u64,
    spin: AdaptiveSpin,
}

impl io::Read for Reader {
    /// Waits for bytes; there are none when the other side is gone. `InvalidData`: it counts as nobody can.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let written = self.rings.word(self.ring, WRITTEN);
        loop {
            // Before the count: what was written before the end is read.
            let gone = self.rings.gone();
            // Partner: the writer's store of its count.
            let held = Rings::held(written.load(Ordering::Acquire), self.read)?;
            let count = into.len().min(held);
            if count > 0 || into.is_empty() || gone {
                self.take(&mut into[..count]);
                return Ok(count);
            }
            let some = || written.load(Ordering::Acquire) != self.read;
            self.rings.wait(self.ring, READER_WAKEUP, &self.spin, some);
        }
    }
}

impl Reader {
    fn take(&mut self, into: &mut [u8]) {
        let (at, run) = Rings::at(self.ring, self.read);
        let (first, second) = into.split_at_mut(into.len().min(run));
        self.rings.mapping.read_at(at, first);
        self.rings.mapping.read_at(Rings::at(self.ring, 0).0, second);
        self.read = self.read.wrapping_add(into.len() as u64);
        // Partner: the writer's load of this count.
        self.rings.word(self.ring, READ).store(self.read, Ordering::Release);
        wakeup::ring(self.rings.word(self.ring, WRITER_WAKEUP), futex::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::thread;

    /// The same rings, mapped twice, as two processes have them.
    fn two() -> (Arc<Rings>, Arc<Rings>) {
        let one = Rings::new(2).unwrap();
        let fd = one.as_fd().try_clone_to_owned().unwrap();
        let other = Rings::open(fd, 2).unwrap();
        (one, other)
    }

    #[test]
    fn what_goes_in_comes_out_in_order_over_many_rounds_and_sleeps() {
        let (one, other) = two();
        let mut writer = one.writer(1);
        let writes = thread::spawn(move || {
            for count in 0..200_000_u64 {
                // Of all lengths; now and then both sides have time to fall asleep.
                let bytes = vec![count as u8; 1 + (count % 97) as usize];
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    rest = &rest[writer.write(rest, true).unwrap()..];
                }
                if count % 4096 == 0 {
                    thread::sleep(Duration::from_micros(300));
                }
            }
            one.end();
        });
        let mut reader = other.reader(1);
        let mut bytes = [0; 97];
        for count in 0..200_000_u64 {
            let bytes = &mut bytes[..1 + (count % 97) as usize];
            reader.read_exact(bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == count as u8));
        }
        writes.join().unwrap();
        other.end();
        assert_eq!(reader.read(&mut bytes).unwrap(), 0);
    }

    #[test]
    fn one_byte_to_and_fro_wakes_whoever_sleeps() {
        let (one, other) = two();
        let answers = thread::spawn(move || {
            let (mut reader, mut writer) = (other.reader(0), other.writer(1));
            let mut byte = [0];
            while reader.read(&mut byte).unwrap() == 1 {
                assert_eq!(writer.write(&byte, true).unwrap(), 1);
                if byte[0] == u8::MAX {
                    return;
                }
            }
        });
        let (mut writer, mut reader) = (one.writer(0), one.reader(1));
        for round in 0..20_000_u32 {
            let byte = (round % 200) as u8;
            writer.write(&[byte], true).unwrap();
            let mut back = [0];
            assert_eq!((reader.read(&mut back).unwrap(), back[0]), (1, byte));
        }
        writer.write(&[u8::MAX], true).unwrap();
        answers.join().unwrap();
    }

    #[test]
    fn a_full_ring_takes_no_more_and_the_end_wakes_both_sides() {
        let (one, other) = two();
        let mut writer = one.writer(0);
        assert_eq!(writer.write(&vec![1; CAPACITY + 9], false).unwrap(), CAPACITY);
        let full = writer.write(&[1], false).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let waits = thread::spawn(move || writer.write(&[1], true).unwrap_err().kind());
        let mut reader = one.reader(1);
        let reads = thread::spawn(move || reader.read(&mut [0]).unwrap());
        one.end();
        assert_eq!(waits.join().unwrap(), io::ErrorKind::BrokenPipe);
        assert_eq!(reads.join().unwrap(), 0);
        drop(other);
    }

    #[test]
    fn impossible_counts_and_memory_that_could_be_cut_are_refused() {
        let (one, other) = two();
        other.word(0, WRITTEN).store(CAPACITY as u64 + 1, Ordering::Release);
        let refused = one.reader(0).read(&mut [0]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        other.word(0, READ).store(1, Ordering::Release);
        let refused = one.writer(0).write(&[0], true).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let loose = memfd::create(c"refit-test", length(1).unwrap() as u64, Pages::Base).unwrap();
        assert!(Rings::open(loose, 1).is_err());
        let fd = one.as_fd().try_clone_to_owned().unwrap();
        assert!(Rings::open(fd, 3).is_err());
        assert!(Rings::new(0).is_err() && Rings::new(usize::MAX).is_err());
    }
}
