//! Rings of bytes between two processes, in a memfd: one side writes each ring and the other reads
//! it.
//!
//! # Layout
//!
//! A memfd holds several rings. Each begins with a page of four words, each on a cache line of its
//! own, followed by [`CAPACITY`] bytes. The words are the number of bytes ever written, the number
//! ever read, and a wakeup word (`crate::wakeup`) for each side. A side that finds no byte, or no
//! room, spins for a moment ([`crate::adaptive_spin`]), then sleeps on its wakeup word.
//!
//! # Trust in the other side
//!
//! None. Each side keeps its own count and never reads it back. It accepts the other's count only
//! if that leaves between 0 and [`CAPACITY`] bytes in the ring, and any value of a byte is valid
//! data. A side that changes bytes that it has already passed on, or
//! the wakeup words, damages those bytes and delays the other side by at most `MAX_SLEEP`. Neither
//! side can shrink the memfd.
//!
//! # Memory orderings
//!
//! The writer copies bytes in before it stores its count (`Release`), and the reader copies them
//! out after it has loaded that count (`Acquire`). The reader stores its count (`Release`) after it
//! has copied bytes out, and the writer loads that count (`Acquire`) before it overwrites them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::adaptive_spin::AdaptiveSpin;
use crate::memfd::{self, Pages, Seals};
use crate::memory::{PAGE_SIZE, SharedMapping};
use crate::{futex, wakeup};

/// Bytes that a ring holds. A power of two, so that the counts may wrap around.
pub const CAPACITY: usize = 256 << 10;
/// Bytes of the header of a ring.
const HEAD: usize = PAGE_SIZE;
/// Offsets of the words from the beginning of a ring.
const WRITTEN: usize = 0;
const READ: usize = 64;
const READER_WAKEUP: usize = 128;
const WRITER_WAKEUP: usize = 192;
/// The longest sleep, after which a side looks again even if the other side has damaged its wakeup
/// word.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Several rings, and whether the other side has ended.
#[derive(Debug)]
pub struct Rings {
    mapping: SharedMapping,
    count: usize,
    gone: AtomicBool,
}

impl Rings {
    /// Creates `count` empty rings in a memfd that can be passed to another process.
    ///
    /// # Errors
    /// The errors of the system; `EINVAL` if `count` is zero.
    pub fn new(count: usize) -> io::Result<Arc<Self>> {
        let fd = memfd::create(c"refit-rings", length(count)? as u64, Pages::Base)?;
        memfd::seal(&fd, Seals::SHRINK | Seals::GROW | Seals::SEAL)?;
        Self::open(fd, count)
    }

    /// Maps the rings that another process has created.
    ///
    /// # Errors
    /// `InvalidData`: the memfd could be shrunk, or does not have the length of `count` rings. The
    /// errors of the system.
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

    /// Marks the other side as ended: readers reach the end after the remaining bytes, and writers
    /// fail.
    pub fn end(&self) {
        // Ordered by the fence in `ring`; pairs with the load of `gone` within `sleep`.
        self.gone.store(true, Ordering::Relaxed);
        for ring in 0..self.count {
            for which in [READER_WAKEUP, WRITER_WAKEUP] {
                // The other side has ended, or wakes up for nothing.
                wakeup::ring(self.word(ring, which), futex::wake);
            }
        }
    }

    /// Returns the writer of a ring, which must be the only one on this side.
    ///
    /// # Panics
    /// If there is no ring with this number.
    pub fn writer(self: &Arc<Self>, ring: usize) -> Writer {
        assert!(ring < self.count, "there is no ring {ring}");
        Writer { rings: Arc::clone(self), ring, written: 0, spin: AdaptiveSpin::default() }
    }

    /// Returns the reader of a ring, which must be the only one on this side.
    ///
    /// # Panics
    /// If there is no ring with this number.
    pub fn reader(self: &Arc<Self>, ring: usize) -> Reader {
        assert!(ring < self.count, "there is no ring {ring}");
        Reader { rings: Arc::clone(self), ring, read: 0, spin: AdaptiveSpin::default() }
    }

    fn word(&self, ring: usize, which: usize) -> &AtomicU64 {
        let place = self.mapping.place(ring * (HEAD + CAPACITY) + which, size_of::<AtomicU64>());
        // SAFETY: `place` lies in the mapping, which lives as long as `self` and is page-aligned;
        // `which`, `HEAD` and `CAPACITY` are multiples of a word. These bytes are never copied,
        // only accessed as atomics, here and in the other process.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    fn gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes in a ring; one of the counts is this side's own.
    fn held(written: u64, read: u64) -> io::Result<usize> {
        match usize::try_from(written.wrapping_sub(read)) {
            Ok(held) if held <= CAPACITY => Ok(held),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a ring's counts are impossible")),
        }
    }

    /// Returns the offset of the byte with this count, and the number of bytes that follow it
    /// without wrapping around.
    fn at(ring: usize, count: u64) -> (usize, usize) {
        let within = (count % CAPACITY as u64) as usize;
        (ring * (HEAD + CAPACITY) + HEAD + within, CAPACITY - within)
    }

    /// Waits until `ready` may return true.
    fn wait(&self, ring: usize, which: usize, spin: &AdaptiveSpin, ready: impl Fn() -> bool) {
        if spin.wait_for(&ready) {
            return;
        }
        let wait = |word: &AtomicU64| futex::wait(word, wakeup::ASLEEP, MAX_SLEEP);
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

/// The writing end of a ring.
#[derive(Debug)]
pub struct Writer {
    rings: Arc<Rings>,
    ring: usize,
    written: u64,
    spin: AdaptiveSpin,
}

impl Writer {
    /// Writes as many of these bytes as fit, at least one if there are any. Returns their number.
    /// If there is no room, it waits if `wait` is set.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room, and `wait` is not set. `BrokenPipe`: the other side has
    /// ended. `InvalidData`: the other side's count is impossible.
    pub fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        let read = self.rings.word(self.ring, READ);
        loop {
            if self.rings.gone() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            // Pairs with the reader's store of its count.
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
        // Pairs with the reader's load of this count.
        self.rings.word(self.ring, WRITTEN).store(self.written, Ordering::Release);
        wakeup::ring(self.rings.word(self.ring, READER_WAKEUP), futex::wake);
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Reader {
    rings: Arc<Rings>,
    ring: usize,
    read: u64,
    spin: AdaptiveSpin,
}

impl io::Read for Reader {
    /// Waits for bytes; returns 0 when the other side has ended. `InvalidData`: the other side's
    /// count is impossible.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let written = self.rings.word(self.ring, WRITTEN);
        loop {
            // Loaded before the count, so that bytes written before the end are still read.
            let ended = self.rings.gone();
            // Pairs with the writer's store of its count.
            let held = Rings::held(written.load(Ordering::Acquire), self.read)?;
            let count = into.len().min(held);
            if count > 0 || into.is_empty() || ended {
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
        // Pairs with the writer's load of this count.
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
                // Chunks of all lengths; now and then both sides have time to fall asleep.
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
