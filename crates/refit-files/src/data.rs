//! The data of one file: its cache and its file representative.
//!
//! Everything that programs read and write goes through the cache. When the cache finds no free page frame, it says
//! so instead of waiting; then physical memory is asked to take some back, and the call is made again. That happens
//! here, outside of any cache, so that no cache ever waits for another.
//!
//! A call of a cache is a request: every swap, of any object, waits until it has ended. So each is
//! short. What has to be read from the disk first is read between two calls ([`Memory::filled`]),
//! and a flush goes in parts ([`Flush`]).

use crate::host::HostFile;
use refit_memory::{
    CacheError, DiskWork, FileCacheRef, FileRepresentativeRef, FramePool, PAGE_SIZE,
    PhysicalMemoryRef, ReclaimOutcome, without_waiting,
};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a call waits for a frame while others hold them all and none of them waits for the
/// host. A disk may take as long as it likes.
const FRAMES_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it waits by yielding its processor; frames that are being filled or copied are free within that.
const SPIN: Duration = Duration::from_millis(1);

/// Bytes that one call of a cache writes back at most: what it writes to the host at once.
const FLUSH_PART: u64 = 128 << 10;

/// A cache with what belongs to it.
pub(crate) struct Data {
    pub(crate) cache: FileCacheRef,
    pub(crate) representative: FileRepresentativeRef,
    /// The same host file, for what has nothing to do with its data: locks, holes, times.
    pub(crate) host: Arc<HostFile>,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The frames of a mount, and how much of a file one call of a cache may ask for.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) physical: PhysicalMemoryRef,
    pub(crate) frames: Arc<FramePool>,
    /// Bytes: small against the budget, so that a request larger than the budget gets through in parts.
    pub(crate) part: usize,
}

impl Memory {
    /// Calls a cache until it finds the frames it needs. When none can be had because the pages in them cannot be
    /// stored, that is the error.
    pub(crate) fn with_frames<T>(
        &self,
        mut call: impl FnMut() -> Result<T, CacheError>,
    ) -> Result<T, Errno> {
        // As many as the call touches at most, and one more, since it need not begin at a page's beginning.
        let wanted = self.part / PAGE_SIZE + 1;
        let mut fruitless_since: Option<Instant> = None;
        loop {
            match call() {
                Ok(value) => return Ok(value),
                Err(CacheError::Host(errno)) => return Err(Errno::from_raw_os_error(errno)),
                Err(CacheError::NoFrame) => {}
            }
            let ReclaimOutcome { freed, failed } =
                refit_memory::reclaim(self.physical, &self.frames, wanted);
            if freed > 0 {
                fruitless_since = None;
                continue;
            }
            if let Some(errno) = failed {
                return Err(Errno::from_raw_os_error(errno));
            }
            // Others hold them all at the moment, and let go when the host has answered them.
            let since = *fruitless_since.get_or_insert_with(Instant::now);
            match since.elapsed() {
                waited if waited > FRAMES_TIMEOUT && !self.frames.any_in_flight() => {
                    return Err(Errno::NOMEM);
                }
                waited if waited > SPIN => std::thread::sleep(SPIN),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Calls a cache that may have to read `ranges`, of bytes, from the host. The disk is waited
    /// for outside of the call, except where the host drops what it has just read before the call
    /// is repeated.
    fn filled<T>(
        &self,
        data: &Data,
        ranges: &[Range<u64>],
        mut call: impl FnMut() -> Result<T, CacheError>,
    ) -> Result<T, Errno> {
        match self.with_frames(|| without_waiting(&mut call)) {
            Err(Errno::AGAIN) => {}
            outcome => return outcome,
        }
        for Range { start, end } in ranges {
            let work = data.representative.fetch_work(*start, end - start);
            work.and_then(DiskWork::run).map_err(Errno::from_raw_os_error)?;
        }
        self.with_frames(call)
    }

    pub(crate) fn read(&self, data: &Data, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buf.len() {
            let part = part_of(&mut buf[done..], self.part);
            let (wanted, at) = (part.len(), offset + done as u64);
            let range = at..at.saturating_add(wanted as u64);
            let n = self.filled(data, &[range], || data.cache.read(at, part))?;
            done += n;
            if n < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes`, or says how much got written before an error if that is something.
    pub(crate) fn write(&self, data: &Data, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let part = &bytes[done..bytes.len().min(done + self.part)];
            let at = offset + done as u64;
            // Only pages that are written in part are read: those with the first byte and with the
            // last.
            let ends = [page_of(at), page_of(at + part.len() as u64 - 1)];
            let ends = if ends[0] == ends[1] { &ends[..1] } else { &ends };
            match self.filled(data, ends, || data.cache.write(at, part)) {
                Ok(n) => done += n,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes every dirty page in `[start, end)` to the host.
    pub(crate) fn flush(&self, data: &Data, start: u64, end: u64) -> Result<(), Errno> {
        let mut flush = Flush::new(start, end);
        while self.flush_part(data, &mut flush)? {}
        Ok(())
    }

    /// Writes the dirty pages of the next part of `flush` to the host; whether there are more
    /// parts.
    pub(crate) fn flush_part(&self, data: &Data, flush: &mut Flush) -> Result<bool, Errno> {
        let Flush { start, end, length } = *flush;
        let next = start.saturating_add(length);
        if next >= end || next >= data.cache.size() || !data.cache.is_dirty() {
            self.with_frames(|| data.cache.flush(start, end))?;
            return Ok(false);
        }
        let pages = self.with_frames(|| data.cache.flush(start, next))?;
        // Long stretches with nothing to write are passed in growing steps.
        let length = if pages == 0 { length.saturating_mul(2).min(1 << 50) } else { FLUSH_PART };
        *flush = Flush { start: next, length, ..*flush };
        Ok(true)
    }
}

/// A range of a file that is written back in parts, and how far that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    start: u64,
    end: u64,
    /// Bytes of the next part.
    length: u64,
}

impl Flush {
    pub(crate) fn new(start: u64, end: u64) -> Self {
        Self { start, end, length: FLUSH_PART }
    }
}

/// The page with the byte at `offset`, in bytes.
fn page_of(offset: u64) -> Range<u64> {
    let start = offset - offset % PAGE_SIZE as u64;
    start..start + PAGE_SIZE as u64
}

fn part_of(buf: &mut [u8], at_most: usize) -> &mut [u8] {
    let len = buf.len().min(at_most);
    &mut buf[..len]
}
