//! Programs that move: whole, or thread by thread, to other kernel instances and back (Katz 2014, chapter 5).
//!
//! ```text
//!   origin                                          another instance
//!   program ─ shadow of a thread                    replica ─ the thread's instructions
//!      │         makes its system calls  ◄─ slot ─      │  runner: one of our threads each
//!      ▼                                                ▼
//!   Tree (who follows) ◄─► custodian  ◄── messages ──► Guest
//!                             └ Space: memory becomes frames, which replicas map when they touch it
//! ```
//!
//! A thread has two halves. The *user half*, its registers and what its instructions do with memory, is what moves. The *kernel half*, all
//! that the kernel keeps for it (number, descriptors, signals and their handlers, children, timers, locks), stays where the program
//! began: there is nothing of it that would have to be carried, named anew or imitated. That half is the thread's shadow, and makes its
//! system calls.
//!
//! Does: move threads ([`Migration::move_to`], [`Migration::spread`]), tell where they are ([`Migration::places`]).
//! Does not: decide where a thread is better off.

mod calls;
mod changes;
mod custodian;
mod guest;
mod half;
mod mappings;
mod passage;
mod planting;
mod runner;
mod space;
mod stub;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;

use refit_messages::{Builder, InstanceId, Layer, Reply};
use thiserror::Error;

use crate::tree::Tree;
use custodian::{Ask, Custodian};
use guest::Guest;
use wire::{Arrive, Came, Change, Fell, Forget, Recall, Retrieve, Vanish};

pub use wire::GroupId;

/// Why a thread is not where it was wanted; it goes on where it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
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
    /// The program cannot be moved.
    #[error("it is not movable: {0}")]
    NotMovable(String),
    /// Something stood in the way.
    #[error("{0}")]
    Refused(String),
    /// It has ended meanwhile.
    #[error("it has ended")]
    Ended,
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

/// What an instance has of programs that move: those that began here, and guests.
pub struct Migration {
    own: InstanceId,
    layer: OnceLock<Arc<Layer>>,
    custodians: Mutex<BTreeMap<u32, Sender<Ask>>>,
    guests: Mutex<BTreeMap<GroupId, Arc<Guest>>>,
    places: Arc<Places>,
}

impl Migration {
    /// That of an instance with this number.
    pub fn new(own: InstanceId) -> Arc<Self> {
        Arc::new(Self {
            own,
            layer: OnceLock::new(),
            custodians: Mutex::default(),
            guests: Mutex::default(),
            places: Arc::default(),
        })
    }

    /// Has messages of other instances answered here.
    pub fn answer(self: &Arc<Self>, builder: Builder) -> Builder {
        let this = |migration: &Arc<Self>| Arc::downgrade(migration);
        let [a, b, c, d, e, f, g, h, i] = std::array::from_fn(|_| this(self));
        builder
            .answer::<Arrive>(move |_, arrive, _, reply| {
                if let Some(this) = a.upgrade() {
                    this.arrive(arrive, reply);
                }
            })
            .on::<Recall>(move |_, recall, _| {
                let guest = b.upgrade().and_then(|this| this.guest(recall.group));
                let runner = guest.and_then(|guest| guest.known(recall.thread));
                if let Some(runner) = runner {
                    runner.recall(recall.stay);
                }
            })
            .answer::<Forget>(move |_, forget, _, reply| {
                match c.upgrade().and_then(|this| this.guest(forget.group)) {
                    Some(guest) => guest.forget(forget.ranges, reply),
                    None => reply.say(&(), &[]),
                }
            })
            .on::<Vanish>(move |_, vanish, _| {
                if let Some(this) = d.upgrade() {
                    this.vanish(vanish);
                }
            })
            .on::<Came>(move |_, came, _| {
                tell(&e, came.group, |_| Ask::Came(Box::new(came)));
            })
            .on::<Fell>(move |_, fell, _| {
                tell(&i, fell.group, |_| Ask::Fell(fell));
            })
            .answer::<Retrieve>(move |_, question, _, reply| {
                tell(&f, question.group, |_| Ask::Retrieve(question, reply));
            })
            .answer::<Change>(move |_, change, _, reply| {
                tell(&g, change.group, |_| Ask::Change(change, reply));
            })
            .lost(move |peer, _| {
                if let Some(this) = h.upgrade() {
                    this.lost(peer);
                }
            })
    }

    /// Over which messages go, once.
    pub fn over(&self, layer: Arc<Layer>) {
        // The first is the one.
        let _ = self.layer.set(layer);
    }

    /// Has a thread of a process of `tree`, or all of them, run at another instance, or here again.
    ///
    /// # Errors
    /// [`MoveError`]; whatever has not moved goes on where it was.
    pub fn move_to(
        &self,
        tree: &Arc<Tree>,
        process: u32,
        thread: Option<u32>,
        to: InstanceId,
    ) -> Result<(), MoveError> {
        self.known(to)?;
        self.ask(tree, process, |done| Ask::Move { thread, to, done })
    }

    /// Has the threads of a process of `tree`, and those that it makes later, run at all instances in turn.
    ///
    /// # Errors
    /// [`MoveError`]; whatever has not moved goes on where it was.
    pub fn spread(&self, tree: &Arc<Tree>, process: u32) -> Result<(), MoveError> {
        let peers = self.layer.get().map(|layer| layer.peers()).unwrap_or_default();
        let mut over: Vec<_> = peers.iter().map(|peer| peer.id).chain([self.own]).collect();
        over.sort_unstable();
        self.ask(tree, process, |done| Ask::Spread { over, done })
    }

