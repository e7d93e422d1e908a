//! Calls on regular files that the executor makes instead of the shadow (Katz 2014, §8.3).
//!
//! ```text
//!   program: descriptor ──► open file ◄── pidfd_getfd ── executor: read, write, …
//!                            position, O_APPEND, locks,          ▲
//!                            cached pages: one for all           └─► bounce buffer ◄─► replica
//! ```
//!
//! **It is the same file.** The executor does not open the file once more but gets the program's
//! own open file, and one kernel runs both. So nothing is copied that could be out of date:
//! position, flags, locks and cached pages exist once. The open file is fetched anew for each call
//! and closed before the call returns: if another thread closes the descriptor, or makes it another
//! file, the executor finds what the shadow would find, and an open file ends no later than with a
//! call that is under way in it. It is fetched from the *thread* (`PIDFD_THREAD`), not from the
//! process: descriptors that the thread has for itself (`unshare(CLONE_FILES)`) are its own here,
//! too, and the first thread may have ended.
//!
//! **It makes no difference whether the executor or the shadow calls:**
//! - The file is a regular one on a file system of [`mounts`], which asks no program that could
//!   distinguish callers. Where closing one of several descriptors has an effect, only calls that
//!   write nothing are made. An error that the kernel reports at the close (one that it has met at
//!   an earlier write) is reported once, so it becomes the result of the call.
//! - The thread may do exactly what the executor may ([`rights`]), and no filter but refit's looks
//!   at its calls. A file that is written to has no size limit (`RLIMIT_FSIZE`), which would be the
//!   executor's.
//! - A call that fails has done nothing, except for writes, and the shadow makes it again: so
//!   errors are those that the shadow meets. A write that fails may have done something all the
//!   same (`O_SYNC`), so its error becomes the result; only that it is not permitted must be the
//!   shadow's own error.
//!
//! **Memory** ([`crate::remote::executor`]'s `on_files`). The bytes of a write are copied from the
//! replica first, all of them, or the shadow makes the call: these are the bytes that the thread's
//! own instructions would load. The bytes of a read are delivered to frames that the replica has
//! mapped as writable, as the thread's own stores would be. That they are mapped is checked before
//! the read, but other threads may change the memory while the file is read. So it is checked again
//! under the lock under which mappings are removed, and the bytes are copied under that lock: no
//! change of the memory comes in between, and none before is overlooked, for a change is made only
//! when all replicas have invalidated what it concerns, and invalidated ranges do not count as
//! mapped. A range that is not mapped any more (after a neighbour's change, or a `fork`) is looked
//! up, as for a store. If nothing is there, the program has unmapped its own buffer during the
//! call: a call that moves no position is simply made again by the shadow; otherwise the position
//! is first set back by what was read. Only then, and only if others use the same position at that
//! moment, can they see a position that a kernel alone would not have shown.
//!
//! The executor handles commands one after the other, and so none during the call: a signal, a
//! recall, or a stop is handled behind it, as it would be behind a call in the kernel that cannot
//! be interrupted; and the call has been made once, with its result in the registers that return.

pub(crate) mod call;
mod mounts;
mod rights;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use refit_sys::pidfd::Pidfd;
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};

use mounts::{Mounts, SafeCalls};

/// The shadow makes longer calls.
pub(crate) const MAX_LENGTH: usize = 128 << 10;
/// For how many calls a descriptor is not looked at again that was no such file.
const RECHECK_AFTER: u8 = 63;

/// An executor's knowledge of the files of the thread that it serves.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The thread, and its process.
    of: Option<(u32, u32)>,
    /// The thread's pidfd; `None`: the kernel lacks what is needed.
    thread: Option<Pidfd>,
    /// Whether the executor may do exactly what this thread may; `None`: not checked yet.
    equivalent: Option<bool>,
    mounts: Mounts,
    /// Descriptors that were no such files, for writing or at all, and for how many calls they are
    /// not looked at.
    unfit: BTreeMap<(u32, bool), u8>,
}

impl Files {
    /// Begins to serve a thread.
    pub(crate) fn serve(&mut self, process: u32, thread: u32) {
        self.equivalent = None;
        if self.of != Some((thread, process)) {
            self.unfit.clear();
            self.of = Some((thread, process));
            // The thread is stopped, and so exists. A kernel that cannot report its process leaves
            // all calls to shadows.
            let found = Pidfd::open_thread(thread);
            self.thread = found.ok().filter(|one| one.process().is_ok_and(|of| of == process));
        }
    }

    /// Notes that the shadow makes a call, which may change descriptors or rights.
    pub(crate) fn on_shadow_call(&mut self, number: u64) {
        let number = number.cast_signed();
        if call::OPENS.contains(&number) {
            self.unfit.clear();
        }
        if !call::LEAVES_RIGHTS.contains(&number) {
            self.equivalent = None;
        }
    }

    /// Returns the open file of a descriptor, if the executor may use it instead of the shadow; and
    /// whether that makes no difference for a call that `writes` or not.
    pub(crate) fn open(&mut self, number: u32, writes: bool) -> Option<(OwnedFd, bool)> {
        let key = (number, writes);
        if let Some(left) = self.unfit.get_mut(&key) {
            *left -= 1;
            if *left == 0 {
                self.unfit.remove(&key);
            }
            return None;
        }
        let ((id, _), thread) = (self.of?, self.thread.as_ref()?);
        if self.equivalent == Some(false) {
            return None;
        }
        let file = thread.get_fd(number).ok()?;
        let found = self.mounts.safe_calls(file.as_fd(), id);
        let fits = match found.filter(|_| is_buffered(file.as_fd())) {
            None => false,
            Some(SafeCalls::All) => true,
            Some(SafeCalls::Reads) => !writes,
        };
        if !fits {
            self.unfit.insert(key, RECHECK_AFTER);
        }
        let equivalent = fits && *self.equivalent.get_or_insert_with(|| rights::equivalent(id));
        Some((file, equivalent))
    }

    /// Returns whether files that the thread writes to may grow without limit, for both the
    /// executor and the shadow.
    pub(crate) fn may_grow(&self) -> bool {
        let ours = getrlimit(Resource::Fsize).current.is_none();
        let theirs = |(thread, _)| refit_sys::process::writes_without_limit(thread);
        ours && self.of.is_some_and(|of| theirs(of).unwrap_or(false))
    }
}

/// Returns whether a read accepts any address (no `O_DIRECT`).
fn is_buffered(file: BorrowedFd<'_>) -> bool {
    let flags: io::Result<OFlags> = rustix::fs::fcntl_getfl(file).map_err(io::Error::from);
    flags.is_ok_and(|flags| !flags.contains(OFlags::DIRECT))
}
