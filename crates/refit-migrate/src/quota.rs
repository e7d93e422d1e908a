//! The memory that a node owns for programs that move: the frames of programs that began there, and
//! the pages that it holds for others.
//!
//! The used memory is what the kernel counts of the files that hold it. So frees need no
//! report: memory that is unmapped, that moves elsewhere, or whose program ends is not used any
//! more.
//!
//! No memory is taken away from a program. An operation that would exceed the quota does not begin:
//! a move, the conversion of private memory to frames, the transfer of a page to this node. The
//! thread then goes on at its origin. A program's first touch of its frames is not checked: it
//! counts, and may exceed the quota; then no further operation begins.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use refit_messages::InstanceId;
use thiserror::Error;

/// The unit in which `stat` counts memory.
const BLOCK: u64 = 512;

/// The node has less memory than is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{own} has no memory left: {} KiB are needed, and {} of its {} KiB are used by programs that move",
    needed >> 10, used >> 10, owned >> 10
)]
pub(crate) struct QuotaExceeded {
    own: InstanceId,
    needed: u64,
    used: u64,
    owned: u64,
}

impl From<QuotaExceeded> for io::Error {
    fn from(exceeded: QuotaExceeded) -> Self {
        Self::new(io::ErrorKind::QuotaExceeded, exceeded)
    }
}

/// The memory that one node owns for programs that move.
#[derive(Debug)]
pub(crate) struct Quota {
    own: InstanceId,
    /// In bytes; `None`: as much as there is.
    owned: Option<u64>,
    files: Mutex<Vec<Weak<File>>>,
    /// Held while memory is added that was checked for.
    turn: Mutex<()>,
}

impl Quota {
    pub(crate) fn new(own: InstanceId, owned: Option<u64>) -> Self {
        Self { own, owned, files: Mutex::default(), turn: Mutex::default() }
    }

    /// Returns how many bytes the node owns; `None`: as much as there is.
    pub(crate) fn owned(&self) -> Option<u64> {
        self.owned
    }

    /// Counts what a file holds from now on.
    pub(crate) fn count(&self, file: &Arc<File>) {
        let mut files = self.files.lock();
        files.retain(|one| one.strong_count() > 0);
        files.push(Arc::downgrade(file));
    }

    /// Returns the number of bytes that are used.
    pub(crate) fn used(&self) -> u64 {
        let files = self.files.lock();
        let bytes = |file: &File| file.metadata().map_or(0, |now| now.blocks() * BLOCK);
        files.iter().filter_map(Weak::upgrade).map(|file| bytes(&file)).sum()
    }

    /// Returns the number of bytes that are not used.
    pub(crate) fn room(&self) -> u64 {
        self.owned.map_or(u64::MAX, |owned| owned.saturating_sub(self.used()))
    }

    /// Checks that this many bytes are not used.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), QuotaExceeded> {
        let Some(owned) = self.owned.filter(|_| needed > 0) else { return Ok(()) };
        let used = self.used();
        let fits = used.saturating_add(needed) <= owned;
        if fits { Ok(()) } else { Err(QuotaExceeded { own: self.own, needed, used, owned }) }
    }

    /// Has `add` add as many bytes as `needed` returns, if they are not used. `needed` is called
    /// only if memory is limited.
    ///
    /// # Errors
    /// Those of both; there is not so much memory.
    pub(crate) fn add<R>(
        &self,
        needed: impl FnOnce() -> io::Result<u64>,
        add: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        if self.owned.is_none() {
            return add();
        }
        // Two additions at a time would count the same memory as free.
        let _turn = self.turn.lock();
        self.check_room(needed()?)?;
        add()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use refit_sys::memfd::{self, Pages};

    use super::*;

    fn file() -> Arc<File> {
        Arc::new(File::from(memfd::create(c"quota", 1 << 30, Pages::Base).expect("memory")))
    }

    #[test]
    fn what_is_used_is_what_files_hold_now() {
        let quota = Quota::new(InstanceId(7), Some(4 * 4096));
        let (one, other) = (file(), file());
        quota.count(&one);
        quota.count(&other);
        one.write_all_at(&[1; 2 * 4096], 1 << 20).expect("room");
        other.write_all_at(&[1], 1 << 29).expect("room");
        assert_eq!((quota.used(), quota.room()), (3 * 4096, 4096));
        assert!(quota.check_room(4096).is_ok());
        let refused = quota.add(|| Ok(4097), || -> io::Result<()> { panic!("there is no room") });
        let refused = refused.expect_err("there is no room");
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        let says = "instance 7 has no memory left: 4 KiB are needed, and 12 of its 16 KiB are used";
        assert!(refused.to_string().starts_with(says), "{refused}");
        memfd::punch(one.as_fd(), 1 << 20..(1 << 20) + 4096).expect("a hole");
        assert_eq!(quota.used(), 2 * 4096);
        drop(other);
        assert_eq!(quota.add(|| Ok(3 * 4096), || Ok(quota.used())).expect("room"), 4096);
    }

    #[test]
    fn an_addition_of_nothing_is_not_refused() {
        let quota = Quota::new(InstanceId(0), Some(4096));
        let full = file();
        quota.count(&full);
        full.write_all_at(&[1; 3 * 4096], 0).expect("room");
        assert_eq!((quota.check_room(0), quota.room()), (Ok(()), 0));
        let boundless = Quota::new(InstanceId(0), None);
        boundless.count(&full);
        let never = || -> io::Result<u64> { panic!("not needed") };
        assert!(boundless.add(never, || Ok(())).is_ok() && boundless.check_room(u64::MAX).is_ok());
        assert_eq!((boundless.used(), boundless.room()), (3 * 4096, u64::MAX));
    }
}
