//! Who decides everything about one group, at its origin: one of our threads, to which all that happens comes in one queue.
//!
//! ```text
//!   users: move it ──────────┐
//!   who follows: a signal, ──┤              ┌──► threads here: registers, where they go on (Tree::order)
//!     a new thread, an end   ├──► queue ──► custodian ──► memory here (Space)
//!   hosts: it is back, what ─┤              └──► hosts: arrive, recall, forget
//!     is at this address? ───┘
//! ```
//!
//! **The queue is the heavy lock** (Katz 2014, §5.7.5): a change of the address space and a retrieval are one entry each, and the next is
//! looked at when the last is done; so no mapping is told while it changes. The custodian waits for who follows, for
//! acknowledgements of hosts, and for a shadow that makes a short call; none of them ever waits for it.
//!
//! **Where a thread is, one place knows** ([`Thread`]). It leaves only from a stop here, and comes back only by a [`Came`] of its present
//! stay: so it never runs twice, nor not at all. A signal, an end or a wish that arrives while it is away is kept until then.

mod births;
mod changing;
mod journey;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Layer, Reply};
use refit_sys::words::Words;

use super::planting::{self, Planted};
use super::space::Space;
use super::wire::{Came, Change, Fell, GroupId, Mapping, Retrieve, Vanish};
use super::{MoveError, Places};
use crate::tree::Tree;
use crate::tree::moves::{Standing, Told};

/// How long a thread may take to stop here.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// What comes to a custodian.
pub(super) enum Ask {
    Told(Told),
    Move { thread: Option<u32>, to: InstanceId, done: Sender<Result<(), MoveError>> },
    Spread { over: Vec<InstanceId>, done: Sender<Result<(), MoveError>> },
    Came(Box<Came>),
    Retrieve(Retrieve, Reply<Retrieve>),
    Change(Change, Reply<Change>),
    Fell(Fell),
    Lost(InstanceId),
}

/// A thread of the group.
struct Thread {
    /// Where it is to be.
    wanted: InstanceId,
    /// Where it is.
    at: InstanceId,
    /// Counts its moves.
    stay: u64,
    slot: Option<u32>,
    /// It stands here, about to be given a signal that it has a handler for.
    signal: bool,
    /// It has been asked to come back.
    recalled: bool,
    /// It came for a call, and leaves again when it is back from it.
    visiting: bool,
    /// Not before then does it leave again.
    not_before: Option<Instant>,
    /// Who waits for it to be where it is wanted.
    waiting: Vec<Sender<Result<(), MoveError>>>,
}

/// Where threads that are made are wanted.
enum Policy {
    /// Where whoever made the group wants it.
    At(InstanceId),
    /// At one after the other.
    Spread(Vec<InstanceId>, usize),
}

/// A group, as its custodian sees it.
pub(super) struct Custodian {
    group: GroupId,
    own: InstanceId,
    tree: Arc<Tree>,
    layer: Arc<Layer>,
    space: Space,
    slots: Words,
    threads: BTreeMap<u32, Thread>,
    free: Vec<u32>,
    /// Instances that have a replica.
    hosts: BTreeSet<InstanceId>,
    policy: Policy,
    asked: Receiver<Ask>,
    /// What came while something else was waited for.
    deferred: VecDeque<Ask>,
    /// Processes that threads here have made, and whether they are to have a copy of the memory: once both are told.
    born: BTreeSet<u32>,
    made: BTreeMap<u32, (u32, bool)>,
    places: Arc<Places>,
}

