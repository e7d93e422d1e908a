//! Who decides everything about one group, at its origin: one of our threads, to which all that happens comes in one queue.
//!
//! ```text
//!   users: move it ──────────┐
//!   who follows: a signal, ──┤              ┌──► threads here: registers, where they go on (Supervisor::order)
//!     a new thread, an end   ├──► queue ──► coordinator ──► memory here (AddressSpace)
//!   hosts: it is back, what ─┤              └──► hosts: arrive, recall, forget
//!     is at this address? ───┘
//! ```
//!
//! **The queue is the heavy lock** (Katz 2014, §5.7.5): a change of the address space and a retrieval are one entry each, and the next is
//! looked at when the last is done; so no mapping is told while it changes. The coordinator waits for who follows, for
//! acknowledgements of hosts, and for a shadow that makes a short call; none of them ever waits for it.
//!
//! **Where a thread is, one place knows** ([`Thread`]). It leaves only from a stop here, and comes back only by a [`ThreadReturned`] of its present
//! stay: so it never runs twice, nor not at all. A signal, an end or a wish that arrives while it is away is kept until then.

mod checking;
mod exit;
mod fork;
mod job_control;
mod kill;
mod migrate_thread;
mod mm_update;
mod move_request;
mod out_of_memory;
mod page_mode;
mod retrieving;
mod retry_futex;
mod seccomp;
mod thread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Layer, Reply};
use refit_sys::adaptive_spin::AdaptiveSpin;
use refit_sys::words::Words;
use tracing::{debug, debug_span, warn};

use crate::dsm::Window;
use crate::error::MoveError;
use crate::lookup::{self, Protocol};
use crate::mm_lock::Lock;
use crate::origin::address_space::AddressSpace;
use crate::origin::coordinator::kill::Killer;
use crate::origin::coordinator::thread::Thread;
use crate::origin::places::Places;
use crate::origin::program_tree::ProgramTree;
use crate::origin::remote_programs::RemotePrograms;
use crate::origin::returns::{Restoration, Returns};
use crate::origin::setup::{self, MoveSetup};
use crate::origin::thread_table::{CoordinatorId, TracerEvent};
use crate::protocol::messages::{
    Change, GroupId, Retrieve, Seek, Teardown, ThreadLost, ThreadReturned,
};
use crate::quota::Quota;
use crate::stats::Ledger;

/// How long it may take to reach a thread that stands, or waits in code of ours: as long as a host can be busy with others, since without that
/// the thread would stand for ever.
pub(crate) const THREAD_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// What comes to a coordinator.
pub(crate) enum Command {
    Event(TracerEvent),
    Move {
        thread: Option<u32>,
        to: InstanceId,
        done: Sender<Result<(), MoveError>>,
    },
    Spread {
        over: Vec<InstanceId>,
        done: Sender<Result<(), MoveError>>,
    },
    /// And what it has got already, if anything.
    ThreadReturned(Box<ThreadReturned>, Option<Restoration>),
    Retrieve(Retrieve, Reply<Retrieve>),
    Seek(Seek),
    /// Retrievals may be planned otherwise from now on.
    Planned,
    Change(Change, Reply<Change>),
    ThreadLost(ThreadLost),
    /// A host has no memory for another page.
    OutOfMemory(InstanceId),
    Lost(InstanceId, String),
}

/// The same, and since when it waits.
pub(crate) struct QueuedCommand {
    ask: Command,
    since: Instant,
}

impl QueuedCommand {
    pub(crate) fn now(ask: Command) -> Self {
        Self { ask, since: Instant::now() }
    }
}

/// Where threads that are made are wanted.
enum Policy {
    /// Where whoever made the group wants it.
    At(InstanceId),
    /// At one after the other.
    Spread(Vec<InstanceId>, usize),
}

/// How pages are held by other instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// They move between instances of one host, too, which could borrow them.
    pub(crate) always_move: bool,
    /// How many are asked for at once.
    pub(crate) window: Window,
}

/// What a coordinator is given.
pub(crate) struct CoordinatorParts {
    pub(crate) ask: Sender<QueuedCommand>,
    pub(crate) places: Arc<Places>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) remote_programs: Arc<RemotePrograms>,
    pub(crate) returns: Arc<Returns>,
    pub(crate) pages: Pages,
    /// How mappings are found at first.
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
    /// Instances that have a replica, or are about to.
    destinations: BTreeSet<InstanceId>,
    /// Those that have said that they have one, and its number.
    ready: BTreeMap<InstanceId, u32>,
    /// How others find what is mapped at an address.
    retrieval: lookup::Object,
    /// Any of them may ask another.
    asks_others: bool,
    /// Others keep something frozen.
    frozen: bool,
    /// How others agree on who changes the memory.
    lock: Lock,
    /// Which replicas these are.
    epoch: u64,
    policy: Policy,
    /// Threads that are about to be given a signal that stops all, as soon as all are here; and whether they have been.
    stopping: BTreeMap<u32, bool>,
    /// Threads that are about to limit their own calls, as soon as all are here.
    limiting: BTreeSet<u32>,
    asked: Receiver<QueuedCommand>,
    /// What came while something else was waited for.
    deferred: VecDeque<QueuedCommand>,
    /// Processes that threads here have made, and whether they are to have a copy of the memory, and where in it they are told their number: once
    /// both are told.
    born: BTreeSet<u32>,
    made: BTreeMap<u32, (u32, Option<Option<u64>>)>,
    places: Arc<Places>,
    remote_programs: Arc<RemotePrograms>,
    returns: Arc<Returns>,
    pages: Pages,
    /// Those who borrow pages are called back, since another host comes, and pages will move.
    unborrowing: bool,
    /// It has been told that there is no memory for all of it elsewhere.
    told_of_memory: bool,
    killer: Arc<Killer>,
    ledger: Arc<Ledger>,
    linger: AdaptiveSpin,
}

