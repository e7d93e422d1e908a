//! Counters of requests, and a journal that proves that each was answered exactly once.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEvent {
    /// The server took it up.
    Began,
    /// The server handed its answer to the kernel.
    Answered,
}

/// What a mount has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountStats {
    /// Requests taken up that want an answer (`FORGET` wants none).
    pub requests: u64,
    /// Requests answered, errors included.
    pub replies: u64,
    /// Requests answered with an error; "no such file" is one.
    pub errors: u64,
    /// Requests in which the server panicked; they were answered with `EIO`.
    pub panics: u64,
    /// `READ` requests, those that the kernel's cache did not answer.
    pub reads: u64,
    /// `WRITE` requests.
    pub writes: u64,
    /// Bytes read by those requests.
    pub bytes_read: u64,
    /// Bytes written by those requests.
    pub bytes_written: u64,
    /// Files, directories and so on that the kernel knows now.
    pub inodes: u64,
    /// How many times files are open. A close counts once the kernel has heard that it is known
    /// here.
    pub opens: u64,
    /// Files that wait for being written to the host.
    pub waiting_for_write_back: u64,
    /// Times that writing a file to the host failed (it is tried again, and `fsync` says so).
    pub write_back_errors: u64,
    /// Times that a file was found changed on the host by others, and what was held of it was
    /// dropped.
    pub changed_beside: u64,
    /// Those of them in which pages that were not stored yet were written over what others had
    /// written.
    pub written_over: u64,
}

/// Counts requests; keeps `(unique, event)` pairs while it is switched on.
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
    /// A test wants to see what becomes of a request in which the server panics.
    pub(crate) panic_next: AtomicBool,
    on: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
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

    /// Starts keeping events, up to `capacity` of them; those after that are counted as lost.
    pub(crate) fn start(&self, capacity: usize) {
        *self.kept.lock() = Kept { events: Vec::new(), capacity, lost: 0 };
        self.on.store(true, Relaxed);
    }

    /// Ends keeping; the events and how many were lost.
    pub(crate) fn stop(&self) -> (Vec<(u64, RequestEvent)>, u64) {
        self.on.store(false, Relaxed);
        let kept = std::mem::take(&mut *self.kept.lock());
        (kept.events, kept.lost)
    }
}
