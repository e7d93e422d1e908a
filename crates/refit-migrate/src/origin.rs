//! The part of a node for programs that began there: one coordinator each, which decides where
//! their threads run.

pub(crate) mod address_space;
mod advice;
mod changes;
pub(crate) mod command;
mod consistency;
pub(crate) mod coordinator;
pub(crate) mod detach_attach;
mod first_move;
mod fork_flags;
mod futex_ops;
mod places;
mod program_tree;
mod remote_programs;
mod request_errors;
mod returns;
mod setup;
mod syscall_proxy;
mod thread_table;
mod tracer_event;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::InstanceId;
use rustix::io::Errno;

use crate::error::MoveError;
use crate::lookup::Protocol;
use crate::mm_lock::Lock;
use crate::origin::command::{Command, QueuedCommand};
use crate::origin::coordinator::{Coordinator, CoordinatorParts, PagePolicy};
use crate::origin::places::Places;

pub(crate) use crate::origin::program_tree::ProgramTree;
use crate::origin::remote_programs::RemotePrograms;
use crate::origin::returns::Returns;
use crate::protocol::messages::{Fetch, GroupId, SyscallRequest, ThreadReturned};
use crate::resources::NodeResources;
use crate::stats::{Ledgers, MoveCounts};

/// The ways in which the programs of an origin share their memory with other nodes.
pub(crate) struct Policies {
    pub(crate) pages: PagePolicy,
    pub(crate) protocol: Protocol,
    pub(crate) lock: Lock,
}

/// Where a coordinator receives commands, also after it has ended.
#[derive(Clone)]
pub(crate) struct CoordinatorRef {
    group: GroupId,
    pub(crate) commands: Sender<QueuedCommand>,
    /// The coordinator's thread has the only strong reference, and drops it when it ends.
    life: Weak<()>,
}

impl CoordinatorRef {
    /// Returns whether the coordinator handles commands. One that does may end before it receives
    /// the next.
    fn is_alive(&self) -> bool {
        self.life.strong_count() > 0
    }
}

/// Has all threads of a program run at their origin until it is dropped.
pub(crate) struct Gathered(Sender<QueuedCommand>);

impl Drop for Gathered {
    fn drop(&mut self) {
        // The program may have ended.
        let _ = self.0.send(QueuedCommand::now(Command::LoanOver));
    }
}

/// The coordinators of this node's programs.
///
/// # Locks
/// `coordinator_turns`, an entry's own lock, `coordinators`, in this order; the tables inside
/// `places`, `remote_programs`, `returns` and `ledgers` are each taken alone.
pub(crate) struct Origin {
    pub(crate) resources: Arc<NodeResources>,
    policies: Policies,
    /// By process: the coordinator of the last program in it that has moved.
    coordinators: Mutex<BTreeMap<u32, CoordinatorRef>>,
    /// The number of programs that have had a coordinator.
    programs: AtomicU64,
    /// By process: held by the thread that makes its coordinator.
    coordinator_turns: Mutex<BTreeMap<u32, Arc<Mutex<()>>>>,
    places: Arc<Places>,
    remote_programs: Arc<RemotePrograms>,
    returns: Arc<Returns>,
    ledgers: Ledgers,
    /// Whether any program had to be killed.
    killed: Arc<AtomicBool>,
}

impl Origin {
    /// Returns the part of a node of which no program has moved yet.
    pub(crate) fn new(resources: Arc<NodeResources>, policies: Policies) -> Arc<Self> {
        Arc::new(Self {
            resources,
            policies,
            coordinators: Mutex::default(),
            programs: AtomicU64::new(0),
            coordinator_turns: Mutex::default(),
            places: Arc::default(),
            remote_programs: Arc::default(),
            returns: Arc::default(),
            ledgers: Ledgers::default(),
            killed: Arc::default(),
        })
    }

