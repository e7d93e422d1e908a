//! The caches that own the frames of a pool, and visits to them.

use refit_objects::{Interface, ObjectId};

use crate::fcm::{FileCacheInterface, FileCacheRef};
use crate::frames::{Frame, FramePool};

impl FramePool {
    /// Returns the cache that owns `frame`, and the page in it; `None` while it is free. A guess,
    /// unless the owner asks.
    pub fn owner(&self, frame: Frame) -> Option<(FileCacheRef, u64)> {
        let owner = reference(self.owner_word(frame))?;
        Some((owner, self.page(frame)))
    }

    /// Calls `visit` with the cache that owns `frame`, and the page; `None` while the frame is
    /// free. During the visit [`destroy_file_cache`](crate::destroy_file_cache), which `visit` must
    /// not call, does not destroy the cache.
    pub fn visit<R>(&self, frame: Frame, visit: impl FnOnce(FileCacheRef, u64) -> R) -> Option<R> {
        let _visiting = self.visitors.read();
        let (owner, page) = self.owner(frame)?;
        Some(visit(owner, page))
    }

    /// Returns once all visits that began before have ended.
    pub(crate) fn wait_for_visitors(&self) {
        drop(self.visitors.write());
    }

    /// Visits each cache that has dirty pages once, as a flusher does periodically.
    pub fn visit_dirty(&self, mut visit: impl FnMut(FileCacheRef)) {
        for (word, frame) in self.dirty_owners() {
            // The cache may be gone by now, and the frame be owned by another one, which gets its
            // own visit.
            self.visit(frame, |owner, _| {
                if cache_word(owner) == word {
                    visit(owner);
                }
            });
        }
    }

    /// Takes a free frame for a page of a cache.
    pub(crate) fn take(&self, owner: FileCacheRef, page: u64) -> Option<Frame> {
        self.take_for(cache_word(owner), page)
    }
}

/// Returns the word by which the descriptors of frames name a cache. It is never 0, since no id has
/// that number.
pub fn cache_word(owner: FileCacheRef) -> u64 {
    FileCacheInterface::id(owner).to_bits()
}

fn reference(word: u64) -> Option<FileCacheRef> {
    refit_objects::reference::<FileCacheInterface>(ObjectId::from_bits(word))
}
