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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Layer, Reply};
use refit_sys::park::Slot;
use refit_sys::words::Words;

use super::changes;
use super::planting::{self, Planted};
use super::space::Space;
use super::wire::{
    Arrive, Came, Change, Descriptor, Fell, Forget, GroupId, Particulars, Recall, Retrieve, Vanish, Why,
};
use super::{MoveError, Places, passage};
use crate::tree::Tree;
use crate::tree::moves::{Standing, Told};
use crate::tree::After;

/// How long a thread may take to stop here.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a thread that came because of an exception stays.
const LINGER: Duration = Duration::from_millis(1);
/// How long a thread that cannot leave now is left alone.
const NOT_NOW: Duration = Duration::from_millis(5);

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
        if std::env::var_os("REFIT_DEBUG").is_some() {
            for (id, t) in &self.threads { eprintln!("  [{id} wanted {} at {} stay {} signal {} recalled {} visiting {} later {}]", t.wanted.0, t.at.0, t.stay, t.signal, t.recalled, t.visiting, t.not_before.is_some()); }
        }
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
                reply.say(&found.unwrap_or(super::wire::Mapping::Nothing), &[]);
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
        if std::env::var_os("REFIT_DEBUG").is_some() { eprintln!("told {told:?}"); }
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

    /// Has a thread go where it is wanted, if it can now.
    fn settle(&mut self, id: u32) -> Next {
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.visiting {
            return Ok(());
        }
        if thread.at == thread.wanted {
            thread.waiting.drain(..).for_each(|one| drop(one.send(Ok(()))));
            if thread.at == self.own {
                // It may stand, kept.
                passage::go_on(&self.tree, id);
            }
            return Ok(());
        }
        if thread.at != self.own {
            self.recall(id);
            return Ok(());
        }
        self.depart(id)
    }

    fn recall(&mut self, id: u32) {
        let Some(thread) = self.threads.get_mut(&id) else { return };
        if thread.at != self.own && !thread.recalled {
            thread.recalled = true;
            let recall = Recall { group: self.group, thread: id, stay: thread.stay };
            // One that is lost tells so by itself.
            let _ = self.layer.send(thread.at, &recall, &[]);
        }
    }

    /// Sends a thread where it is wanted.
    fn depart(&mut self, id: u32) -> Next {
        let Some(number) = self.free.pop() else {
            return self.stays(id, MoveError::Refused("too many of its threads are away".into()));
        };
        let Some((slot, place)) = self.slot(number) else { return Ok(()) };
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        (thread.slot, thread.not_before) = (Some(number), None);
        thread.stay += 1;
        let (stay, to) = (thread.stay, thread.wanted);
        let way = passage::Way { process: self.group.process, code: self.code(), slot, place };
        self.tree.moves.share(self.group.process);
        let (in_call, half) = match passage::leave(&self.tree, id, way) {
            Ok(left) => left,
            Err(passage::Stays::NotNow) => {
                self.give_back(id);
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.not_before = Some(Instant::now() + NOT_NOW);
                }
                return Ok(());
            }
            Err(passage::Stays::Signals) => {
                self.give_back(id);
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.visiting = true;
                }
                return Ok(());
            }
            Err(passage::Stays::Refused(error)) => {
                self.give_back(id);
                return self.stays(id, MoveError::Refused(error.to_string()));
            }
        };
        let arrive = Arrive {
            group: self.group,
            particulars: self.particulars(),
            thread: id,
            stay,
            slot: number,
            in_call,
            nice: 0,
            half: half.clone(),
        };
        self.hosts.insert(to);
        let arrived = self.layer.ask(to, &arrive, &[]);
        let why = match arrived {
            Ok((Ok(()), _)) => {
                if let Some(thread) = self.threads.get_mut(&id) {
                    thread.at = to;
                    thread.recalled = false;
                    thread.waiting.drain(..).for_each(|one| drop(one.send(Ok(()))));
                }
                self.places.put(self.group.process, id, to);
                return Ok(());
            }
            Ok((Err(why), _)) => why,
            Err(error) => error.to_string(),
        };
        // Nobody has seen it: it goes on where it was.
        let came = passage::come(&self.tree, id, way, &half, in_call, After::GoOn);
        self.give_back(id);
        if came.is_err() {
            // It was killed meanwhile, which is told.
            return Ok(());
        }
        self.stays(id, MoveError::Refused(why))
    }

    /// A thread cannot leave: it stays, and is wanted here.
    fn stays(&mut self, id: u32, why: MoveError) -> Next {
        let own = self.own;
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.wanted = own;
            thread.waiting.drain(..).for_each(|one| drop(one.send(Err(why.clone()))));
        }
        passage::go_on(&self.tree, id);
        Ok(())
    }

    fn give_back(&mut self, id: u32) {
        if let Some(thread) = self.threads.get_mut(&id)
            && let Some(slot) = thread.slot.take()
        {
            self.free.push(slot);
        }
    }

    fn slot(&self, number: u32) -> Option<(Slot, u64)> {
        let slot = Slot::at(self.slots.get(), number as usize)?;
        let at = self.space.window.start + 4096 + u64::from(number) * refit_sys::park::SLOT as u64;
        Some((slot, at))
    }

    fn code(&self) -> u64 {
        self.space.window.start + super::stub::CODE
    }

    fn particulars(&self) -> Particulars {
        use std::os::fd::{AsFd, AsRawFd};
        let own = std::process::id();
        let name = refit_sys::process::name(self.group.process);
        Particulars {
            window: self.space.window.clone(),
            frames: Descriptor { process: own, number: self.space.frames.as_raw_fd() },
            slots: Descriptor { process: own, number: self.slots.as_fd().as_raw_fd() },
            name,
        }
    }

    /// A thread is back.
    fn came(&mut self, came: Came) -> Next {
        let id = came.thread;
        let Some(thread) = self.threads.get_mut(&id) else { return Ok(()) };
        if thread.stay != came.stay || thread.at == self.own {
            return Ok(());
        }
        thread.at = self.own;
        thread.recalled = false;
        let number = thread.slot.unwrap_or(0);
        let signal = std::mem::take(&mut thread.signal);
        let calls = came.why == Why::Call && !signal;
        thread.visiting = calls;
        if came.why == Why::Exception {
            thread.not_before = Some(Instant::now() + LINGER);
        }
        let lingers = thread.not_before.is_some();
        let Some((slot, place)) = self.slot(number) else { return Ok(()) };
        let way = passage::Way { process: self.group.process, code: self.code(), slot, place };
        let after = match (signal, calls) {
            (true, _) => After::Once(passage::PENDING),
            (false, true) => After::ToSystemCall(0),
            (false, false) => After::GoOn,
        };
        let back = passage::come(&self.tree, id, way, &came.half, came.in_call, after);
        self.give_back(id);
        self.places.put(self.group.process, id, self.own);
        if std::env::var_os("REFIT_DEBUG").is_some() { eprintln!("came {id} stay {} why {:?} in_call {} signal {signal} -> {back:?}", came.stay, came.why, came.in_call); }
        if back.is_err() || lingers {
            return Ok(());
        }
        self.settle(id)
    }

    fn depart_who_lingered(&mut self) -> Next {
        let now = Instant::now();
        let due = |thread: &Thread| thread.not_before.is_some_and(|then| then <= now);
        let all: Vec<u32> =
            self.threads.iter().filter(|(_, one)| due(one)).map(|(&id, _)| id).collect();
        for id in all {
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.not_before = None;
            }
            self.settle(id)?;
        }
        Ok(())
    }

    fn is_born(&mut self, task: u32) -> Next {
        if refit_sys::process::threads(self.group.process).contains(&task) {
            self.know(task);
            let wanted = self.next_place();
            if let Some(thread) = self.threads.get_mut(&task) {
                thread.wanted = wanted;
            }
            return self.settle(task);
        }
        self.born.insert(task);
        self.let_live(task)
    }

    /// Lets a process that a thread here has made go on, and the thread, once all is known.
    fn let_live(&mut self, child: u32) -> Next {
        let Some(&(parent, copy)) = self.made.get(&child) else { return Ok(()) };
        if !self.born.remove(&child) {
            return Ok(());
        }
        self.made.remove(&child);
        if copy && let Err(error) = self.space.copy_for(child) {
            // It would share what it must not.
            eprintln!("refit: a child of {}: {error}", self.group.process);
            kill(child);
        }
        passage::go_on(&self.tree, child);
        if copy {
            let visiting = self.threads.get(&parent).is_some_and(|thread| thread.visiting);
            let after = if visiting { After::ToSystemCall(0) } else { After::GoOn };
            let _ = self.tree.order(parent, PATIENCE, move |_, _| ((), after));
        }
        Ok(())
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

    /// A thread elsewhere changes the memory.
    fn change(&mut self, change: Change, reply: Reply<Change>) -> Next {
        let Change { thread, number, arguments, stack, .. } = change;
        let before = self.before(number.cast_signed(), &arguments);
        if let Err(error) = before {
            reply.say(&-i64::from(error.raw_os_error().unwrap_or(libc::ENOMEM)), &[]);
            return Ok(());
        }
        let answer = if changes::by_shadow(number.cast_signed(), &arguments) {
            self.by_shadow(thread, number, arguments, stack)
        } else {
            self.space.call(number.cast_signed(), arguments)
        };
        if std::env::var_os("REFIT_DEBUG").is_some() { eprintln!("change {number} {arguments:x?} = {answer:?}"); }
        if answer.is_ok() {
            self.behind(number.cast_signed(), &arguments);
        }
        let failed = |error: io::Error| -i64::from(error.raw_os_error().unwrap_or(libc::ENOMEM));
        reply.say(&answer.unwrap_or_else(failed), &[]);
        Ok(())
    }

    /// A thread's shadow makes a call, which does not wait for anybody.
    fn by_shadow(
        &mut self,
        id: u32,
        number: u64,
        arguments: [u64; 6],
        stack: u64,
    ) -> io::Result<i64> {
        let slot = self.threads.get(&id).and_then(|thread| thread.slot);
        let Some((slot, _)) = slot.and_then(|slot| self.slot(slot)) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        slot.ask(number, arguments, stack);
        loop {
            let heard = slot.bell();
            if let Some(value) = slot.answer() {
                return Ok(value.cast_signed());
            }
            while let Ok(ask) = self.asked.try_recv() {
                let stands = matches!(ask, Ask::Told(Told::Signal(of) | Told::Ended(of)) if of == id);
                self.deferred.push_back(ask);
                if stands {
                    return passage::answer_of(&self.tree, id, self.code(), slot);
                }
            }
            slot.wait(heard, Duration::from_millis(1));
        }
    }

    /// A thread here stands before a change of the memory.
    fn changes_here(&mut self, id: u32) -> Next {
        let call = self.tree.order(id, PATIENCE, |held, _| {
            (crate::tree::moves::about_to_call(held), After::Stay)
        });
        let Ok(Ok((number, arguments))) = call else { return Ok(()) };
        let number = number.cast_signed();
        if std::env::var_os("REFIT_DEBUG").is_some() { eprintln!("here {number} {arguments:x?}"); }
        // What cannot be told to others is not done: they would see what is not there.
        if let Err(error) = self.before(number, &arguments) {
            self.kill(&format!("a change of its memory cannot be told to others: {error}"));
            return Ok(());
        }
        let visiting = self.threads.get(&id).is_some_and(|thread| thread.visiting);
        if !visiting {
            self.tree.moves.place(self.group.process, id, Standing::Changing);
        }
        let _ = self.tree.order(id, PATIENCE, |_, _| ((), After::ToSystemCall(0)));
        self.until_changed(id);
        self.behind(number, &arguments);
        Ok(())
    }

    /// Waits until a thread here has made its change.
    fn until_changed(&mut self, id: u32) {
        while let Ok(ask) = self.asked.recv() {
            let changed = matches!(ask, Ask::Told(Told::Changed(of) | Told::Returned(of) | Told::Ended(of)) if of == id);
            let only = matches!(ask, Ask::Told(Told::Changed(_)));
            let over = matches!(ask, Ask::Told(Told::Another));
            if !only {
                self.deferred.push_back(ask);
            }
            if changed || over {
                break;
            }
        }
    }

    /// Before a change: others forget what is not to be any more.
    fn before(&mut self, number: i64, arguments: &[u64; 6]) -> io::Result<()> {
        let end = || self.space.call(libc::SYS_brk, [0; 6]).map(i64::cast_unsigned);
        let plan = changes::plan(number, arguments, end)?;
        self.forget(&plan.forget)?;
        for range in &plan.keep {
            self.space.keep(range)?;
        }
        for range in &plan.zero {
            for part in self.space.frames_in(range)? {
                self.space.drop_frames(&part)?;
            }
        }
        Ok(())
    }

    /// After it: frames that nothing shows any more are given back.
    fn behind(&self, number: i64, arguments: &[u64; 6]) {
        if let Some(range) = changes::unused(number, arguments)
            // The call may have failed.
            && self.space.frames_in(&range).is_ok_and(|still| still.is_empty())
        {
            // Else they are given back later, with all others.
            let _ = self.space.drop_frames(&range);
        }
    }

    fn forget(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let forget = Forget { group: self.group, ranges: ranges.to_vec() };
        for &host in &self.hosts {
            // A host that is lost has forgotten.
            let _ = self.layer.ask(host, &forget, &[]);
        }
        Ok(())
    }
}
