//! The coordinator of one group, at its origin: one thread of ours that decides everything about
//! the group, and that receives all that happens in one queue.
//!
//! ```text
//!   users: move a thread ────┐
//!   event loop: a signal, ───┤              ┌──► threads here: registers, how they go on
//!     a new thread, an end   ├──► queue ──► coordinator ──► memory here (AddressSpace)
//!   destinations: a return, ─┤              └──► destinations: arrive, recall, invalidate
//!     a lookup ──────────────┘
//! ```
//!
//! **The queue is the heavy lock** (Katz 2014, §5.7.5): a change of the address space and a lookup
//! are one entry each, and the next entry is handled when the last one is done. So no lookup is
//! answered while the memory changes. The coordinator waits for the event loop, for
//! acknowledgements of destinations, and for a shadow that makes a short call; none of them ever
//! waits for the coordinator.
//!
//! **One place knows where a thread is** ([`Thread`]). A thread leaves only from a stop here, and
//! returns only by a [`ThreadReturned`](crate::protocol::messages::ThreadReturned) of its present
//! residency: so it never runs at two nodes, nor at none. A signal, an end or a move request that
//! arrives while it is away is kept until then.

mod checking;
mod exit;
mod fork;
mod job_control;
mod kill;
mod lending;
mod loans;
mod migrate_thread;
mod mm_update;
mod move_request;
mod new_process;
mod out_of_memory;
mod own_request;
mod page_mode;
mod placement;
mod retrieving;
mod retry_futex;
mod run;
mod seccomp;
mod thread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use refit_messages::{InstanceId, Layer};
use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::words::Words;

use crate::dsm::Window;
use crate::lookup::{Protocol, RetrievalObject};
use crate::mm_lock::Lock;
use crate::origin::address_space::AddressSpace;
use crate::origin::command::{Command, QueuedCommand};
use crate::origin::coordinator::kill::Killer;
use crate::origin::coordinator::loans::Loans;
use crate::origin::coordinator::new_process::Fork;
use crate::origin::coordinator::thread::Thread;
use crate::origin::places::Places;
use crate::origin::program_tree::ProgramTree;
use crate::origin::remote_programs::RemotePrograms;
use crate::origin::returns::Returns;
use crate::origin::setup::{self, MoveSetup};
use crate::origin::tracer_event::CoordinatorId;
use crate::protocol::messages::GroupId;
use crate::quota::Quota;
use crate::stats::Ledger;

/// Where new threads run.
enum Policy {
    /// Where the last move of the whole group went.
    At(InstanceId),
    /// At each of these nodes in turn; the number counts the threads so far.
    Spread(Vec<InstanceId>, usize),
}

/// The way in which other nodes get pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePolicy {
    /// Whether pages move between nodes of one host, too, which could borrow them.
    pub(crate) always_move: bool,
    /// The number of pages that are asked for at once.
    pub(crate) window: Window,
}

/// The parts of a new coordinator.
pub(crate) struct CoordinatorParts {
    pub(crate) commands: Sender<QueuedCommand>,
    pub(crate) places: Arc<Places>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) remote_programs: Arc<RemotePrograms>,
    pub(crate) returns: Arc<Returns>,
    pub(crate) page_policy: PagePolicy,
    /// The lookup protocol at first.
    pub(crate) protocol: Protocol,
    pub(crate) lock: Lock,
    pub(crate) quota: Arc<Quota>,
    /// Whether any program had to be killed.
    pub(crate) killed: Arc<AtomicBool>,
}

