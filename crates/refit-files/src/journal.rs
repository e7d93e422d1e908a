//! Counters of requests, and a journal that proves that each request was answered exactly once.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A step in the life of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// The server has received the request.
    Began,
    /// The server has passed the reply to the kernel.
    Answered,
}

/// The counters of a mount since it was mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountStats {
    /// Requests received that need a reply (`FORGET` needs none).
    pub requests: u64,
    /// Requests answered, including those answered with an error.
    pub replies: u64,
    /// Requests answered with an error; `ENOENT` is one.
    pub errors: u64,
    /// Requests in which the server panicked, which were answered with `EIO`.
    pub panics: u64,
    /// `READ` requests, which are those that the kernel's cache did not answer.
    pub reads: u64,
    /// `WRITE` requests.
    pub writes: u64,
    /// Bytes read by those requests.
    pub bytes_read: u64,
    /// Bytes written by those requests.
    pub bytes_written: u64,
    /// Inodes that the kernel currently knows.
    pub inodes: u64,
    /// Open files, counted once per open. A close counts once the kernel has received the reply to
    /// it.
    pub opens: u64,
    /// The regular files that are open.
    pub files: OpenFiles,
    /// Files waiting for write-back to the host.
    pub waiting_for_write_back: u64,
    /// Failed attempts to write a file to the host. Each is repeated, and `fsync` reports it.
    pub write_back_errors: u64,
    /// Times that a file was found to be changed on the host by others, whereupon its cached data
    /// was dropped.
    pub changed_beside: u64,
    /// The number of those changes for which dirty pages overwrote what others had written.
    pub written_over: u64,
}

/// The number of regular files that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// Open at least once.
    pub open: u64,
    /// Open more than once.
    pub shared: u64,
    /// Accessed on the host by the kernel.
    pub passed_through: u64,
}

/// Counts requests, and records `(unique, event)` pairs while recording is on.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) requests: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) opens: AtomicU64,
    pub(crate) write_back_errors: AtomicU64,
    pub(crate) changed_beside: AtomicU64,
    pub(crate) written_over: AtomicU64,
    /// Whether the next request panics, for a test.
    pub(crate) panic_next: AtomicBool,
    on: AtomicBool,
    kept: Mutex<RecordedEvents>,
}

#[derive(Debug, Default)]
struct RecordedEvents {
    events: Vec<(u64, RequestEvent)>,
    capacity: usize,
    lost: u64,
}

impl Journal {
    pub(crate) fn began(&self, unique: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.keep(unique, RequestEvent::Began);
    }

    pub(crate) fn answered(&self, unique: u64, error: bool) {
        self.replies.fetch_add(1, Relaxed);
        if error {
            self.errors.fetch_add(1, Relaxed);
        }
        self.keep(unique, RequestEvent::Answered);
    }

    fn keep(&self, unique: u64, event: RequestEvent) {
        if !self.on.load(Relaxed) {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.events.len() < kept.capacity {
            kept.events.push((unique, event));
        } else {
            kept.lost += 1;
        }
    }

    /// Starts recording, up to `capacity` events. Later events are counted as lost.
    pub(crate) fn start(&self, capacity: usize) {
        *self.kept.lock() = RecordedEvents { events: Vec::new(), capacity, lost: 0 };
        self.on.store(true, Relaxed);
    }

    /// Stops recording. Returns the events and the number of lost ones.
    pub(crate) fn stop(&self) -> (Vec<(u64, RequestEvent)>, u64) {
        self.on.store(false, Relaxed);
        let kept = std::mem::take(&mut *self.kept.lock());
        (kept.events, kept.lost)
    }
}
