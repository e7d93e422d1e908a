//! A replica, and the operations that messages request of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::{InstanceId, Layer, Reply};
use refit_sys::foreign::Memory;

use crate::lookup::{LookupAnswer, PendingQueries};
use crate::mm_lock::HeavyLock;
use crate::protocol::messages::{Claim, Follow, GroupId, Invalidate};
use crate::quota::Quota;
use crate::remote::executor::Executor;
use crate::remote::mmap::{Mapped, ReplicaMappings};
use crate::remote::replica::job::ReplicaJob;
use crate::remote::replica::pages::Pages;
use crate::stats::Tally;

/// A group's replica at this node.
///
/// # Locks
/// `changes`, then the mapping cache in `mapped`. `executors`, then `spare`. The sender of `jobs`
/// is locked for one send.
pub(crate) struct Replica {
    pub(crate) group: GroupId,
    pub(crate) layer: Arc<Layer>,
    /// The addresses that are refit's in the group's processes.
    pub(crate) window: Range<u64>,
    /// The slots in which calls are left for the threads' shadows; `None`: calls go by messages.
    pub(crate) slots: Option<&'static [AtomicU64]>,
    /// The pages that are here, where pages move.
    pub(super) pages: Option<Pages>,
    /// Bounds the memory of these and of other replicas' pages.
    pub(super) quota: Arc<Quota>,
    /// The mappings, and the mapping cache. Changed only under `changes`.
    pub(crate) mapped: Mapped,
    /// The number of mappings that are made unasked with one that is looked up.
    pub(crate) fault_around: u16,
    /// The lookups of threads here that others have not answered yet.
    pub(crate) queries: PendingQueries,
    /// Held by a thread that changes the group's memory.
    pub(crate) lock: Box<dyn HeavyLock>,
    pub(super) epoch: u64,
    /// Whether threads return to their origin for each of their calls.
    pub(crate) calls_home: bool,
    /// The replica's process.
    pub(crate) process: u32,
    pub(super) memory: Memory,
    /// Held while mappings change.
    pub(super) changes: Mutex<()>,
    pub(super) jobs: Mutex<Sender<ReplicaJob>>,
    /// By thread.
    pub(super) executors: Mutex<BTreeMap<u32, Arc<Executor>>>,
    /// Executors whose threads have ended.
    pub(super) spare: Mutex<Vec<Arc<Executor>>>,
}

impl Replica {
    /// Returns the executor of a thread that has been here.
    pub(crate) fn existing_executor(&self, thread: u32) -> Option<Arc<Executor>> {
        self.executors().get(&thread).cloned()
    }

    /// Removes mappings, so that their addresses are looked up again, and replies.
    pub(crate) fn invalidate(&self, invalidate: Invalidate, reply: Reply<Invalidate>) {
        self.send_job(ReplicaJob::Invalidate(invalidate, reply));
    }

    /// Ends the freeze of what was invalidated last: it has changed.
    pub(crate) fn invalidate_done(&self) {
        self.send_job(ReplicaJob::InvalidateDone);
    }

    /// Changes which nodes have replicas, and which of them are asked in lookups; replies.
    pub(crate) fn follow(&self, follow: Follow, reply: Reply<Follow>) {
        self.send_job(ReplicaJob::Follow(follow, reply));
    }

    /// Handles a claim of another node on the lock of the group's memory.
    pub(crate) fn hear_claim(&self, from: InstanceId, claim: Claim) {
        if claim.epoch == self.epoch {
            self.lock.hear(from, claim.word, claim.time);
        }
    }

    /// Stops to wait for a node that is lost.
    pub(crate) fn on_peer_lost(&self, peer: InstanceId) {
        self.queries.give_up();
        self.lock.forget_node(peer);
    }

    /// Frees the executor of a thread that has ended for another thread.
    pub(crate) fn end_thread(&self, thread: u32) {
        if let Some(executor) = self.executors().remove(&thread) {
            executor.rest();
            self.spare().push(executor);
        }
    }

    /// Returns what all executors have counted so far.
    pub(crate) fn tally(&self) -> Tally {
        let mut all = Tally::default();
        self.executors().values().chain(self.spare().iter()).for_each(|one| all.add(&one.tally()));
        all.pages = self.pages.as_ref().map(Pages::received).unwrap_or_default();
        all
    }

    /// Ends the replica.
    pub(crate) fn end(&self) {
        let executors = std::mem::take(&mut *self.executors());
        executors.values().for_each(|executor| executor.end());
        self.spare().drain(..).for_each(|executor| executor.end());
        if let Some(pages) = &self.pages {
            pages.end();
        }
        self.queries.end();
        self.lock.end();
        self.send_job(ReplicaJob::End);
    }

    /// Waits until no mapping is in the making.
    pub(crate) fn wait_for_mappings(&self) {
        drop(self.changes());
    }

    /// Does `work` during which no mapping is made or removed.
    pub(crate) fn unchanged<R>(&self, work: impl FnOnce() -> R) -> R {
        let _changes = self.changes();
        work()
    }

    /// Makes the mappings of an answer. Returns `None` if the answer is too old, and the lookup
    /// must be repeated.
    pub(crate) fn map<R>(&self, answer: &LookupAnswer, make: impl FnOnce() -> R) -> Option<R> {
        let _changes = self.changes();
        let holds = answer.holds(&self.mapped.known());
        holds.then(make)
    }

    /// Returns what [`crate::remote::mmap`] needs to make mappings.
    pub(crate) fn mappings(&self) -> ReplicaMappings<'_> {
        ReplicaMappings { window: &self.window, memory: &self.memory, mapped: &self.mapped }
    }

    pub(super) fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    pub(super) fn executors(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Executor>>> {
        self.executors.lock()
    }

    pub(super) fn spare(&self) -> MutexGuard<'_, Vec<Arc<Executor>>> {
        self.spare.lock()
    }

    pub(super) fn send_job(&self, job: ReplicaJob) {
        // A replica server that has ended has dropped the channels of those that wait for answers.
        let _ = self.jobs.lock().send(job);
    }
}
