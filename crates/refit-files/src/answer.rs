//! Executes a request of the kernel and replies to it.
//!
//! Only the calls of objects within a request count as requests of the object system, which swaps
//! wait for; the request of the kernel as a whole does not. What the server waits for between the
//! calls (the host's disk, locks, page frames, the program that a reply wakes up) therefore delays
//! no swap. References to a file's objects stay valid between the calls because `Inode::data` is
//! locked. If a request of the kernel panics, it is answered with `EIO`.

use crate::events;
use crate::first_request::AwaitedConnection;
use crate::requests::InProgress;
use crate::server::{Caller, FinishOnDrop, Server};
use crate::status::Xattr;
use fuser::{
    Errno as Answer, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request,
};
use refit_sys::placement;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The time for which the kernel may cache names and attributes. The period is long because changes
/// go through the mount; a change made beside the mount is found when the file is opened (see
/// `outdated`).
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The generation of every inode. The inode on the host is held open for as long as the kernel
/// knows it, so that its number alone identifies it.
pub(crate) const GENERATION: Generation = Generation(0);

/// The implementation of the FUSE library's [`Filesystem`](fuser::Filesystem); each worker has one.
pub(crate) struct Fuse {
    pub(crate) server: Arc<Server>,
    /// The connection that the worker reads from after its first request.
    pub(crate) awaited: Arc<AwaitedConnection>,
    /// Finishes the server when the last worker has ended.
    pub(crate) _finish: Arc<FinishOnDrop>,
}

impl Fuse {
    /// Executes a request, sends the reply, and lets this thread follow the calling thread to its
    /// processor.
    pub(crate) fn serve<T>(
        &self,
        from: &Request,
        work: impl FnOnce(&Server, Caller) -> Result<T, Errno>,
        send: impl FnOnce(Result<T, Answer>),
    ) {
        let follow = |outcome| {
            placement::follow(from.pid());
            send(outcome);
        };
        self.serve_unseen(from, work, follow);
    }

    /// Like [`serve`](Self::serve), but does not look up the calling thread in `/proc`.
    ///
    /// A thread in `execve` closes files, about which the kernel may send this request. Until
    /// `execve` has returned, readers of the thread's files in `/proc` block (Linux 6.18), so that
    /// the two threads would wait for each other.
    fn serve_unseen<T>(
        &self,
        from: &Request,
        work: impl FnOnce(&Server, Caller) -> Result<T, Errno>,
        send: impl FnOnce(Result<T, Answer>),
    ) {
        let request = self.begin(from);
        send(self.carry_out(from, &request, work));
        drop(request);
        self.server.spin.wait();
    }

    /// Begins a request on this thread. The result must be kept until the reply has been sent.
    pub(crate) fn begin(&self, from: &Request) -> InProgress<'_> {
        let request = self.server.requests.begin(from.unique().0);
        if let Some(logged) = &request.repeated {
            self.server.table.take_back(logged);
        }
        request
    }

    /// Executes a request that has [begun](Self::begin) and returns the reply to send, for replies
    /// that borrow what `work` owns.
    pub(crate) fn carry_out<T>(
        &self,
        from: &Request,
        request: &InProgress<'_>,
        work: impl FnOnce(&Server, Caller) -> Result<T, Errno>,
    ) -> Result<T, Answer> {
        let server = &*self.server;
        let unique = from.unique().0;
        let _span = events::REQUEST.span([unique, u64::from(from.pid())]);
        server.journal.began(unique);
        let caller = Caller::of(from);
        let permitted = || request.permit().and_then(|()| work(server, caller));
        let outcome = catch_unwind(AssertUnwindSafe(permitted));
        server.concluded(unique, outcome)
    }

    /// Executes a request after the kernel has written back the pages that it has cached of `file`.
    /// The write-back sends requests to this server and waits for the replies, so another thread
    /// does it.
    pub(crate) fn after_write_back<T: 'static>(
        &self,
        from: &Request,
        file: INodeNo,
        work: impl FnOnce(&Server) -> Result<T, Errno> + Send + 'static,
        send: impl FnOnce(Result<T, Answer>) + Send + 'static,
    ) {
        let unique = from.unique().0;
        let request = self.begin(from);
        self.server.journal.began(unique);
        if let Err(errno) = request.permit() {
            return send(self.server.concluded(unique, Ok(Err(errno))));
        }
        let slot = request.detach();
        self.server.jobs.submit(move |server| {
            let request = server.requests.resume(slot);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if let Some(notifier) = server.notifier.get() {
                    let _ = notifier.inval_inode(file, 0, 0);
                }
                work(server)
            }));
            send(server.concluded(unique, outcome));
            drop(request);
        });
    }

    pub(crate) fn serve_empty(
        &self,
        from: &Request,
        reply: ReplyEmpty,
        work: impl FnOnce(&Server, Caller) -> Result<(), Errno>,
    ) {
        self.serve_unseen(from, work, |outcome| match outcome {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        });
    }

    pub(crate) fn serve_entry(
        &self,
        from: &Request,
        reply: ReplyEntry,
        work: impl FnOnce(&Server, Caller) -> Result<fuser::FileAttr, Errno>,
    ) {
        let work = |server: &Server, caller| {
            let panics = &server.journal.panic_next;
            assert!(!panics.load(Relaxed) || !panics.swap(false, Relaxed), "a test wants it");
            work(server, caller)
        };
        self.serve(from, work, |outcome| match outcome {
            Ok(attr) => reply.entry(&TTL, &attr, GENERATION),
            Err(errno) => reply.error(errno),
        });
    }

    pub(crate) fn serve_attr(
        &self,
        from: &Request,
        reply: ReplyAttr,
        work: impl FnOnce(&Server, Caller) -> Result<fuser::FileAttr, Errno>,
    ) {
        self.serve_unseen(from, work, |outcome| match outcome {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(errno),
        });
    }

    pub(crate) fn serve_xattr(
        &self,
        from: &Request,
        reply: ReplyXattr,
        work: impl FnOnce(&Server, Caller) -> Result<Xattr, Errno>,
    ) {
        self.serve(from, work, |outcome| match outcome {
            Ok(Xattr::Size(size)) => reply.size(size),
            Ok(Xattr::Value(value)) => reply.data(&value),
            Err(errno) => reply.error(errno),
        });
    }
}

impl Server {
    /// Returns the reply to a request that has been executed or has panicked, and records it in the
    /// journal.
    pub(crate) fn concluded<T>(
        &self,
        unique: u64,
        outcome: std::thread::Result<Result<T, Errno>>,
    ) -> Result<T, Answer> {
        let outcome = outcome.unwrap_or_else(|_| {
            self.journal.panics.fetch_add(1, Relaxed);
            Err(Errno::IO)
        });
        self.journal.answered(unique, outcome.is_err());
        outcome.map_err(|errno| Answer::from_i32(errno.raw_os_error()))
    }
}
