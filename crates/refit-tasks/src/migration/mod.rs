//! Programs that move: whole, or thread by thread, to other kernel instances and back (Katz 2014, chapter 5).
//!
//! ```text
//!   origin                                          another instance
//!   program ─ shadow of a thread                    replica ─ the thread's instructions
//!      │         makes its system calls  ◄─ slot ─      │  executor: one of our threads each
//!      ▼                                                ▼
//!   Supervisor (who follows) ◄─► coordinator  ◄── messages ──► Replica
//!                             └ AddressSpace: memory becomes frames, which replicas map when they touch it
//! ```
//!
//! A thread has two halves. The *user half*, its registers and what its instructions do with memory, is what moves. The *kernel half*, all
//! that the kernel keeps for it (number, descriptors, signals and their handlers, children, timers, locks), stays where the program
//! began: there is nothing of it that would have to be carried, named anew or imitated. That half is the thread's shadow, and makes its
//! system calls.
//!
//! Does: move threads ([`Migration::move_to`], [`Migration::spread`]), tell where they are ([`Migration::places`]).
//! Does not: decide where a thread is better off.

mod advice;
mod answers;
mod calls;
mod changes;
mod consistency;
mod coordinator;
mod counts;
mod detach_attach;
mod executor;
mod faults;
mod files;
mod first_move;
mod locks;
mod mailbox;
mod mappings;
mod pages;
mod planting;
mod proxy;
mod quota;
mod remote_programs;
mod replica;
mod retrieval;
mod returns;
mod space;
mod stub;
mod thread_state;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use refit_messages::{ENDED, InstanceId, Layer, Reply};
use refit_sys::cpu_latency::{Awake, Watch};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::node::Setting;
use crate::supervisor::Supervisor;
use crate::supervisor::moves::TracerEvent;
use coordinator::{Command, Coordinator, Means, Pages, QueuedCommand};
use counts::Ledgers;
use faults::Step;
use pages::PAGE;
use quota::Quota;
use remote_programs::RemotePrograms;
use replica::{Replica, SpareReplicas};
use returns::Returns;
use wire::{Arrive, Hold, Particulars, Prepare, Teardown};

pub(crate) use calls::{Request, is_watched};
pub use counts::{MoveCounts, PageCounts, Tally, Times, Traffic};
pub use locks::Lock;
pub use pages::Window;
pub use retrieval::Protocol;
pub use wire::GroupId;

/// Why a thread is not where it was wanted; it goes on where it was.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum MoveError {
    /// No program of this instance has such a process.
    #[error("no program that began at this instance has a process {0}")]
    NoProcess(u32),
    /// No such thread.
    #[error("the program has no thread {0}")]
    NoThread(u32),
    /// There is no such instance.
    #[error("there is no instance {0}")]
    NoInstance(u16),
    /// The instance was there and is lost; it may come back.
    #[error("instance {number} is lost: {why}")]
    Absent {
        /// Its number.
        number: u16,
        /// What told of the loss.
        why: String,
    },
    /// The program cannot be moved.
    #[error("it is not movable: {0}")]
    NotMovable(String),
    /// Something stood in the way.
    #[error("{0}")]
    Refused(String),
    /// An instance does not own the memory that it needs.
    #[error("{0}")]
    NoMemory(String),
    /// It has ended meanwhile.
    #[error("it has ended")]
    Ended,
}

impl From<io::Error> for MoveError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::QuotaExceeded => Self::NoMemory(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// Where threads are that are not where they began: by process, and by thread.
#[derive(Debug, Default)]
pub(crate) struct Places {
    places: Mutex<BTreeMap<u32, BTreeMap<u32, u16>>>,
}

impl Places {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, BTreeMap<u32, u16>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, process: u32, thread: u32, at: InstanceId) {
        self.all().entry(process).or_default().insert(thread, at.0);
    }

    fn end(&self, process: u32, thread: u32) {
        self.all().entry(process).or_default().remove(&thread);
    }

    fn forget(&self, process: u32) {
        self.all().remove(&process);
    }
}