/// A group, as its coordinator sees it.
pub(crate) struct Coordinator {
    group: GroupId,
    coordinator_id: CoordinatorId,
    own: InstanceId,
    tree: Arc<ProgramTree>,
    layer: Arc<Layer>,
    space: AddressSpace,
    slots: Words,
    threads: BTreeMap<u32, Thread>,
    free: Vec<u32>,
    /// Nodes that have a replica, or are about to.
    destinations: BTreeSet<InstanceId>,
    /// Nodes that have acknowledged their replica, and its process number there.
    ready: BTreeMap<InstanceId, u32>,
    /// Plans how nodes look addresses up.
    retrieval: RetrievalObject,
    /// Whether any node may ask another one than the origin.
    members_are_asked: bool,
    /// Whether destinations keep invalidated ranges frozen.
    frozen: bool,
    /// The protocol by which nodes agree on which of them changes the memory.
    lock: Lock,
    /// Distinguishes the replicas of one time from those of another.
    epoch: u64,
    policy: Policy,
    /// Threads to which a signal is about to be delivered that stops all threads, once all are
    /// here; and whether it has been.
    stopping: BTreeMap<u32, bool>,
    /// Threads that are about to limit their own calls, once all threads are here.
    limiting: BTreeSet<u32>,
    loans: Loans,
    queue: Receiver<QueuedCommand>,
    /// Commands that came while the coordinator waited for something else.
    deferred: VecDeque<QueuedCommand>,
    /// Processes that threads here have made, in their first stops.
    new_processes: BTreeSet<u32>,
    /// Of processes that threads here have made, by number: how they were made. A process begins
    /// when it is known here and among `new_processes`.
    forks: BTreeMap<u32, Fork>,
    places: Arc<Places>,
    remote_programs: Arc<RemotePrograms>,
    returns: Arc<Returns>,
    page_policy: PagePolicy,
    /// Whether borrowers of pages are recalled, since another host becomes a destination, and pages
    /// will move.
    switching_mode: bool,
    /// Whether it was reported to the user that other nodes lack memory for the program.
    reported_memory: bool,
    killer: Arc<Killer>,
    ledger: Arc<Ledger>,
    spin: AdaptiveSpin,
}

/// Returns a number that no other replicas have.
fn new_epoch() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the number only has to differ from all others.
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Whether the coordinator goes on.
type Next = Result<(), Ended>;

/// The group has ended.
struct Ended;

impl Coordinator {
    /// Sets a program up for the departure of its first thread.
    pub(crate) fn begin(
        group: GroupId,
        tree: &Arc<ProgramTree>,
        layer: &Arc<Layer>,
        queue: Receiver<QueuedCommand>,
        with: CoordinatorParts,
    ) -> io::Result<Self> {
        let CoordinatorParts {
            commands,
            places,
            ledger,
            remote_programs,
            returns,
            page_policy,
            protocol,
            lock,
            quota,
            killed,
        } = with;
        let events = commands.clone();
        let notify = move |event| events.send(QueuedCommand::now(Command::Event(event))).is_ok();
        let installed = setup::set_up(tree, group.process, &quota, notify)?;
        let MoveSetup { space, slots, coordinator_id, threads } = installed;
        let own = group.home();
        // A coordinator that has ended plans nothing.
        let planned = move || drop(commands.send(QueuedCommand::now(Command::Planned)));
        let killer = Arc::new(Killer::new(group.process, space.agent_task, killed));
        let mut coordinator = Self {
            group,
            coordinator_id,
            own,
            tree: Arc::clone(tree),
            layer: Arc::clone(layer),
            space,
            slots,
            threads: BTreeMap::new(),
            free: (0..setup::SLOTS as u32).rev().collect(),
            destinations: BTreeSet::new(),
            ready: BTreeMap::new(),
            retrieval: RetrievalObject::new(group.process.to_string(), protocol, planned),
            members_are_asked: false,
            frozen: false,
            lock,
            epoch: new_epoch(),
            policy: Policy::At(own),
            stopping: BTreeMap::new(),
            limiting: BTreeSet::new(),
            loans: Loans::default(),
            queue,
            deferred: VecDeque::new(),
            new_processes: BTreeSet::new(),
            forks: BTreeMap::new(),
            places,
            remote_programs,
            returns,
            page_policy,
            switching_mode: false,
            reported_memory: false,
            killer,
            ledger,
            spin: AdaptiveSpin::default(),
        };
        threads.into_iter().for_each(|thread| coordinator.add_thread(thread));
        Ok(coordinator)
    }

    fn add_thread(&mut self, thread: u32) {
        if !self.threads.contains_key(&thread) {
            self.threads.insert(thread, Thread::new(thread, self.own));
        }
    }

    /// Kills the program, which cannot go on.
    fn kill(&self, why: &str) {
        self.killer.kill(why);
    }
}
