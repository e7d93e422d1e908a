//! Work that a worker must not do itself: whatever makes the kernel call the server while it is done.
//!
//! Asking the kernel to write back or drop pages makes it send requests and wait for the answers. A worker that did
//! that would wait for the others, and all of them might. So such work is handed to one thread of its own, together
//! with the answer that the program waits for. Workers never wait for that thread.

use crate::server::Server;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

type Job = Box<dyn FnOnce(&Server) + Send>;

/// Where workers leave such work.
#[derive(Debug)]
pub(crate) struct Aside(Mutex<Option<Sender<Job>>>);

/// The other end: the thread's.
pub(crate) struct Jobs(Receiver<Job>);

pub(crate) fn aside() -> (Aside, Jobs) {
    let (sender, receiver) = channel();
    (Aside(Mutex::new(Some(sender))), Jobs(receiver))
}

impl Aside {
    /// Hands work over; dropped unheard when the mount is ending.
    pub(crate) fn hand(&self, job: impl FnOnce(&Server) + Send + 'static) {
        if let Some(sender) = &*self.0.lock() {
            let _ = sender.send(Box::new(job));
        }
    }

    pub(crate) fn close(&self) {
        self.0.lock().take();
    }
}

impl Jobs {
    /// The loop of the thread; ends when [`Aside::close`] has been called.
    pub(crate) fn run(self, server: &Server) {
        for job in self.0 {
            job(server);
        }
    }
}