/// What an instance has of programs that move: those that began here, and replicas.
pub struct Migration {
    own: InstanceId,
    layer: OnceLock<Arc<Layer>>,
    /// By process: of its last program that has moved.
    coordinators: Mutex<BTreeMap<u32, (GroupId, Sender<QueuedCommand>)>>,
    /// How many programs have had a coordinator.
    programs: AtomicU64,
    /// For each process one after the other makes a coordinator.
    turns: Mutex<BTreeMap<u32, Arc<Mutex<()>>>>,
    replicas: Mutex<BTreeMap<GroupId, Arc<Replica>>>,
    places: Arc<Places>,
    remote_programs: Arc<RemotePrograms>,
    returns: Arc<Returns>,
    pages: Pages,
    protocol: Protocol,
    lock: Lock,
    ledgers: Ledgers,
    /// Had by who must not wait for a processor to wake up; `None`: nobody.
    watch: Option<Watch>,
    quota: Arc<Quota>,
    spare_replicas: SpareReplicas,
    /// Whether any program had to be killed.
    killed: Arc<AtomicBool>,
}

impl Migration {
    /// That of an instance with this number.
    pub fn new(own: InstanceId, setting: &Setting) -> Arc<Self> {
        let Setting { always_move, window, retrieval, lock, memory, awake, .. } = *setting;
        Arc::new(Self {
            own,
            layer: OnceLock::new(),
            coordinators: Mutex::default(),
            programs: AtomicU64::new(0),
            turns: Mutex::default(),
            replicas: Mutex::default(),
            places: Arc::default(),
            remote_programs: Arc::default(),
            returns: Arc::default(),
            pages: Pages { always_move, window },
            protocol: retrieval,
            lock,
            ledgers: Ledgers::default(),
            watch: awake.then(Watch::default),
            quota: Arc::new(Quota::new(own, memory)),
            spare_replicas: SpareReplicas::default(),
            killed: Arc::default(),
        })
    }

    /// Over which messages go, once.
    pub fn over(&self, layer: Arc<Layer>) {
        // The first is the one.
        let _ = self.layer.set(layer);
        self.spare_replicas.fill();
    }

    /// Has a thread of a process of `supervisor`, or all of them, run at another instance, or here again.
    ///
    /// # Errors
    /// [`MoveError`]; whatever has not moved goes on where it was.
    pub fn move_to(
        &self,
        supervisor: &Arc<Supervisor>,
        process: u32,
        thread: Option<u32>,
        to: InstanceId,
    ) -> Result<(), MoveError> {
        self.known(to)?;
        self.ask(supervisor, process, |done| Command::Move { thread, to, done })
    }

    /// Has the threads of a process of `supervisor`, and those that it makes later, run at all instances in turn.
    ///
    /// # Errors
    /// [`MoveError`]; whatever has not moved goes on where it was.
    pub fn spread(&self, supervisor: &Arc<Supervisor>, process: u32) -> Result<(), MoveError> {
        let peers = self.layer.get().map(|layer| layer.peers()).unwrap_or_default();
        let mut over: Vec<_> = peers.iter().map(|peer| peer.id).chain([self.own]).collect();
        over.sort_unstable();
        self.ask(supervisor, process, |done| Command::Spread { over, done })
    }

    /// Where the threads of a process are that have been elsewhere: by number, the instance.
    pub fn places(&self, process: u32) -> BTreeMap<u32, u16> {
        self.places.all().get(&process).cloned().unwrap_or_default()
    }

    /// What the moves of a program come to that began here, and has moved; of one that has ended, if that is not long ago.
    pub fn counts(&self, process: u32) -> Option<MoveCounts> {
        let ledger = self.ledgers.of(process)?;
        if let Some(layer) = self.layer.get() {
            ledger.ask(layer);
        }
        let counts = ledger.counts().clone();
        Some(counts)
    }

    /// Bytes of memory that are used here by programs that move, and how many the instance owns for them, if that is limited.
    pub fn memory(&self) -> (u64, Option<u64>) {
        (self.quota.used(), self.quota.owned())
    }

    /// The same of all such programs, by number, without what their hosts count.
    pub fn all_counts(&self) -> Vec<(u32, MoveCounts)> {
        self.ledgers.all()
    }

    fn known(&self, to: InstanceId) -> Result<(), MoveError> {
        let peers = self.layer.get().map(|layer| layer.peers()).unwrap_or_default();
        let known = to == self.own || peers.iter().any(|peer| peer.id == to);
        if known { Ok(()) } else { Err(MoveError::NoInstance(to.0)) }
    }

