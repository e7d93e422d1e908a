//! File cache managers and physical memory: the building blocks between a file's bytes on the host
//! and the programs that use them (Hui 2000, §3.2).
//!
//! * A [`FileCache`] (FCM) holds the cached pages of one file. Two implementations can stand in for
//!   each other while they are used: `shared` (one lock, compact) and `partitioned` (page ranges over
//!   the processors, a lock each). [`create_file_cache`] makes one.
//! * A [`FileRepresentative`] (FR) is the file behind a cache, where pages are filled from and
//!   written back to.
//! * A [`PhysicalMemory`] (PM) hands out page frames from a budget that all files of a mount share,
//!   and names those to take back when they run short. [`create_physical_memory`] makes one.
//! * A [`ReplacementPolicy`] tells it whose pages those are. [`create_policy`] makes one; others can be loaded.
//! * A [`FramePool`] is the memory itself: one memfd, and a descriptor for each frame.
//!
//! Calls go one way: FCM → { PM, FR }, PM → policy, and FR and policy call no object. Frames are taken back by
//! [`reclaim`], a function outside of all objects: who gets [`CacheError::NoFrame`] reclaims and calls
//! again. So no two objects ever wait for each other, and each can be swapped at any time.
//!
//! It does not: read ahead, map frames into programs, or decide when to flush.
// What `#[interface]` generates is exempt; nothing else is.
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
mod pages;
mod partitioned;
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
mod whole;
mod writeback;

pub use anonymous::{AnonymousPages, create_anonymous};
pub use disk::{DiskWork, may_wait, without_waiting};
pub use factory::{
    CacheParts, FileCacheFactory, create_file_cache, create_physical_memory, destroy_file_cache,
};
pub use fcm::{
    CacheError, CacheState, CacheStats, CacheStripes, CachedPage, Evicted, FileCache,
    FileCacheInterface, FileCacheRef, PAGE_SIZE,
};
pub use fr::{FileRepresentative, FileRepresentativeInterface, FileRepresentativeRef};
pub use frames::{Frame, FramePool};
pub use pm::{
    MemoryState, MemoryStats, PhysicalMemory, PhysicalMemoryInterface, PhysicalMemoryRef, Search,
    Victim,
};
pub use policy::{
    CLOCK, ReplacementPolicy, ReplacementPolicyFactory, ReplacementPolicyInterface,
    ReplacementPolicyRef, create_policy, destroy_policy, mark,
};
pub use reclaim::{Reclaimed, reclaim};
