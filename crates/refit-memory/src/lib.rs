//! File cache managers and physical memory: the building blocks between a file's bytes on the host
//! and the programs that use them (Hui 2000, §3.2).
//!
//! * A [`FileCache`] (FCM) holds the cached pages of one file. Its implementations can replace each
//!   other while they are in use: `shared` (one lock, compact), `partitioned` (ranges of pages
//!   spread over the processors, with a lock each) and `sequential` (pages are dropped behind a
//!   reader). [`create_file_cache`] creates one.
//! * A [`FileRepresentative`] (FR) is the file behind a cache, from which pages are filled and to
//!   which they are written back.
//! * A [`PhysicalMemory`] (PM) allocates page frames from a budget that all files of a mount share,
//!   and names the frames to reclaim when they run short. [`create_physical_memory`] creates one.
//! * A [`ReplacementPolicy`] decides which pages those are. [`create_policy`] creates one; others
//!   can be loaded.
//! * A [`FramePool`] is the memory itself: one memfd, and a descriptor for each frame.
//!
//! Calls go one way: FCM → { PM, FR }, PM → policy; FR and policy call no object. [`reclaim`], a
//! function outside of all objects, reclaims frames: a caller that gets [`CacheError::NoFrame`]
//! reclaims and calls again. So no two objects ever wait for each other, and each can be swapped at
//! any time.
//!
//! The crate does not read ahead, map frames into programs, or decide when to flush.
// Code that `#[interface]` generates is exempt; nothing else is.
#![deny(unsafe_code)]

mod anonymous;
mod cell;
mod disk;
mod events;
mod factory;
mod fcm;
mod fill;
mod fr;
mod frames;
mod index;
mod lazy;
mod owners;
mod pages;
mod partitioned;
mod parts;
mod pm;
mod policy;
pub mod program;
mod reclaim;
mod root;
mod scratch;
mod shared;
pub mod store;
mod sweep;
mod table;
mod throttle;
mod unwritten;
mod whole;
mod writeback;

pub use anonymous::{AnonymousPages, create_anonymous};
pub use disk::{DiskWork, may_wait, without_waiting};
pub use factory::{
    FileCacheFactory, create_file_cache, create_physical_memory, destroy_file_cache,
};
pub use fcm::{
    CacheError, CacheState, CacheStats, CacheStripes, Eviction, FileCache, FileCacheInterface,
    FileCacheRef, PAGE_SIZE,
};
pub use fr::{FileRepresentative, FileRepresentativeInterface, FileRepresentativeRef};
pub use frames::{Frame, FramePool};
pub use index::CachedPage;
pub use owners::cache_word;
pub use parts::CacheParts;
pub use pm::{
    MemoryState, MemoryStats, PhysicalMemory, PhysicalMemoryInterface, PhysicalMemoryRef, Search,
    Victim,
};
pub use policy::{
    CLOCK, ReplacementPolicy, ReplacementPolicyFactory, ReplacementPolicyInterface,
    ReplacementPolicyRef, create_policy, destroy_policy, mark,
};
pub use reclaim::{ReclaimOutcome, reclaim};
pub use unwritten::{UnwrittenPage, UnwrittenPages};