    fn ask(
        &self,
        supervisor: &Arc<Supervisor>,
        process: u32,
        ask: impl FnOnce(Sender<Result<(), MoveError>>) -> Command,
    ) -> Result<(), MoveError> {
        let coordinator = self.coordinator(supervisor, process)?;
        let (done, told) = mpsc::channel();
        coordinator.send(QueuedCommand::now(ask(done))).map_err(|_| MoveError::Ended)?;
        // As many as there are threads; none, where they have all ended.
        told.iter().collect()
    }

    /// The coordinator of a process, which begins with the first move.
    fn coordinator(
        &self,
        supervisor: &Arc<Supervisor>,
        process: u32,
    ) -> Result<Sender<QueuedCommand>, MoveError> {
        let turn = Arc::clone(self.turns().entry(process).or_default());
        // Making one takes a while, and others are asked about other programs.
        let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let coordinator = self.begin(supervisor, process);
        self.turns().remove(&process);
        drop(turn);
        coordinator
    }

    fn begin(
        &self,
        supervisor: &Arc<Supervisor>,
        process: u32,
    ) -> Result<Sender<QueuedCommand>, MoveError> {
        if !supervisor.process_numbers().contains(&process) {
            return Err(MoveError::NoProcess(process));
        }
        // One that has ended was of an earlier program.
        if let Some((_, coordinator)) = self.coordinators().get(&process)
            && coordinator.send(QueuedCommand::now(Command::Event(TracerEvent::Changed(0)))).is_ok()
        {
            return Ok(coordinator.clone());
        }
        supervisor.movable(process).map_err(MoveError::NotMovable)?;
        let layer = self.layer.get().ok_or(MoveError::NoInstance(self.own.0))?;
        // Relaxed: it only has to be another one.
        let program = self.programs.fetch_add(1, Ordering::Relaxed);
        let group = GroupId { origin: self.own.0, process, program };
        let (ask, asked) = mpsc::channel();
        let means = Means {
            ask: ask.clone(),
            places: Arc::clone(&self.places),
            ledger: self.ledgers.begin(group),
            remote_programs: Arc::clone(&self.remote_programs),
            returns: Arc::clone(&self.returns),
            pages: self.pages,
            protocol: self.protocol,
            lock: self.lock,
            quota: Arc::clone(&self.quota),
            killed: Arc::clone(&self.killed),
        };
        let awake = self.awake();
        let begun = Coordinator::begin(group, supervisor, layer, asked, means);
        let coordinator = begun.map_err(|error| MoveError::NotMovable(error.to_string()))?;
        let started = thread::Builder::new().name("refit-coordinator".to_owned());
        let run = move || {
            coordinator.run();
            drop(awake);
        };
        started.spawn(run).map_err(MoveError::from)?;
        self.coordinators().insert(process, (group, ask.clone()));
        Ok(ask)
    }

    /// The coordinator of a group; `None`: it is of another instance, or its process runs another program by now.
    fn coordinator_of(&self, group: GroupId) -> Option<Sender<QueuedCommand>> {
        let coordinators = self.coordinators();
        let (of, coordinator) = coordinators.get(&group.process)?;
        (*of == group).then(|| coordinator.clone())
    }

    fn coordinators(&self) -> MutexGuard<'_, BTreeMap<u32, (GroupId, Sender<QueuedCommand>)>> {
        self.coordinators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Mutex<()>>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replica(&self, group: GroupId) -> Option<Arc<Replica>> {
        self.replicas().get(&group).cloned()
    }

