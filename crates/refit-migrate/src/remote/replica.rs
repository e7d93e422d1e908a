//! A group's part at an instance that it did not begin at: a replica of its process, empty at first, in which threads of ours run the
//! instructions of the group's.
//!
//! The first task of the replica, its *keeper*, never runs: it makes threads, and takes mappings away, at the *replica server*'s bidding, the
//! one of our threads that traces it. Each further task has a thread of ours of its own ([`crate::remote::executor`]), which puts mappings in.
//!
//! **No mapping outlives what it shows.** An executor asks what is at an address, and maps it later; in between the origin may have
//! told to forget it. So each forgetting is counted, under the lock that mappings are made under: an answer to a question from before is
//! asked for again ([`Replica::map`], [`crate::lookup::cache`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refit_messages::{InstanceId, Layer, Reply};
use refit_sys::cpu_latency::Awake;
use refit_sys::foreign::Memory;
use refit_sys::memfd;
use refit_sys::words::Words;
use refit_tracer::placement::TOP;

use crate::dsm::Window;
use crate::fault_injection::{self, Step};
use crate::lookup::{LookupAnswer, PendingQueries};
use crate::mm_lock::{HeavyLock, LockMessage};
use crate::origin::address_space::NAME;
use crate::protocol::messages::{
    Arrive, Claim, Descriptor, Follow, GroupId, GroupParams, Invalidate, MemoryMode,
};
use crate::quota::Quota;
use crate::remote::executor::Executor;
use crate::remote::mmap::{Mapped, ReplicaMappings};
use crate::remote::stub;
use crate::stats::Tally;

mod pages;
mod replica_server;

use pages::Pages;
pub(crate) use replica_server::SpareReplicas;
use replica_server::{NewReplica, ReplicaJob};

/// A replica.
pub(crate) struct Replica {
    pub(crate) group: GroupId,
    pub(crate) layer: Arc<Layer>,
    pub(crate) window: Range<u64>,
    /// Where calls are left for the threads' shadows; `None`: they are told by messages.
    pub(crate) slots: Option<&'static [AtomicU64]>,
    /// The pages that are here, where pages move.
    pages: Option<Pages>,
    /// What these may come to, with those of others.
    quota: Arc<Quota>,
    /// What is mapped, and what is known of that. Changed while [`Replica::changes`] is held.
    pub(crate) mapped: Mapped,
    /// How many mappings are made unasked with one that is asked for.
    pub(crate) beside: u16,
    /// What threads here have asked others.
    pub(crate) seeks: PendingQueries,
    /// Had by whoever changes the memory.
    pub(crate) lock: Box<dyn HeavyLock>,
    epoch: u64,
    /// Whether threads go home for each of their calls.
    pub(crate) calls_home: bool,
    /// The replica's number.
    pub(crate) process: u32,
    /// Its memory.
    memory: Memory,
    /// Held while mappings change.
    changes: Mutex<()>,
    jobs: Mutex<Sender<ReplicaJob>>,
    executors: Mutex<BTreeMap<u32, Arc<Executor>>>,
    /// Executors whose threads have ended.
    spare: Mutex<Vec<Arc<Executor>>>,
}

impl Replica {
    /// Makes a replica for a group.
    pub(crate) fn begin(
        group: GroupId,
        params: &GroupParams,
        layer: &Arc<Layer>,
        (spare_replicas, awake, quota): (&SpareReplicas, Option<Arc<Awake>>, &Arc<Quota>),
    ) -> io::Result<Arc<Self>> {
        fault_injection::reach(Step::Replica)?;
        let (frames, slots) = match &params.hold {
            MemoryMode::Borrow { frames, slots, .. } => {
                (open(*frames)?, Some(Words::open(open(*slots)?)?))
            }
            MemoryMode::Move { .. } => {
                (File::from(memfd::create(NAME, TOP, memfd::Pages::Base)?), None)
            }
        };
        let slots = slots.map(|slots| slots.get());
        let moves = slots.is_none();
        let let_in = spare_replicas.let_in(params.window.start, &frames, (moves, awake))?;
        let NewReplica { process, store, hand_over, jobs } = let_in;
        let pages = match store {
            Some(store) => {
                quota.count(store.frames());
                Some(Pages::new(store)?)
            }
            None => None,
        };
        let replica = Arc::new(Self {
            group,
            layer: Arc::clone(layer),
            window: params.window.clone(),
            slots,
            pages,
            quota: Arc::clone(quota),
            mapped: Mapped::default(),
            beside: match params.hold {
                MemoryMode::Borrow { beside, .. } => beside.min(stub::CALLS as u16 - 1),
                MemoryMode::Move { .. } => 0,
            },
            seeks: PendingQueries::default(),
            lock: params.lock.of(layer.own(), says(group, params.epoch, layer)),
            epoch: params.epoch,
            calls_home: params.calls_home,
            process,
            memory: Memory::of(process)?,
            changes: Mutex::default(),
            jobs: Mutex::new(jobs),
            executors: Mutex::default(),
            spare: Mutex::default(),
        });
        let gone = |_| io::Error::other("its replica server has ended at once");
        hand_over.send(Arc::clone(&replica)).map_err(gone)?;
        if let MemoryMode::Move { window } = params.hold {
            replica.hear(if window == 0 { Window::Adaptive } else { Window::Fixed(window) })?;
        }
        Ok(replica)
    }