/// Another one for all replicas that begin anew.
fn epoch() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Relaxed: it only has to be another one.
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Whether to go on.
type Next = Result<(), Ended>;

/// The group is no more.
struct Ended;

impl Coordinator {
    /// Makes ready for the first thread to leave.
    pub(crate) fn begin(
        group: GroupId,
        tree: &Arc<ProgramTree>,
        layer: &Arc<Layer>,
        asked: Receiver<QueuedCommand>,
        with: CoordinatorParts,
    ) -> io::Result<Self> {
        let CoordinatorParts {
            ask,
            places,
            ledger,
            remote_programs,
            returns,
            pages,
            protocol,
            lock,
            quota,
            killed,
        } = with;
        let told = ask.clone();
        let tell = move |event| told.send(QueuedCommand::now(Command::Event(event))).is_ok();
        let installed = setup::set_up(tree, group.process, &quota, tell)?;
        let MoveSetup { space, slots, coordinator_id, threads } = installed;
        let own = group.home();
        // One that has ended plans nothing.
        let planned = move || drop(ask.send(QueuedCommand::now(Command::Planned)));
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
            retrieval: lookup::Object::new(group.process.to_string(), protocol, planned),
            asks_others: false,
            frozen: false,
            lock,
            epoch: epoch(),
            policy: Policy::At(own),
            stopping: BTreeMap::new(),
            limiting: BTreeSet::new(),
            asked,
            deferred: VecDeque::new(),
            born: BTreeSet::new(),
            made: BTreeMap::new(),
            places,
            remote_programs,
            returns,
            pages,
            unborrowing: false,
            told_of_memory: false,
            killer,
            ledger,
            linger: AdaptiveSpin::default(),
        };
        threads.into_iter().for_each(|thread| coordinator.know(thread));
        Ok(coordinator)
    }

    fn know(&mut self, thread: u32) {
        if !self.threads.contains_key(&thread) {
            self.threads.insert(thread, Thread::new(thread, self.own));
        }
    }

    /// Decides, until the group is no more.
    pub(crate) fn run(mut self) {
        let _program = debug_span!("program", group = %self.group).entered();
        debug!(threads = self.threads.len(), "its coordinator begins");
        while self.next().is_ok() {
            self.check();
        }
        debug!("its coordinator ends");
        self.killer.disarm();
        self.tree.threads.end(self.coordinator_id);
        self.let_all_live();
        self.ledger.ask(&self.layer);
        let gone = Teardown { group: self.group, thread: None };
        for &host in &self.destinations {
            // One that is no more has no replica either.
            let _ = self.layer.send(host, &gone, &[]);
        }
        for (id, thread) in std::mem::take(&mut self.threads) {
            self.returns.forget(id);
            thread.waiting.into_iter().for_each(|one| drop(one.send(Err(MoveError::Ended))));
        }
        self.places.forget(self.group.process);
        self.remote_programs.forget(self.group.process);
    }

    fn next(&mut self) -> Next {
        let Some(QueuedCommand { ask, since }) =
            self.deferred.pop_front().or_else(|| self.receive())
        else {
            return self.depart_who_lingered();
        };
        self.ledger.counts().waits.since(since);
        match ask {
            Command::Event(told) => self.told(told),
            Command::Move { thread, to, done } => self.wish(thread, to, done),
            Command::Spread { over, done } => self.spread(over, done),
            Command::ThreadReturned(came, given) => self.came(&came, given),
            Command::Retrieve(question, reply) => {
                self.ledger.counts().questions.since(since);
                self.answer(question, reply);
                Ok(())
            }
            Command::Seek(seek) => {
                self.ledger.counts().questions.since(since);
                self.is_sought(seek);
                Ok(())
            }
            Command::Planned => {
                self.plan_retrievals(None);
                Ok(())
            }
            Command::Change(change, reply) => self.change(change, reply),
            Command::ThreadLost(ThreadLost { thread, why, .. }) => {
                self.kill(&format!("thread {thread} of it is lost: {why}"));
                Ok(())
            }
            Command::OutOfMemory(host) => self.is_full(host),
            Command::Lost(peer, why) => self.lost(peer, &why),
        }
    }

    /// What comes next; `None`: a thread may leave again before anything comes.
    fn receive(&self) -> Option<QueuedCommand> {
        let ended = || QueuedCommand::now(Command::Event(TracerEvent::Another));
        let mut come = None;
        self.linger.wait_for(|| {
            come = self.asked.try_recv().ok();
            come.is_some()
        });
        if come.is_some() {
            return come;
        }
        let soonest = self.threads.values().filter_map(|thread| thread.not_before).min();
        let Some(soonest) = soonest else {
            return Some(self.asked.recv().unwrap_or_else(|_| ended()));
        };
        match self.asked.recv_timeout(soonest.saturating_duration_since(Instant::now())) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(ended()),
        }
    }

    fn told(&mut self, told: TracerEvent) -> Next {
        match told {
            TracerEvent::Signal(id) => {
                self.ledger.counts().signals += 1;
                // If it has come meanwhile, it was given it.
                self.recall(id);
                Ok(())
            }
            TracerEvent::Stopped(id) => {
                self.recall(id);
                Ok(())
            }
            TracerEvent::Stopping(id) => self.stops(id),
            TracerEvent::StopGiven(id) => self.is_stopped(id),
            TracerEvent::Continued(id) => self.settle(id),
            TracerEvent::Limits(id) => self.limits(id),
            TracerEvent::Maps(id) => self.changes_here(id),
            // Of one whose change nobody waits for any more.
            TracerEvent::Changed(_) => Ok(()),
            TracerEvent::Returned(id) => self.has_returned(id),
            TracerEvent::Lacks(id) => self.lacks(id),
            TracerEvent::Asks(wish) => self.asks(wish),
            TracerEvent::Born(task) => self.is_born(task),
            TracerEvent::Made { parent, child, copy, word } => {
                self.made.insert(child, (parent, copy.then_some(word)));
                self.let_live(child)
            }
            TracerEvent::Ends(id) => self.ends(id),
            TracerEvent::Cleared { thread, word } => {
                // It is no word of the program's any more, if not.
                let _ = self.space.clear(word, thread);
                Ok(())
            }
            TracerEvent::Ended(id) => self.ended(id),
            TracerEvent::Another => Err(Ended),
        }
    }

    /// A thread, or all, is wanted elsewhere.
    fn wish(
        &mut self,
        thread: Option<u32>,
        to: InstanceId,
        done: Sender<Result<(), MoveError>>,
    ) -> Next {
        debug!(?thread, %to, "wanted");
        let all: Vec<u32> = match thread {
            Some(one) => vec![one],
            None => {
                self.policy = Policy::At(to);
                self.threads.keys().copied().collect()
            }
        };
        for id in all {
            let Some(one) = self.threads.get_mut(&id) else {
                // Who has asked may have gone.
                let _ = done.send(Err(MoveError::NoThread(id)));
                continue;
            };
            one.want(to);
            one.waiting.push(done.clone());
            self.settle(id)?;
        }
        Ok(())
    }

    fn spread(&mut self, over: Vec<InstanceId>, done: Sender<Result<(), MoveError>>) -> Next {
        debug!(?over, "spread");
        self.policy = Policy::Spread(over, 0);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        for id in all {
            let to = self.next_place();
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.want(to);
                thread.waiting.push(done.clone());
            }
            self.settle(id)?;
        }
        Ok(())
    }

    /// Where a thread that is made is wanted.
    fn next_place(&mut self) -> InstanceId {
        match &mut self.policy {
            Policy::At(place) => *place,
            Policy::Spread(over, next) => {
                let place = over.get(*next % over.len().max(1)).copied().unwrap_or(self.own);
                *next += 1;
                place
            }
        }
    }

    /// An instance is no more, and with it the registers of threads: the program cannot go on.
    fn lost(&mut self, peer: InstanceId, why: &str) -> Next {
        if !self.destinations.remove(&peer) {
            return Ok(());
        }
        warn!(%peer, why, "a destination is lost");
        self.ready.remove(&peer);
        // It may be joined again, and has nothing then.
        for thread in self.threads.values_mut() {
            thread.ready_at.remove(&peer);
        }
        self.plan_retrievals(None);
        let pages = self.space.page_home.as_ref().map_or(0, |page_home| page_home.lost(peer));
        if pages > 0 {
            self.kill(&format!("{peer} was lost ({why}), with {pages} pages of its memory"));
        } else if self
            .threads
            .iter()
            .any(|(&id, one)| one.away_at() == Some(peer) && self.returns.is_away(id))
        {
            self.kill(&format!("{peer} was lost ({why}), with threads of it"));
        }
        Ok(())
    }

    /// The program cannot go on.
    fn kill(&self, why: &str) {
        self.killer.kill(why);
    }
}