    fn replicas(&self) -> MutexGuard<'_, BTreeMap<GroupId, Arc<Replica>>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(self: &Arc<Self>, prepare: Prepare, reply: Reply<Prepare>) {
        let this = Arc::clone(self);
        let serve = move || {
            let Prepare { group, particulars, thread } = prepare;
            let replica = this.has_room(&particulars);
            let replica = replica.and_then(|()| this.replica_for(group, &particulars));
            let ready = replica.and_then(|replica| replica.ready(thread).map(|()| replica.process));
            reply.say(&ready.map_err(MoveError::from), &[]);
            this.spare_replicas.fill_later();
        };
        Self::apart(serve);
    }

    fn arrive(self: &Arc<Self>, arrive: Arrive, reply: Reply<Arrive>) {
        if faults::fails(Step::Arrive) {
            std::process::abort();
        }
        if let Err(error) = self.has_room(&arrive.particulars) {
            return reply.say(&Err(error.into()), &[]);
        }
        // As a rule it is expected.
        let replica = self.replicas.try_lock().ok();
        let replica = replica.and_then(|replicas| replicas.get(&arrive.group).cloned());
        if let Some(executor) = replica.and_then(|replica| replica.known(arrive.thread)) {
            return executor.arrive(arrive, reply);
        }
        let this = Arc::clone(self);
        Self::apart(move || match this.replica_for(arrive.group, &arrive.particulars) {
            Ok(replica) => replica.arrive(arrive, reply),
            Err(error) => reply.say(&Err(error.into()), &[]),
        });
    }

    /// Whether a thread finds memory here for what it touches at once, where pages of its group have to be held.
    fn has_room(&self, particulars: &Particulars) -> io::Result<()> {
        /// Its code, its stack, what it works on.
        const AT_ONCE: u64 = 16 * PAGE;
        match particulars.hold {
            Hold::Move { .. } => Ok(self.quota.permits(AT_ONCE)?),
            Hold::Borrow { .. } => Ok(()),
        }
    }

    /// Making a replica takes a while, and others have messages, too.
    fn apart(serve: impl FnOnce() + Send + 'static) {
        // Without a thread the reply is dropped, which is an answer.
        let _ = thread::Builder::new().name("refit-arrival".to_owned()).spawn(serve);
    }

    /// Has processors stay awake, if they are to, as far as that is permitted still.
    fn awake(&self) -> Option<Arc<Awake>> {
        self.watch.as_ref()?.keep().ok()
    }

    fn replica_for(&self, group: GroupId, particulars: &Particulars) -> io::Result<Arc<Replica>> {
        let mut replicas = self.replicas();
        if let Some(replica) = replicas.get(&group) {
            return Ok(Arc::clone(replica));
        }
        let layer = self.layer.get().ok_or(io::ErrorKind::NotConnected)?;
        let with = (&self.spare_replicas, self.awake(), &self.quota);
        let replica = Replica::begin(group, particulars, layer, with)?;
        replicas.insert(group, Arc::clone(&replica));
        Ok(replica)
    }

    fn vanish(&self, vanish: Teardown) {
        match vanish.thread {
            Some(thread) => {
                if let Some(replica) = self.replica(vanish.group) {
                    replica.vanish(thread);
                }
            }
            None => {
                if let Some(replica) = self.replicas().remove(&vanish.group) {
                    replica.end();
                }
            }
        }
    }

    fn lost(&self, peer: InstanceId, why: &str) {
        let mut replicas = self.replicas();
        let theirs = replicas.extract_if(.., |group, _| group.home() == peer);
        let theirs: Vec<_> = theirs.map(|(_, replica)| replica).collect();
        drop(replicas);
        let lost = || QueuedCommand::now(Command::Lost(peer, why.to_owned()));
        let coordinators: Vec<Sender<QueuedCommand>> =
            self.coordinators().values().map(|(_, coordinator)| coordinator.clone()).collect();
        // One that has ended has nothing there, and takes nothing.
        let concerned = |coordinator: &Sender<QueuedCommand>| {
            coordinator.send(QueuedCommand::now(Command::Event(TracerEvent::Changed(0)))).is_ok()
        };
        // Whoever needed it may have been killed already, and its coordinator have ended.
        let concerns = coordinators.iter().any(concerned) || self.killed.load(Ordering::Relaxed);
        if why != ENDED || !theirs.is_empty() || concerns {
            // Else it is the end of both.
            eprintln!("refit: {} has lost {peer}: {why}", self.own);
        }
        theirs.into_iter().for_each(|replica| replica.end());
        let others: Vec<_> = self.replicas().values().cloned().collect();
        others.iter().for_each(|replica| replica.lose(peer));
        coordinators.iter().for_each(|coordinator| drop(coordinator.send(lost())));
    }
}

impl std::fmt::Debug for Migration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Migration").field("own", &self.own).finish_non_exhaustive()
    }
}