    /// Has a thread of a process of `tree`, or all of them, run at another node, or here again.
    ///
    /// # Errors
    /// [`MoveError`]; a thread that has not moved goes on where it was.
    pub(crate) fn move_to(
        &self,
        tree: &Arc<ProgramTree>,
        process: u32,
        thread: Option<u32>,
        to: InstanceId,
    ) -> Result<(), MoveError> {
        self.resources.check_reachable(to)?;
        self.command(tree, process, |done| Command::Move { thread, to, done })
    }

    /// Has the threads of a process of `tree`, and those that it makes later, run at all nodes in
    /// turn.
    ///
    /// # Errors
    /// [`MoveError`]; a thread that has not moved goes on where it was.
    pub(crate) fn spread(&self, tree: &Arc<ProgramTree>, process: u32) -> Result<(), MoveError> {
        let mut over = self.resources.peers();
        over.push(self.resources.own);
        over.sort_unstable();
        self.command(tree, process, |done| Command::Spread { over, done })
    }

    /// Has all threads of a process run here until the result is dropped. Returns `None` if the
    /// process has not moved.
    ///
    /// # Errors
    /// `ETIMEDOUT`: some thread has not returned `within` this time. `EOPNOTSUPP`: its pages move
    /// between hosts.
    pub(crate) fn gather(&self, process: u32, within: Duration) -> io::Result<Option<Gathered>> {
        let found = self.coordinators().get(&process).filter(|one| one.is_alive()).cloned();
        let Some(coordinator) = found else { return Ok(None) };
        let (ready, is_ready) = mpsc::channel();
        if coordinator.commands.send(QueuedCommand::now(Command::Lend(ready))).is_err() {
            return Ok(None);
        }
        let gathered = Gathered(coordinator.commands);
        match is_ready.recv_timeout(within) {
            Ok(ready) => ready.map(|()| Some(gathered)),
            // The program has ended, or executes another one.
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Errno::TIMEDOUT.into()),
        }
    }

    /// Returns the nodes of the threads of a process that have moved, by thread.
    pub(crate) fn places(&self, process: u32) -> BTreeMap<u32, u16> {
        self.places.all().get(&process).cloned().unwrap_or_default()
    }

    /// Returns the counts of a program's moves, also of one that has ended recently; asks its
    /// destinations for their part.
    pub(crate) fn counts(&self, process: u32) -> Option<MoveCounts> {
        let ledger = self.ledgers.of(process)?;
        if let Some(layer) = self.resources.layer() {
            ledger.gather(layer);
        }
        let counts = ledger.counts().clone();
        Some(counts)
    }

    /// Returns the counts of all programs, by process, without their destinations' part.
    pub(crate) fn all_counts(&self) -> Vec<(u32, MoveCounts)> {
        self.ledgers.all()
    }

    fn command(
        &self,
        tree: &Arc<ProgramTree>,
        process: u32,
        command: impl FnOnce(Sender<Result<(), MoveError>>) -> Command,
    ) -> Result<(), MoveError> {
        let coordinator = self.coordinator(tree, process)?;
        let (done, results) = mpsc::channel();
        coordinator.send(QueuedCommand::now(command(done))).map_err(|_| MoveError::Ended)?;
        // A result for each thread; none, if they have all ended.
        results.iter().collect()
    }

    /// Returns the coordinator of a process, which begins with the first move.
    fn coordinator(
        &self,
        tree: &Arc<ProgramTree>,
        process: u32,
    ) -> Result<Sender<QueuedCommand>, MoveError> {
        let turn = Arc::clone(self.coordinator_turns().entry(process).or_default());
        // Making a coordinator takes a while, and other programs need not wait for it.
        let turn = turn.lock();
        let coordinator = self.begin(tree, process);
        self.coordinator_turns().remove(&process);
        drop(turn);
        coordinator
    }

    fn begin(
        &self,
        tree: &Arc<ProgramTree>,
        process: u32,
    ) -> Result<Sender<QueuedCommand>, MoveError> {
        if !tree.supervisor.process_numbers().contains(&process) {
            return Err(MoveError::NoProcess(process));
        }
        // A coordinator that has ended was of an earlier program.
        if let Some(coordinator) = self.coordinators().get(&process)
            && coordinator.is_alive()
        {
            return Ok(coordinator.commands.clone());
        }
        tree.supervisor
            .check_movable(process)
            .map_err(|why| MoveError::NotMovable(why.to_string()))?;
        let own = self.resources.own;
        let layer = self.resources.layer().ok_or(MoveError::NoInstance(own.0))?;
        // Relaxed: the number only has to differ from all others.
        let program = self.programs.fetch_add(1, Ordering::Relaxed);
        let group = GroupId { origin: own.0, process, program };
        let (commands, queue) = mpsc::channel();
        let means = CoordinatorParts {
            commands: commands.clone(),
            places: Arc::clone(&self.places),
            ledger: self.ledgers.begin(group),
            remote_programs: Arc::clone(&self.remote_programs),
            returns: Arc::clone(&self.returns),
            page_policy: self.policies.pages,
            protocol: self.policies.protocol,
            lock: self.policies.lock,
            quota: Arc::clone(&self.resources.quota),
            killed: Arc::clone(&self.killed),
        };
        let awake = self.resources.awake();
        let begun = Coordinator::begin(group, tree, layer, queue, means);
        let coordinator = begun.map_err(|error| MoveError::NotMovable(error.to_string()))?;
        let alive = Arc::new(());
        let life = Arc::downgrade(&alive);
        let run = move || {
            coordinator.run();
            drop(alive);
            drop(awake);
        };
        let started = thread::Builder::new().name("refit-coordinator".to_owned()).spawn(run);
        started.map_err(MoveError::from)?;
        let coordinator = CoordinatorRef { group, commands: commands.clone(), life };
        self.coordinators().insert(process, coordinator);
        Ok(commands)
    }

    /// Returns the coordinator of a group, or `None` if the group began elsewhere, or its process
    /// runs another program by now.
    fn coordinator_of(&self, group: GroupId) -> Option<Sender<QueuedCommand>> {
        let coordinators = self.coordinators();
        let coordinator = coordinators.get(&group.process)?;
        (coordinator.group == group).then(|| coordinator.commands.clone())
    }

    /// Sends a command to a group's coordinator. Returns whether there is one.
    pub(crate) fn send(&self, group: GroupId, command: impl FnOnce() -> Command) -> bool {
        let coordinator = self.coordinator_of(group);
        coordinator.is_some_and(|one| one.send(QueuedCommand::now(command())).is_ok())
    }

    /// Handles the return of a thread.
    pub(crate) fn on_returned(&self, thread: ThreadReturned) {
        if let Some(coordinator) = self.coordinator_of(thread.group) {
            self.returns.on_returned(Box::new(thread), coordinator);
            // The event loop, which restores the thread, has the processor meanwhile.
            refit_sys::adaptive_spin::none_follows();
        }
    }

    /// Handles the request of a destination that shares no memory for pages.
    pub(crate) fn fetch(&self, from: InstanceId, fetch: Fetch) {
        if self.coordinator_of(fetch.group).is_some() {
            self.remote_programs.fetch(from, fetch);
        }
    }

    /// Makes a thread's call for a destination that shares no memory.
    pub(crate) fn make(&self, make: SyscallRequest) {
        if self.coordinator_of(make.group).is_some() {
            self.remote_programs.make(make);
        }
    }

    fn coordinators(&self) -> MutexGuard<'_, BTreeMap<u32, CoordinatorRef>> {
        self.coordinators.lock()
    }

    fn coordinator_turns(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Mutex<()>>>> {
        self.coordinator_turns.lock()
    }

    /// Returns all coordinators, also some that have ended.
    pub(crate) fn all_coordinators(&self) -> Vec<CoordinatorRef> {
        self.coordinators().values().cloned().collect()
    }

    /// Returns whether the loss of a peer can concern a program of these coordinators: one that has
    /// ended has nothing there, but may have ended since it needed the peer, and was killed.
    pub(crate) fn is_concerned(&self, coordinators: &[CoordinatorRef]) -> bool {
        coordinators.iter().any(CoordinatorRef::is_alive) || self.killed.load(Ordering::Relaxed)
    }
}