fn kill(process: u32) {
    if let Some(process) = rustix::process::Pid::from_raw(process.cast_signed()) {
        // One that has ended needs it no more.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Whether to go on.
type Next = Result<(), Ended>;

/// The group is no more.
struct Ended;

impl Custodian {
    /// Makes ready for the first thread to leave.
    pub(super) fn begin(
        group: GroupId,
        tree: &Arc<Tree>,
        layer: &Arc<Layer>,
        (asked, tell): (Receiver<Ask>, impl Fn(Told) -> bool + Send + 'static),
        places: Arc<Places>,
    ) -> io::Result<Self> {
        let Planted { space, slots } = planting::plant(tree, group.process)?;
        // Not before: whoever the program waits for must not wait for us. Threads that were made meanwhile are found below.
        tree.moves.begin(group.process, tell);
        let own = group.home();
        let mut custodian = Self {
            group,
            own,
            tree: Arc::clone(tree),
            layer: Arc::clone(layer),
            space,
            slots,
            threads: BTreeMap::new(),
            free: (0..planting::SLOTS as u32).rev().collect(),
            hosts: BTreeSet::new(),
            policy: Policy::At(own),
            asked,
            deferred: VecDeque::new(),
            born: BTreeSet::new(),
            made: BTreeMap::new(),
            places,
        };
        for thread in refit_sys::process::threads(group.process) {
            custodian.know(thread);
        }
        Ok(custodian)
    }

    fn know(&mut self, thread: u32) {
        if !self.threads.contains_key(&thread) {
            self.tree.moves.place(self.group.process, thread, Standing::Home);
            let (wanted, at) = (self.own, self.own);
            let one = Thread {
                wanted,
                at,
                stay: 0,
                slot: None,
                signal: false,
                recalled: false,
                visiting: false,
                not_before: None,
                waiting: Vec::new(),
            };
            self.threads.insert(thread, one);
        }
    }

    /// Decides, until the group is no more.
    pub(super) fn run(mut self) {
        while self.next().is_ok() {}
        self.tree.moves.end(self.group.process);
        let gone = Vanish { group: self.group, thread: None };
        for &host in &self.hosts {
            // One that is no more has no replica either.
            let _ = self.layer.send(host, &gone, &[]);
        }
        for thread in std::mem::take(&mut self.threads).into_values() {
            thread.waiting.into_iter().for_each(|one| drop(one.send(Err(MoveError::Ended))));
        }
        self.places.forget(self.group.process);
    }

    fn next(&mut self) -> Next {
        let ask = match self.deferred.pop_front() {
            Some(ask) => ask,
            None => match self.receive() {
                Some(ask) => ask,
                None => return self.depart_who_lingered(),
            },
        };
        match ask {
            Ask::Told(told) => self.told(told),
            Ask::Move { thread, to, done } => self.wish(thread, to, done),
            Ask::Spread { over, done } => self.spread(over, done),
            Ask::Came(came) => self.came(*came),
            Ask::Retrieve(question, reply) => {
                let found = self.space.at(question.address);
                // What cannot be had there can be had here: the thread comes.
                reply.say(&found.unwrap_or(Mapping::Nothing), &[]);
                Ok(())
            }
            Ask::Change(change, reply) => self.change(change, reply),
            Ask::Fell(Fell { thread, why, .. }) => {
                self.kill(&format!("thread {thread} of it is lost: {why}"));
                Ok(())
            }
            Ask::Lost(peer) => self.lost(peer),
        }
    }

    /// What comes next; `None`: a thread may leave again before anything comes.
    fn receive(&self) -> Option<Ask> {
        let soonest = self.threads.values().filter_map(|thread| thread.not_before).min();
        let Some(soonest) = soonest else {
            return Some(self.asked.recv().unwrap_or(Ask::Told(Told::Another)));
        };
        match self.asked.recv_timeout(soonest.saturating_duration_since(Instant::now())) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Ask::Told(Told::Another)),
        }
    }

    fn told(&mut self, told: Told) -> Next {
        match told {
            Told::Signal(id) => {
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.signal = true;
                    self.recall(id);
                }
                Ok(())
            }
            Told::Maps(id) => self.changes_here(id),
            // Of one whose change nobody waits for any more.
            Told::Changed(_) => Ok(()),
            Told::Returned(id) => {
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.visiting = false;
                }
                self.settle(id)
            }
            Told::Born(task) => self.is_born(task),
            Told::Made { parent, child, copy } => {
                self.made.insert(child, (parent, copy));
                self.let_live(child)
            }
            Told::Ended(id) => self.ended(id),
            Told::Another => Err(Ended),
        }
    }

    /// A thread, or all, is wanted elsewhere.
    fn wish(
        &mut self,
        thread: Option<u32>,
        to: InstanceId,
        done: Sender<Result<(), MoveError>>,
    ) -> Next {
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
            one.wanted = to;
            one.waiting.push(done.clone());
            self.settle(id)?;
        }
        Ok(())
    }

    fn spread(&mut self, over: Vec<InstanceId>, done: Sender<Result<(), MoveError>>) -> Next {
        self.policy = Policy::Spread(over, 0);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        for id in all {
            let to = self.next_place();
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.wanted = to;
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

    fn ended(&mut self, id: u32) -> Next {
        if let Some(thread) = self.threads.remove(&id) {
            self.free.extend(thread.slot);
            thread.waiting.into_iter().for_each(|one| drop(one.send(Err(MoveError::Ended))));
            let gone = Vanish { group: self.group, thread: Some(id) };
            for &host in &self.hosts {
                let _ = self.layer.send(host, &gone, &[]);
            }
            self.places.end(self.group.process, id);
        }
        if self.threads.is_empty() { Err(Ended) } else { Ok(()) }
    }

    /// An instance is no more, and with it the registers of threads: the program cannot go on.
    fn lost(&mut self, peer: InstanceId) -> Next {
        if !self.hosts.remove(&peer) {
            return Ok(());
        }
        if self.threads.values().any(|thread| thread.at == peer) {
            self.kill(&format!("instance {} was lost, with threads of it", peer.0));
        }
        Ok(())
    }

    /// The program cannot go on.
    fn kill(&self, why: &str) {
        let process = self.group.process;
        let name = refit_sys::process::name(process);
        eprintln!("refit: {name} ({process}) is killed: {why}");
        kill(process);
    }
}
