//! The journal: the last changes of an instance, in order, to be read and to be followed.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::report::{ChangeId, Report};

/// A report with its place in the journal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Place in the journal, from 0, never used twice.
    pub seq: u64,
    /// What happened.
    pub report: std::sync::Arc<Report>,
}

/// What a reader that follows the journal gets next.
#[derive(Clone, Debug)]
pub enum Follow {
    /// The next entry.
    Next(Entry),
    /// Entries that were overwritten before they were read; how many.
    Lost(u64),
    /// Nothing within the time given.
    Quiet,
}

/// The last `capacity` changes. Older ones are dropped and counted.
#[derive(Debug)]
pub struct Journal {
    inner: Mutex<Inner>,
    written: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    next_seq: u64,
    last_id: ChangeId,
}

impl Journal {
    /// An empty journal that keeps the last `capacity` reports.
    pub fn new(capacity: usize) -> Self {
        Journal { inner: Mutex::default(), written: Condvar::new(), capacity: capacity.max(1) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // A reader that panicked while it held the lock has changed nothing.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number for a change that begins now.
    pub fn next_id(&self) -> ChangeId {
        let mut inner = self.lock();
        inner.last_id += 1;
        inner.last_id
    }

    /// Writes a report of a change that has ended.
    pub fn write(&self, report: Report) {
        let mut inner = self.lock();
        let seq = inner.next_seq;
        inner.next_seq += 1;
        if inner.entries.len() == self.capacity {
            inner.entries.pop_front();
        }
        inner.entries.push_back(Entry { seq, report: std::sync::Arc::new(report) });
        drop(inner);
        self.written.notify_all();
    }

    /// Everything that is still kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.iter().cloned().collect()
    }

    /// Waits up to `patience` for the entry with number `seq`.
    pub fn follow(&self, seq: u64, patience: Duration) -> Follow {
        let inner = self.lock();
        let (inner, _) = self
            .written
            .wait_timeout_while(inner, patience, |i| i.next_seq <= seq)
            .unwrap_or_else(PoisonError::into_inner);
        match inner.entries.front() {
            _ if inner.next_seq <= seq => Follow::Quiet,
            Some(first) if first.seq > seq => Follow::Lost(first.seq - seq),
            Some(first) => {
                let index = usize::try_from(seq - first.seq).unwrap_or(usize::MAX);
                inner.entries.get(index).cloned().map_or(Follow::Quiet, Follow::Next)
            }
            None => Follow::Quiet,
        }
    }
}
