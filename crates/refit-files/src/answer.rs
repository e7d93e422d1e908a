//! Carrying out a request of the kernel, and answering it.
//!
//! Each call of an object is a request of the object system, for which swaps wait; the request of
//! the kernel as a whole is none. So what the server waits for between the calls (the host's disk,
//! locks, frames, the program that the answer wakes up) holds up no swap. References to a file's
//! objects stay good between the calls since `Inode::data` is held. A panic in one request of the
//! kernel becomes `EIO` for that request.

use crate::events;
use crate::server::{Caller, Server};
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

/// How long the kernel may rely on names and attributes. Changes go through the mount, so for long;
/// what is changed beside it is found when a file is opened (`outdated`).
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// A host inode is held for as long as the kernel knows it, so that its number alone identifies it.
pub(crate) const GENERATION: Generation = Generation(0);

/// The file system as the library wants it.
pub(crate) struct Fuse {
    pub(crate) server: Arc<Server>,
}

impl Fuse {
    /// Carries out one request and sends the answer.
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

    /// As [`serve`](Self::serve), without a look at the thread that waits. A thread that becomes another program closes files, for which the kernel may ask for
    /// this, and until then whoever looks at it is made to wait (Linux 6.18): each would wait for the other.
    fn serve_unseen<T>(
        &self,
        from: &Request,
        work: impl FnOnce(&Server, Caller) -> Result<T, Errno>,
        send: impl FnOnce(Result<T, Answer>),
    ) {
        send(self.carry_out(from, work));
        self.server.spin.wait();
    }

    /// Carries out one request; what to answer. For what cannot be sent as long as `work` is around.
    pub(crate) fn carry_out<T>(
        &self,
        from: &Request,
        work: impl FnOnce(&Server, Caller) -> Result<T, Errno>,
    ) -> Result<T, Answer> {
        let server = &*self.server;
        let unique = from.unique().0;
        let _request = events::REQUEST.span([unique, u64::from(from.pid())]);
        server.journal.began(unique);
        let caller = Caller::of(from);
        let outcome = catch_unwind(AssertUnwindSafe(|| work(server, caller)));
        server.concluded(unique, outcome)
    }

    /// Carries out one request once the kernel has sent all that it has collected of a file. That makes it send
    /// requests and wait for the answers, so another thread does it.
    pub(crate) fn after_the_kernels_data<T: 'static>(
        &self,
        from: &Request,
        file: INodeNo,
        work: impl FnOnce(&Server) -> Result<T, Errno> + Send + 'static,
        send: impl FnOnce(Result<T, Answer>) + Send + 'static,
    ) {
        let unique = from.unique().0;
        self.server.journal.began(unique);
        self.server.aside.hand(move |server| {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if let Some(notifier) = server.notifier.get() {
                    let _ = notifier.inval_inode(file, 0, 0);
                }
                work(server)
            }));
            send(server.concluded(unique, outcome));
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
    /// What to answer to a request that has been carried out or has panicked.
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
