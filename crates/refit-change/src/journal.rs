//! The journal: the last changes of an instance, in order, for readers and followers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::report::{ChangeId, Report};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// A report with its position in the journal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The position in the journal, from 0, never used twice.
    pub seq: u64,
    /// The report of the change.
    pub report: std::sync::Arc<Report>,
}

/// The next item for a reader that follows the journal.
#[derive(Clone, Debug)]
pub enum Follow {
    /// The next entry.
    Next(Entry),
    /// This number of entries was overwritten before they were read.
    Lost(u64),
    /// No entry within the given time.
    Quiet,
}

/// The last `capacity` changes. Older ones are dropped and counted.
#[derive(Debug)]
pub struct Journal {
    /// Protects the entries, their numbers and totals. Held for one operation on them.
    inner: Mutex<Inner>,
    /// Notified when an entry has been written.
    written: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    next_seq: u64,
    last_id: ChangeId,
    totals: BTreeMap<(String, &'static str), Total>,
}

/// The sum of all changes of one mechanism with the same outcome, including those that are no
/// longer kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The number of changes.
    pub changes: u64,
    /// The time that they took, in nanoseconds.
    pub ns: u64,
    /// The number of calls that had to wait for them.
    pub blocked: u64,
}

impl Journal {
    /// Creates an empty journal that keeps the last `capacity` reports.
    pub fn new(capacity: usize) -> Self {
        Journal { inner: Mutex::default(), written: Condvar::new(), capacity: capacity.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns the number for a change that begins now.
    pub fn next_id(&self) -> ChangeId {
        let mut inner = self.lock();
        inner.last_id += 1;
        inner.last_id
    }

    /// Appends the report of a change that has ended.
    pub fn write(&self, report: Report) {
        let mut inner = self.lock();
        let seq = inner.next_seq;
        inner.next_seq += 1;
        let ended = (report.change.mechanism.clone(), report.end.word());
        let total = inner.totals.entry(ended).or_default();
        total.changes += 1;
        total.ns += report.total_ns();
        total.blocked += report.blocked;
        if inner.entries.len() == self.capacity {
            inner.entries.pop_front();
        }
        inner.entries.push_back(Entry { seq, report: std::sync::Arc::new(report) });
        drop(inner);
        self.written.notify_all();
    }

    /// Continues the journal of another instance, of which `entries` are kept, in an empty one.
    pub fn continue_with(&self, entries: Vec<Entry>) {
        let mut inner = self.lock();
        let last = entries.last().map_or(0, |entry| entry.seq + 1);
        inner.next_seq = inner.next_seq.max(last);
        for entry in entries {
            inner.last_id = inner.last_id.max(entry.report.change.id);
            inner.entries.push_back(entry);
        }
        let surplus = inner.entries.len().saturating_sub(self.capacity);
        inner.entries.drain(..surplus);
    }

    /// Returns all entries that are still kept, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.iter().cloned().collect()
    }

    /// Returns the number of ended changes, by mechanism and [`End::word`](crate::End::word).
    pub fn totals(&self) -> BTreeMap<(String, &'static str), Total> {
        self.lock().totals.clone()
    }

    /// Waits for the entry with number `seq`, but no longer than `timeout`.
    pub fn follow(&self, seq: u64, timeout: Duration) -> Follow {
        let mut inner = self.lock();
        self.written.wait_while_for(&mut inner, |i| i.next_seq <= seq, timeout);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::report::{Change, End};

    const AT_ONCE: Duration = Duration::ZERO;
    /// Never reached: the entry waited for comes, or the test is wrong.
    const LONG: Duration = Duration::from_secs(60);

    fn report(id: ChangeId) -> Report {
        Report {
            change: Change::new(id, "swap", "fcm:/a", "shared", "shared", "test"),
            phases: vec![],
            end: End::Committed,
            forwarded: 0,
            blocked: 0,
            longest_block_ns: 0,
            blockers: vec![],
            target_gone: false,
            objects: 1,
            attempts: 1,
            late: false,
            transfers: vec![],
            effect: String::new(),
        }
    }

    fn written(journal: &Journal, n: u64) {
        for _ in 0..n {
            let id = journal.next_id();
            journal.write(report(id));
        }
    }

    #[test]
    fn numbers_start_at_one_and_are_never_used_twice() {
        let journal = Journal::new(4);
        assert_eq!([journal.next_id(), journal.next_id(), journal.next_id()], [1, 2, 3]);
    }

    #[test]
    fn keeps_the_last_ones_in_order() {
        let journal = Journal::new(3);
        written(&journal, 5);
        let kept: Vec<_> = journal.entries().iter().map(|e| (e.seq, e.report.change.id)).collect();
        assert_eq!(kept, [(2, 3), (3, 4), (4, 5)]);
    }

    #[test]
    fn a_reader_that_is_too_late_learns_how_much_it_lost() {
        let journal = Journal::new(3);
        written(&journal, 5);
        assert!(matches!(journal.follow(0, AT_ONCE), Follow::Lost(2)));
        assert!(matches!(journal.follow(2, AT_ONCE), Follow::Next(e) if e.seq == 2));
        assert!(matches!(journal.follow(4, AT_ONCE), Follow::Next(e) if e.seq == 4));
        assert!(matches!(journal.follow(5, AT_ONCE), Follow::Quiet));
    }

    #[test]
    fn a_waiting_reader_is_woken_by_the_entry_it_waits_for() {
        let journal = Arc::new(Journal::new(3));
        let reader = thread::spawn({
            let journal = Arc::clone(&journal);
            move || journal.follow(1, LONG)
        });
        written(&journal, 2);
        assert!(matches!(reader.join(), Ok(Follow::Next(e)) if e.seq == 1));
    }

    #[test]
    fn a_follower_sees_every_entry_once_and_in_order() {
        let journal = Arc::new(Journal::new(10_000));
        let writer = thread::spawn({
            let journal = Arc::clone(&journal);
            move || written(&journal, 5_000)
        });
        for seq in 0..5_000 {
            match journal.follow(seq, LONG) {
                Follow::Next(entry) => assert_eq!(entry.seq, seq),
                other => panic!("entry {seq}: {other:?}"),
            }
        }
        assert!(writer.join().is_ok());
    }
}