    /// Where the threads of a process are that have been elsewhere: by number, the instance.
    pub fn places(&self, process: u32) -> BTreeMap<u32, u16> {
        self.places.all().get(&process).cloned().unwrap_or_default()
    }

    fn known(&self, to: InstanceId) -> Result<(), MoveError> {
        let peers = self.layer.get().map(|layer| layer.peers()).unwrap_or_default();
        let known = to == self.own || peers.iter().any(|peer| peer.id == to);
        if known { Ok(()) } else { Err(MoveError::NoInstance(to.0)) }
    }

    fn ask(
        &self,
        tree: &Arc<Tree>,
        process: u32,
        ask: impl FnOnce(Sender<Result<(), MoveError>>) -> Ask,
    ) -> Result<(), MoveError> {
        let custodian = self.custodian(tree, process)?;
        let (done, told) = mpsc::channel();
        custodian.send(ask(done)).map_err(|_| MoveError::Ended)?;
        // As many as there are threads; none, where they have all ended.
        told.iter().collect()
    }

    /// The custodian of a process, which begins with the first move.
    fn custodian(&self, tree: &Arc<Tree>, process: u32) -> Result<Sender<Ask>, MoveError> {
        if !tree.process_numbers().contains(&process) {
            return Err(MoveError::NoProcess(process));
        }
        let mut custodians = self.custodians.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has ended was of an earlier program.
        if let Some(custodian) = custodians.get(&process)
            && custodian.send(Ask::Told(crate::tree::moves::Told::Changed(0))).is_ok()
        {
            return Ok(custodian.clone());
        }
        tree.movable(process).map_err(MoveError::NotMovable)?;
        let layer = self.layer.get().ok_or(MoveError::NoInstance(self.own.0))?;
        let group = GroupId { origin: self.own.0, process };
        let (ask, asked) = mpsc::channel();
        let told = ask.clone();
        let tell = move |event| told.send(Ask::Told(event)).is_ok();
        let begun = Custodian::begin(group, tree, layer, (asked, tell), Arc::clone(&self.places));
        let custodian = begun.map_err(|error| MoveError::NotMovable(error.to_string()))?;
        let started = thread::Builder::new().name("refit-custodian".to_owned());
        started
            .spawn(move || custodian.run())
            .map_err(|error| MoveError::Refused(error.to_string()))?;
        custodians.insert(process, ask.clone());
        Ok(ask)
    }

    fn guest(&self, group: GroupId) -> Option<Arc<Guest>> {
        self.guests().get(&group).cloned()
    }

    fn guests(&self) -> MutexGuard<'_, BTreeMap<GroupId, Arc<Guest>>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(self: &Arc<Self>, arrive: Arrive, reply: Reply<Arrive>) {
        let this = Arc::clone(self);
        // Making a replica takes a while, and others have messages, too.
        let serve = move || match this.guest_for(&arrive) {
            Ok(guest) => guest.arrive(arrive, reply),
            Err(error) => reply.say(&Err(error.to_string()), &[]),
        };
        // Without a thread the reply is dropped, which is an answer.
        let _ = thread::Builder::new().name("refit-arrival".to_owned()).spawn(serve);
    }

    fn guest_for(&self, arrive: &Arrive) -> io::Result<Arc<Guest>> {
        let mut guests = self.guests();
        if let Some(guest) = guests.get(&arrive.group) {
            return Ok(Arc::clone(guest));
        }
        let layer = self.layer.get().ok_or(io::ErrorKind::NotConnected)?;
        let guest = Guest::begin(arrive.group, &arrive.particulars, layer)?;
        guests.insert(arrive.group, Arc::clone(&guest));
        Ok(guest)
    }

    fn vanish(&self, vanish: Vanish) {
        match vanish.thread {
            Some(thread) => {
                if let Some(guest) = self.guest(vanish.group) {
                    guest.vanish(thread);
                }
            }
            None => {
                if let Some(guest) = self.guests().remove(&vanish.group) {
                    guest.end();
                }
            }
        }
    }

    fn lost(&self, peer: InstanceId) {
        let mut guests = self.guests();
        let theirs = guests.extract_if(.., |group, _| group.home() == peer);
        theirs.for_each(|(_, guest)| guest.end());
        drop(guests);
        let custodians = self.custodians.lock().unwrap_or_else(PoisonError::into_inner);
        for custodian in custodians.values() {
            // One that has ended has nothing there.
            let _ = custodian.send(Ask::Lost(peer));
        }
    }
}

impl std::fmt::Debug for Migration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Migration").field("own", &self.own).finish_non_exhaustive()
    }
}

/// Brings what is said of a group to its custodian, if there is one.
fn tell(migration: &Weak<Migration>, group: GroupId, ask: impl FnOnce(()) -> Ask) {
    let Some(this) = migration.upgrade() else { return };
    let custodians = this.custodians.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(custodian) = custodians.get(&group.process) {
        // A group that is no more tells its hosts.
        let _ = custodian.send(ask(()));
    }
}
