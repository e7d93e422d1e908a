//! The page frames of a process that has ended, read from the memfds that it has left: what was
//! not written to the files yet.
//!
//! Whatever instant the process ended at, a page whose data was accepted and is not on the host has
//! [`DIRTY`] or [`WRITING`] set: `mark_dirty` follows the copy of the bytes, and the copy precedes
//! the reply; [`WRITING`] is set before [`DIRTY`] is cleared, and cleared when the host has
//! returned. A page that was being filled has neither. A page that another write was being copied
//! to may hold a part of it, which the caller of that write repeats, as it got no reply.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use refit_sys::memory::{PAGE_SIZE, PAGE_SIZE_U64};
use refit_sys::word_table::WordTable;

use crate::frames::{DIRTY, Descriptor, FLAGS, FramePool, OWNER, PAGE, WRITING};

/// A page whose data may not have reached its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwrittenPage {
    /// The cache that owned it, as [`cache_word`](crate::cache_word) returned it.
    pub cache: u64,
    /// The page of the file.
    pub page: u64,
    frame: u64,
}

/// The page frames of a pool whose process has ended.
#[derive(Debug)]
pub struct UnwrittenPages {
    memory: OwnedFd,
    descriptors: WordTable,
}

impl FramePool {
    /// Returns the memfds of the frames and of their descriptors, for [`UnwrittenPages::open`].
    pub fn memfds(&self) -> [BorrowedFd<'_>; 2] {
        [self.memory.as_fd(), self.descriptors.as_fd()]
    }
}

impl UnwrittenPages {
    /// Opens the frames of a pool by its memfds; see [`FramePool::memfds`].
    ///
    /// # Errors
    /// The errors of [`WordTable::open`].
    pub fn open([memory, descriptors]: [OwnedFd; 2]) -> io::Result<Self> {
        Ok(Self { memory, descriptors: WordTable::open(descriptors)? })
    }

    /// Returns the pages that may not have reached their files, in the order of their frames.
    pub fn pages(&self) -> impl Iterator<Item = UnwrittenPage> {
        let (descriptors, _): (&[Descriptor], _) = self.descriptors.words().as_chunks();
        (0..).zip(descriptors).filter_map(|(frame, descriptor)| {
            let [cache, page, flags] =
                [OWNER, PAGE, FLAGS].map(|word| descriptor[word].load(Relaxed));
            let unwritten = flags & u64::from(DIRTY | WRITING) != 0 && cache != 0;
            unwritten.then_some(UnwrittenPage { cache, page, frame })
        })
    }

    /// Returns the bytes of a page.
    ///
    /// # Errors
    /// The errors of pread(2); `UnexpectedEof` if the memfd has no such frame.
    pub fn read(&self, page: UnwrittenPage) -> io::Result<[u8; PAGE_SIZE]> {
        let mut bytes = [0; PAGE_SIZE];
        match rustix::io::pread(&self.memory, &mut bytes, page.frame * PAGE_SIZE_U64)? {
            PAGE_SIZE => Ok(bytes),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::BUSY;

    fn left(pool: &FramePool) -> UnwrittenPages {
        UnwrittenPages::open(pool.memfds().map(|fd| fd.try_clone_to_owned().unwrap())).unwrap()
    }

    #[test]
    fn dirty_pages_and_those_being_written_are_found() {
        let pool = FramePool::new(8 * PAGE_SIZE_U64).unwrap();
        let taken: Vec<_> = (0..5).map(|page| pool.take_for(77, page * 10).unwrap()).collect();
        pool.set(taken[1], DIRTY);
        pool.copy_in(taken[1], 0, b"dirty");
        pool.set(taken[2], WRITING);
        pool.set(taken[3], BUSY);
        pool.set(taken[4], DIRTY);
        pool.put(taken[4]);
        let left = left(&pool);
        drop(pool);
        let pages: Vec<_> = left.pages().collect();
        assert_eq!(
            pages.iter().map(|page| (page.cache, page.page)).collect::<Vec<_>>(),
            [(77, 10), (77, 20)]
        );
        assert_eq!(&left.read(pages[0]).unwrap()[..6], b"dirty\0");
    }

    #[test]
    fn a_frame_that_the_memfd_does_not_have_is_an_error() {
        let pool = FramePool::new(PAGE_SIZE_U64).unwrap();
        let page = UnwrittenPage { cache: 1, page: 0, frame: 1 };
        assert!(left(&pool).read(page).is_err());
    }
}
