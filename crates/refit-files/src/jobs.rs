//! Work that must not run on a worker because it makes the kernel send requests to this server.
//!
//! Asking the kernel to write back or drop pages makes it send requests and wait for the replies. A
//! worker that asked would depend on the other workers, and all of them might ask at once. Such
//! work is therefore passed to a thread of its own, together with the reply that the program waits
//! for. Workers never wait for that thread.

use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A piece of work on the server `S`.
type Job<S> = Box<dyn FnOnce(&S) + Send>;

/// The sending end of the queue, used by the workers.
#[derive(Debug)]
pub(crate) struct JobQueue<S>(Mutex<Option<Sender<Job<S>>>>);

/// The receiving end of the queue, used by the thread that runs the work.
pub(crate) struct Jobs<S>(Receiver<Job<S>>);

/// Creates a queue and returns both of its ends.
pub(crate) fn job_queue<S>() -> (JobQueue<S>, Jobs<S>) {
    let (sender, receiver) = channel();
    (JobQueue(Mutex::new(Some(sender))), Jobs(receiver))
}

impl<S> JobQueue<S> {
    /// Queues a job. The job is dropped if the mount is ending.
    pub(crate) fn submit(&self, job: impl FnOnce(&S) + Send + 'static) {
        if let Some(sender) = &*self.0.lock() {
            let _ = sender.send(Box::new(job));
        }
    }

    pub(crate) fn close(&self) {
        self.0.lock().take();
    }
}

impl<S> Jobs<S> {
    /// Runs the jobs until [`JobQueue::close`] is called.
    pub(crate) fn run(self, server: &S) {
        for job in self.0 {
            job(server);
        }
    }
}
