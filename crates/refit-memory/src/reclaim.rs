//! Taking page frames back: physical memory names victims, their owners give them up.
//!
//! This stands between the objects and belongs to none of them. Inside of physical memory it would
//! be a call that waits for caches; see [`PhysicalMemory`](crate::PhysicalMemory) for what that leads to.

use crate::events;
use crate::fcm::{CacheError, Evicted, FileCacheRef};
use crate::frames::FramePool;
use crate::pm::{PhysicalMemoryRef, Search};

/// What came of taking frames back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Frames that have been freed.
    pub freed: usize,
    /// The `errno` with which a dirty page could not be written back, if one could not: where nothing was freed,
    /// waiting does not help.
    pub failed: Option<i32>,
}

/// Caches that refuse write-back after which a search leaves dirty pages alone altogether.
const FAILING_CACHES: usize = 8;

/// Evicts pages, of all files, until `wanted` frames have been freed or there is nothing left
/// that can be evicted. To be called outside of any call of a file cache.
/// `frames` is the pool that `pm` hands out.
///
/// A file whose dirty pages cannot be written back is asked once: a full disk refuses each of them.
///
/// Who repeats a call that had no frame asks for as many as the call touches pages. With fewer,
/// the pages that its last attempt has filled can be all that is evicted, again and again.
pub fn reclaim(pm: PhysicalMemoryRef, frames: &FramePool, wanted: usize) -> Reclaimed {
    let _evict = events::EVICT.span([wanted as u64, 0]);
    let mut search = Search::default();
    let mut reclaimed = Reclaimed::default();
    let mut failing: Vec<FileCacheRef> = Vec::new();
    while reclaimed.freed < wanted {
        let victims = pm.victims(wanted - reclaimed.freed, &mut search);
        if victims.is_empty() {
            break;
        }
        let (mut pages, mut write_backs) = (0, 0);
        for victim in victims {
            let frame = victim.frame;
            // A page that cannot be written back stays, dirty; the error reaches who flushes the file.
            let evicted = frames.visit(frame, |owner, page| {
                let refuses = failing.len() >= FAILING_CACHES || failing.contains(&owner);
                if victim.dirty && refuses {
                    return Ok(Evicted::Busy);
                }
                let evicted = owner.evict(page, frame);
                if let Err(CacheError::Host(errno)) = evicted {
                    reclaimed.failed = Some(errno);
                    failing.push(owner);
                }
                evicted
            });
            if matches!(evicted, Some(Ok(Evicted::Freed))) {
                pages += 1;
                write_backs += u64::from(victim.dirty);
            }
        }
        reclaimed.freed += pages;
        pm.evicted(pages as u64, write_backs);
    }
    reclaimed
}
