//! The atomics that the ring and `follow` use: those of std, or those of loom for model checking
//! (`RUSTFLAGS="--cfg loom"`).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
