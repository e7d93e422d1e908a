//! Calls on regular files that a thread makes where it runs, instead of its shadow (Katz 2014, §8.3).
//!
//! ```text
//!   program: descriptor ──► open file ◄── pidfd_getfd ── executor: read, write, … ◄──► bounce buffer ◄──► replica's memory
//!                            position, O_APPEND, locks, cached pages: one for all
//! ```
//!
//! **It is the same file.** What an executor gets is not the file opened once more but the program's own open file, and the kernel that both
//! run under is one. So nothing is copied that could be out of date: position, flags, locks and cached pages exist once. It is asked for anew at each call
//! and given back before the call returns: a descriptor that another thread closes, or makes another file of, is found as the shadow would find it, and an open
//! file ends no later than with a call that is under way in it. It is asked for by the *thread* (`PIDFD_THREAD`), not by the process: what it has for itself
//! (`unshare(CLONE_FILES)`) is its own here, too, and the first thread may have ended.
//!
//! **It makes no difference who calls**, or the shadow calls:
//! - The file is a regular one on a file system of [`mounts`], which asks nobody who would see another caller. Where closing one of several descriptors does something,
//!   only what writes nothing is called. What the kernel says to that is said to nobody else (an error that it has met when it wrote earlier), and so is what
//!   the call returns.
//! - The thread may do exactly what the executor may ([`rights`]), and no filter but refit's looks at its calls. A file that is written to has no
//!   limit (`RLIMIT_FSIZE`), which would be the executor's.
//! - What fails has done nothing, but for writes, and is made again by the shadow: so errors are those that it meets. A write that fails may have done something all the same
//!   (`O_SYNC`), and is told as it failed; only that it is not permitted the shadow says itself.
//!
//! **Memory** ([`crate::remote::executor`]'s `on_files`). What is written is copied from the replica first, all of it, or the shadow calls: these are the bytes that the thread's own
//! instructions would load. What is read is delivered to frames that the replica has mapped to be written to, as the thread's own stores would be.
//! That they are mapped is looked at before; but others may change the memory while the file is read. So it is looked at again under the lock that mappings are
//! forgotten under, and copied under it: no change of the memory comes in between, and none before is overlooked, for a change is made only when all
//! replicas have forgotten what it concerns, and what is forgotten is not covered. What is not covered any more (a neighbour's change, a `fork`) is retrieved, as
//! for a store. Where there is nothing, the program has taken its own buffer away during the call: what moves no position is simply made
//! again by the shadow; else the position is set back first by what was read. Only then, and only where others use the same position at that moment, an
//! observer sees a position that a kernel alone would not have shown.
//!
//! The executor obeys orders one after the other, and so none during the call: a signal, a recall, or a stop is served behind it, as it would be behind a call in
//! the kernel that cannot be interrupted; and the call has been made once, with its result in the registers that go home.

pub(crate) mod call;
mod mounts;
mod rights;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use refit_sys::pidfd::Pidfd;
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};

use mounts::{Alike, Mounts};

/// Longer calls the shadow makes.
pub(crate) const MOST: usize = 128 << 10;
/// A descriptor that was no such file is looked at again behind so many calls.
const RARELY: u8 = 63;

/// What an executor knows of the files of the thread that it serves.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The thread, and its process.
    of: Option<(u32, u32)>,
    /// By which it is asked; `None`: that cannot be.
    thread: Option<Pidfd>,
    /// Whether it may do what this thread may; `None`: not looked at.
    alike: Option<bool>,
    mounts: Mounts,
    /// Descriptors that were none such, to write or at all, and for how many calls they are not looked at.
    others: BTreeMap<(u32, bool), u8>,
}

impl Files {
    /// A thread is here from now on.
    pub(crate) fn serve(&mut self, process: u32, thread: u32) {
        self.alike = None;
        if self.of != Some((thread, process)) {
            self.others.clear();
            self.of = Some((thread, process));
            // It stands, and so is there. A kernel that cannot tell whose it is leaves all to shadows.
            let found = Pidfd::open_thread(thread);
            self.thread = found.ok().filter(|one| one.process().is_ok_and(|of| of == process));
        }
    }

    /// The shadow makes a call, after which other things may hold.
    pub(crate) fn is_called(&mut self, number: u64) {
        let number = number.cast_signed();
        if call::OPENS.contains(&number) {
            self.others.clear();
        }
        if !call::LEAVES_RIGHTS.contains(&number) {
            self.alike = None;
        }
    }

    /// The open file of a descriptor, if this thread may use it in the place of the other one, and whether that makes no difference for what is to
    /// be done, which `writes` or not.
    pub(crate) fn open(&mut self, number: u32, writes: bool) -> Option<(OwnedFd, bool)> {
        let key = (number, writes);
        if let Some(left) = self.others.get_mut(&key) {
            *left -= 1;
            if *left == 0 {
                self.others.remove(&key);
            }
            return None;
        }
        let ((id, _), thread) = (self.of?, self.thread.as_ref()?);
        if self.alike == Some(false) {
            return None;
        }
        let file = thread.get_fd(number).ok()?;
        let found = self.mounts.have(file.as_fd(), id);
        let fits = match found.filter(|_| is_buffered(file.as_fd())) {
            None => false,
            Some(Alike::All) => true,
            Some(Alike::Reads) => !writes,
        };
        if !fits {
            self.others.insert(key, RARELY);
        }
        let alike = fits && *self.alike.get_or_insert_with(|| rights::alike(id));
        Some((file, alike))
    }

    /// Whether files that the thread writes to may become as large as they can, whoever of both writes.
    pub(crate) fn may_grow(&self) -> bool {
        let ours = getrlimit(Resource::Fsize).current.is_none();
        let theirs = |(thread, _)| refit_sys::process::writes_without_limit(thread);
        ours && self.of.is_some_and(|of| theirs(of).unwrap_or(false))
    }
}

/// Whether any address is as good as any other one for what is read.
fn is_buffered(file: BorrowedFd<'_>) -> bool {
    let flags: io::Result<OFlags> = rustix::fs::fcntl_getfl(file).map_err(io::Error::from);
    flags.is_ok_and(|flags| !flags.contains(OFlags::DIRECT))
}