    /// A thread of the group will run here: what it needs is made.
    pub(crate) fn ready(self: &Arc<Self>, thread: u32) -> io::Result<()> {
        self.executor(thread).map(drop)
    }

    /// Has a thread of the group run here; `reply` is told when it does.
    pub(crate) fn arrive(self: &Arc<Self>, arrive: Arrive, reply: Reply<Arrive>) {
        match self.executor(arrive.thread) {
            Ok(executor) => executor.arrive(arrive, reply),
            Err(error) => reply.say(&Err(error.into()), &[]),
        }
    }

    /// The executor of a thread, which is made if this is the first time that it is here.
    fn executor(self: &Arc<Self>, thread: u32) -> io::Result<Arc<Executor>> {
        if let Some(executor) = self.executors().get(&thread) {
            return Ok(Arc::clone(executor));
        }
        fault_injection::reach(Step::Task)?;
        let spare = self.spare().pop();
        let executor = match spare {
            Some(executor) => executor,
            None => {
                let (tell, told) = mpsc::channel();
                self.ask(ReplicaJob::Thread(tell));
                let ended = |_| io::Error::other("its replica has ended");
                Executor::begin(self, told.recv().map_err(ended)??)?
            }
        };
        self.executors().insert(thread, Arc::clone(&executor));
        Ok(executor)
    }

    /// The executor of a thread that has been here.
    pub(crate) fn known(&self, thread: u32) -> Option<Arc<Executor>> {
        self.executors().get(&thread).cloned()
    }

    /// What is at these addresses is to be asked for again.
    pub(crate) fn forget(&self, forget: Invalidate, reply: Reply<Invalidate>) {
        self.ask(ReplicaJob::Invalidate(forget, reply));
    }

    /// What was forgotten last has changed.
    pub(crate) fn thaw(&self) {
        self.ask(ReplicaJob::InvalidateDone);
    }

    /// Others are to be asked.
    pub(crate) fn follow(&self, follow: Follow, reply: Reply<Follow>) {
        self.ask(ReplicaJob::Follow(follow, reply));
    }

    /// Another instance says something about who may change the memory.
    pub(crate) fn hear_claim(&self, from: InstanceId, claim: Claim) {
        if claim.epoch == self.epoch {
            self.lock.hear(from, claim.word, claim.time);
        }
    }

    /// Another instance is lost.
    pub(crate) fn lose(&self, peer: InstanceId) {
        self.seeks.give_up();
        self.lock.lose(peer);
    }

    /// A thread has ended: its executor serves another one, some day.
    pub(crate) fn vanish(&self, thread: u32) {
        if let Some(executor) = self.executors().remove(&thread) {
            executor.rest();
            self.spare().push(executor);
        }
    }

    /// What all executors have counted until now.
    pub(crate) fn counted(&self) -> Tally {
        let mut all = Tally::default();
        self.executors().values().chain(self.spare().iter()).for_each(|one| all.add(&one.tally()));
        all.pages = self.pages.as_ref().map(Pages::came).unwrap_or_default();
        all
    }

    /// Ends all.
    pub(crate) fn end(&self) {
        let executors = std::mem::take(&mut *self.executors());
        executors.values().for_each(|executor| executor.end());
        self.spare().drain(..).for_each(|executor| executor.end());
        if let Some(pages) = &self.pages {
            pages.end();
        }
        self.seeks.end();
        self.lock.end();
        self.ask(ReplicaJob::End);
    }

    /// Waits until no mapping is being made.
    pub(crate) fn settled(&self) {
        drop(self.lock());
    }

    /// Does what must not be overtaken by a change of the memory: none is made before it is done.
    pub(crate) fn unchanged<R>(&self, work: impl FnOnce() -> R) -> R {
        let _changes = self.lock();
        work()
    }

    /// Makes mappings that are an answer; `None`: it has to be asked again.
    pub(crate) fn map<R>(&self, told: &LookupAnswer, make: impl FnOnce() -> R) -> Option<R> {
        let _changes = self.lock();
        let holds = told.holds(&self.mapped.known());
        holds.then(make)
    }

    /// For what [`mappings`](crate::remote::mmap) makes.
    pub(crate) fn replica(&self) -> ReplicaMappings<'_> {
        ReplicaMappings { window: &self.window, memory: &self.memory, mapped: &self.mapped }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn executors(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Executor>>> {
        self.executors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Arc<Executor>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, job: ReplicaJob) {
        // A replica server that has ended has dropped what waits for an answer.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }
}

/// How a replica says something about who may change the memory.
fn says(
    group: GroupId,
    epoch: u64,
    layer: &Arc<Layer>,
) -> impl Fn(InstanceId, LockMessage, u64) -> bool + Send + Sync + 'static {
    let layer = Arc::clone(layer);
    move |to, word, time| layer.send(to, &Claim { group, epoch, word, time }, &[]).is_ok()
}

/// A descriptor that another process of this host holds, opened anew.
fn open(descriptor: Descriptor) -> io::Result<File> {
    let Descriptor { process, number } = descriptor;
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{number}"))
}
