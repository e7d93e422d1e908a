//! The data of one file: its cache and its file representative.
//!
//! All reads and writes of programs go through the cache. A cache that finds no free page frame
//! returns an error instead of waiting. The server then asks physical memory to reclaim frames and
//! repeats the call. Since this happens outside of any cache, no cache ever waits for another.
//!
//! A call of a cache is a request of the object system, and every swap of any object waits until it
//! has ended. Calls are therefore short: what must be read from the disk first is read between two
//! calls ([`Memory::filled`]), and a flush is done in parts ([`Flush`]).

use crate::host::HostFile;
use refit_memory::{
    CacheError, DiskWork, FileCacheRef, FileRepresentativeRef, FramePool, PAGE_SIZE,
    PhysicalMemoryRef, ReclaimOutcome, without_waiting,
};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time for which a call waits for a frame while all frames are in use and none of them waits
/// for the host. The time that a disk takes is not limited.
const FRAMES_TIMEOUT: Duration = Duration::from_secs(30);
/// For how long a call waits by yielding its processor. Frames that are being filled or copied
/// become free within that time.
const SPIN: Duration = Duration::from_millis(1);

/// The maximum number of bytes that one call of a cache writes back, in one write to the host.
const FLUSH_PART: u64 = 128 << 10;

/// A file's cache and the objects that belong to it.
pub(crate) struct Data {
    pub(crate) cache: FileCacheRef,
    pub(crate) representative: FileRepresentativeRef,
    /// The same host file, for operations that do not concern its data: locks, holes, times.
    pub(crate) host: Arc<HostFile>,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The page frames of a mount, and the size of the parts in which files are accessed.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) physical: PhysicalMemoryRef,
    pub(crate) frames: Arc<FramePool>,
    /// The maximum number of bytes that one call of a cache may access. It is small compared with
    /// the budget of frames, so that a request larger than the budget succeeds in parts.
    pub(crate) part: usize,
}

impl Memory {
    /// Calls a cache until it finds the frames it needs.
    ///
    /// Returns the host's error if no frame can be reclaimed because the pages in them cannot be
    /// stored, and `ENOMEM` if no frame became free within [`FRAMES_TIMEOUT`].
    pub(crate) fn with_frames<T>(
        &self,
        mut call: impl FnMut() -> Result<T, CacheError>,
    ) -> Result<T, Errno> {
        // The number of pages that the call touches, plus one because it may begin in the middle of
        // a page.
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
            // Other calls use all frames at the moment and release them when the host has replied.
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

    /// Calls a cache that may have to read `ranges`, in bytes, from the host. The disk is waited
    /// for outside of the call, except when the host drops what it has just read before the call is
    /// repeated.
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

    /// Writes all of `bytes`. If an error occurs after a part has been written, returns the length
    /// of that part.
    pub(crate) fn write(&self, data: &Data, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let part = &bytes[done..bytes.len().min(done + self.part)];
            let at = offset + done as u64;
            // Only pages that are written in part are read first: those of the first and of the
            // last byte.
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

    /// Writes the dirty pages of the next part of `flush` to the host. Returns whether there are
    /// more parts.
    pub(crate) fn flush_part(&self, data: &Data, flush: &mut Flush) -> Result<bool, Errno> {
        let Flush { start, end, length } = *flush;
        let next = start.saturating_add(length);
        if next >= end || next >= data.cache.size() || !data.cache.is_dirty() {
            self.with_frames(|| data.cache.flush(start, end))?;
            return Ok(false);
        }
        let pages = self.with_frames(|| data.cache.flush(start, next))?;
        // Long stretches without dirty pages are passed in growing steps.
        let length = if pages == 0 { length.saturating_mul(2).min(1 << 50) } else { FLUSH_PART };
        *flush = Flush { start: next, length, ..*flush };
        Ok(true)
    }
}

/// The progress of a flush of a range of a file that is done in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flush {
    start: u64,
    end: u64,
    /// The length of the next part, in bytes.
    length: u64,
}

impl Flush {
    pub(crate) fn new(start: u64, end: u64) -> Self {
        Self { start, end, length: FLUSH_PART }
    }
}

/// Returns the byte range of the page that contains the byte at `offset`.
fn page_of(offset: u64) -> Range<u64> {
    let start = offset - offset % PAGE_SIZE as u64;
    start..start + PAGE_SIZE as u64
}

fn part_of(buf: &mut [u8], at_most: usize) -> &mut [u8] {
    let len = buf.len().min(at_most);
    &mut buf[..len]
}
