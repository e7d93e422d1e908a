//! The data of one file: its cache and its file representative.
//!
//! Everything that programs read and write goes through the cache. When the cache finds no free page frame, it says
//! so instead of waiting; then physical memory is asked to take some back, and the call is made again. That happens
//! here, outside of any cache, so that no cache ever waits for another.

use crate::host::HostFile;
use refit_memory::{
    CacheError, FileCacheRef, FileRepresentativeRef, FramePool, PAGE_SIZE, PhysicalMemoryRef,
};
use rustix::io::Errno;
use std::sync::Arc;

/// How often in a row nothing could be taken back until the request fails.
const PATIENCE: usize = 200;

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
    /// Calls a cache until it finds the frames it needs.
    pub(crate) fn with_frames<T>(
        &self,
        mut call: impl FnMut() -> Result<T, CacheError>,
    ) -> Result<T, Errno> {
        // As many as the call touches at most, and one more, since it need not begin at a page's beginning.
        let wanted = self.part / PAGE_SIZE + 1;
        let mut fruitless = 0;
        loop {
            match call() {
                Ok(value) => return Ok(value),
                Err(CacheError::Host(errno)) => return Err(Errno::from_raw_os_error(errno)),
                Err(CacheError::NoFrame) if fruitless == PATIENCE => return Err(Errno::NOMEM),
                Err(CacheError::NoFrame) => {
                    if refit_memory::reclaim(self.physical, &self.frames, wanted) == 0 {
                        // Others hold them all at the moment; they let go within microseconds.
                        fruitless += 1;
                        std::thread::yield_now();
                    } else {
                        fruitless = 0;
                    }
                }
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
