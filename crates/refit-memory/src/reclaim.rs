//! Taking page frames back: physical memory names victims, their owners give them up.
//!
//! This stands between the objects and belongs to none of them. Inside of physical memory it would
//! be a call that waits for caches; see [`PhysicalMemory`](crate::PhysicalMemory) for what that leads to.

use crate::events;
use crate::fcm::Evicted;
use crate::frames::FramePool;
use crate::pm::{PhysicalMemoryRef, Search};

/// Evicts pages, of all files, until `wanted` frames have been freed or there is nothing left
/// that can be evicted; how many have been freed. To be called outside of any call of a file cache.
/// `frames` is the pool that `pm` hands out.
///
/// Who repeats a call that had no frame asks for as many as the call touches pages. With fewer,
/// the pages that its last attempt has filled can be all that is evicted, again and again.
pub fn reclaim(pm: PhysicalMemoryRef, frames: &FramePool, wanted: usize) -> usize {
    let _evict = events::EVICT.span([wanted as u64, 0]);
    let mut search = Search::default();
    let mut freed = 0;
    while freed < wanted {
        let victims = pm.victims(wanted - freed, &mut search);
        if victims.is_empty() {
            break;
        }
        let (mut pages, mut write_backs) = (0, 0);
        for victim in victims {
            let frame = victim.frame;
            // A page that cannot be written back stays, dirty; the error reaches who flushes the file.
            let evicted = frames.visit(frame, |owner, page| owner.evict(page, frame));
            if matches!(evicted, Some(Ok(Evicted::Freed))) {
                pages += 1;
                write_backs += u64::from(victim.dirty);
            }
        }
        freed += pages;
        pm.evicted(pages as u64, write_backs);
    }
    freed
}
