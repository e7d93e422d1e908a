//! Reclaiming page frames: physical memory names victims, and their owners evict them.
//!
//! This function belongs to none of the objects. As a method of physical memory it would be a call
//! that waits for caches; see [`PhysicalMemory`](crate::PhysicalMemory) for the consequences.

use tracing::debug;

use crate::events;
use crate::fcm::{CacheError, Eviction, FileCacheRef};
use crate::frames::FramePool;
use crate::pm::{PhysicalMemoryRef, Search};
use crate::throttle::Throttle;

static NOTHING_FREED: Throttle = Throttle::new();

/// The outcome of reclaiming frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimOutcome {
    /// Number of frames that have been freed.
    pub freed: usize,
    /// The `errno` with which a dirty page could not be written back, if that has happened. If
    /// nothing was freed, waiting does not help.
    pub failed: Option<i32>,
}

/// The number of caches with failed write-backs after which a search leaves all dirty pages alone.
const FAILING_CACHES: usize = 8;

/// Evicts pages, of all files, until `wanted` frames have been freed or no more can be evicted.
/// Must be called outside of any call of a file cache. `frames` is the pool that `pm` allocates
/// from.
///
/// A file whose dirty pages cannot be written back is asked once: a full disk would refuse each of
/// them.
///
/// A caller that repeats a call for lack of a frame should ask for as many frames as the call
/// accesses pages. With fewer, it may evict only the pages that its last attempt has filled, again
/// and again.
pub fn reclaim(pm: PhysicalMemoryRef, frames: &FramePool, wanted: usize) -> ReclaimOutcome {
    let _evict = events::EVICT.span([wanted as u64, 0]);
    let mut search = Search::default();
    let mut reclaimed = ReclaimOutcome::default();
    let mut failing: Vec<FileCacheRef> = Vec::new();
    while reclaimed.freed < wanted {
        let victims = pm.victims(wanted - reclaimed.freed, &mut search);
        if victims.is_empty() {
            break;
        }
        let (mut pages, mut write_backs) = (0, 0);
        for victim in victims {
            let frame = victim.frame;
            // A page that cannot be written back stays, dirty; flushing the file returns the error.
            let evicted = frames.visit(frame, |owner, page| {
                let refuses = failing.len() >= FAILING_CACHES || failing.contains(&owner);
                if victim.dirty && refuses {
                    return Ok(Eviction::Busy);
                }
                let evicted = owner.evict(page, frame);
                if let Err(CacheError::Host(errno)) = evicted {
                    reclaimed.failed = Some(errno);
                    failing.push(owner);
                }
                evicted
            });
            if matches!(evicted, Some(Ok(Eviction::Freed))) {
                pages += 1;
                write_backs += u64::from(victim.dirty);
            }
        }
        reclaimed.freed += pages;
        pm.evicted(pages as u64, write_backs);
    }
    if reclaimed.freed == 0
        && wanted > 0
        && let Some(times) = NOTHING_FREED.count()
    {
        debug!(wanted, failed = reclaimed.failed, times, "no page frame could be reclaimed");
    }
    reclaimed
}
