//! The data of one file: its cache and its file representative.
//!
//! Everything that programs read and write goes through the cache. When the cache finds no free page frame, it says
//! so instead of waiting; then physical memory is asked to take some back, and the call is made again. That happens
//! here, outside of any cache, so that no cache ever waits for another.

use crate::host::HostFile;
use refit_memory::{
    CacheError, FileCacheRef, FileRepresentativeRef, FramePool, PAGE_SIZE, PhysicalMemoryRef,
    Reclaimed,
};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a call waits for a frame while others hold them all; longer than a disk takes.
const FRAMES_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it waits by yielding its processor; frames that are being filled or copied are free within that.
const SPIN: Duration = Duration::from_millis(1);

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
            let Reclaimed { freed, failed } =
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
                waited if waited > FRAMES_TIMEOUT => return Err(Errno::NOMEM),
                waited if waited > SPIN => std::thread::sleep(SPIN),
                _ => std::thread::yield_now(),
            }
        }
    }

    pub(crate) fn read(&self, data: &Data, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < buf.len() {
            let part = part_of(&mut buf[done..], self.part);
            let wanted = part.len();
            let n = self.with_frames(|| data.cache.read(offset + done as u64, part))?;
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
            match self.with_frames(|| data.cache.write(offset + done as u64, part)) {
                Ok(n) => done += n,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes every dirty page in `[start, end)` to the host.
    pub(crate) fn flush(&self, data: &Data, start: u64, end: u64) -> Result<u64, Errno> {
        self.with_frames(|| data.cache.flush(start, end))
    }
}

fn part_of(buf: &mut [u8], at_most: usize) -> &mut [u8] {
    let len = buf.len().min(at_most);
    &mut buf[..len]
}
