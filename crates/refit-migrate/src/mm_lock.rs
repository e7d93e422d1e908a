//! The heavy lock of a program: which of its nodes may change its memory (Katz 2014, §5.7.5).
//!
//! | lock | how | messages |
//! ---|---|---|
//! | `queue` | the origin's coordinator makes all changes, one after the other | none of its own |
//! | `lamport` | as `queue`, once a node agrees with all replicas ([`lamport`]) | 3 for each |
//!
//! The queue exists with either lock: the origin's own threads use it, too, and it orders changes
//! and lookups. So `lamport` decides only the order in which nodes reach the queue. It is the
//! thesis's first lock, and exists for comparison with the other one.
//!
//! Two nodes that have lost each other do not wait for each other.
//!
//! Messages are sent while the state is locked, so that links have them in the order of their
//! times. No sender waits for room then: between two nodes, no more than a few messages for each
//! thread are ever under way.

mod lamport;

use std::collections::BTreeSet;

use parking_lot::{Condvar, Mutex, MutexGuard};
use refit_messages::InstanceId;
use refit_sys::adaptive_spin;
use serde::{Deserialize, Serialize};

pub(crate) use lamport::LockMessage;
use lamport::{Lamport, TimedMessage};

/// The kinds of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lock {
    /// The coordinator's queue.
    #[default]
    Queue,
    /// Lamport's algorithm, among the nodes that have a replica.
    Lamport,
}

/// A lock, as one node has it.
pub(crate) trait HeavyLock: Send + Sync {
    /// Waits until this thread has the lock. Returns the number of messages that this takes, with
    /// its release.
    fn acquire(&self) -> u64;
    /// Releases the lock.
    fn release(&self);
    /// Changes the set of nodes that have a replica.
    fn follow(&self, members: &BTreeSet<u16>);
    /// Handles the message of another node.
    fn hear(&self, from: InstanceId, message: LockMessage, time: u64);
    /// Forgets a node that is lost.
    fn forget_node(&self, one: InstanceId);
    /// Ends the lock: nobody gets it any more, or has to wait for it.
    fn end(&self);
}

impl Lock {
    /// Returns the lock of one node; `send` sends messages to others, and returns whether they can
    /// be reached.
    pub(crate) fn of(
        self,
        own: InstanceId,
        send: impl Fn(InstanceId, LockMessage, u64) -> bool + Send + Sync + 'static,
    ) -> Box<dyn HeavyLock> {
        match self {
            Self::Queue => Box::new(Queue),
            Self::Lamport => Box::new(LamportLock {
                own: own.0,
                send: Box::new(send),
                state: Mutex::default(),
                change: Condvar::new(),
            }),
        }
    }
}

/// Holds a lock as long as it lives.
pub(crate) struct HeavyLockGuard<'a>(&'a dyn HeavyLock);

impl<'a> HeavyLockGuard<'a> {
    /// Waits for the lock. Returns the guard, and the number of messages.
    pub(crate) fn acquire(lock: &'a dyn HeavyLock) -> (Self, u64) {
        let messages = lock.acquire();
        (Self(lock), messages)
    }
}

impl Drop for HeavyLockGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The origin's queue, to which all changes come: there is nothing to do before.
struct Queue;

impl HeavyLock for Queue {
    fn acquire(&self) -> u64 {
        0
    }
    fn release(&self) {}
    fn follow(&self, _: &BTreeSet<u16>) {}
    fn hear(&self, _: InstanceId, _: LockMessage, _: u64) {}
    fn forget_node(&self, _: InstanceId) {}
    fn end(&self) {}
}

/// Sends a message to another node. Returns whether the node can be reached.
type SendMessage = Box<dyn Fn(InstanceId, LockMessage, u64) -> bool + Send + Sync>;

/// A lock on which all nodes agree that have a replica.
struct LamportLock {
    own: u16,
    send: SendMessage,
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` until the others are known.
    lamport: Option<Lamport>,
    /// Whether a thread of this node has the lock, or waits for it; other threads wait for that
    /// one.
    taken: bool,
    ended: bool,
}

impl State {
    /// Returns whether a thread may begin to wait for the other nodes.
    fn may_begin(&self) -> bool {
        let may = self.lamport.as_ref().is_none_or(Lamport::may_request);
        self.ended || !self.taken && may
    }

    fn is_acquired(&self) -> bool {
        self.ended || self.lamport.as_ref().is_none_or(Lamport::holds)
    }
}

impl LamportLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Does something, and sends the messages that it leads to.
    fn act<S: IntoIterator<Item = (u16, TimedMessage)>>(
        &self,
        state: &mut State,
        act: impl FnOnce(&mut Lamport) -> S,
    ) {
        let Some(lamport) = &mut state.lamport else { return };
        for (to, (message, time)) in act(lamport) {
            if !(self.send)(InstanceId(to), message, time) {
                lamport.forget(to);
            }
        }
    }

    fn wait(&self, until: fn(&State) -> bool) -> MutexGuard<'_, State> {
        adaptive_spin::a_moment(|| until(&self.state()));
        let mut state = self.state();
        self.change.wait_while(&mut state, |state| !until(state));
        state
    }
}

impl HeavyLock for LamportLock {
    fn acquire(&self) -> u64 {
        let mut state = self.wait(State::may_begin);
        if state.ended {
            return 0;
        }
        state.taken = true;
        let others = state.lamport.as_ref().map_or(0, Lamport::others);
        self.act(&mut state, Lamport::request);
        drop(state);
        drop(self.wait(State::is_acquired));
        3 * others as u64
    }

    fn release(&self) {
        let mut state = self.state();
        state.taken = false;
        self.act(&mut state, Lamport::release);
        drop(state);
        self.change.notify_all();
    }

    fn follow(&self, members: &BTreeSet<u16>) {
        let mut state = self.state();
        if state.lamport.is_some() {
            self.act(&mut state, |lamport| lamport.follow(members));
        } else {
            state.lamport = Some(Lamport::among(self.own, members.iter().copied()));
        }
        drop(state);
        self.change.notify_all();
    }

    fn hear(&self, from: InstanceId, message: LockMessage, time: u64) {
        self.act(&mut self.state(), |lamport| lamport.hear(from.0, (message, time)));
        self.change.notify_all();
    }

    fn forget_node(&self, one: InstanceId) {
        if let Some(lamport) = &mut self.state().lamport {
            lamport.forget(one.0);
        }
        self.change.notify_all();
    }

    fn end(&self) {
        self.state().ended = true;
        self.change.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    use super::*;

    const ALL: [u16; 3] = [4, 5, 6];

    /// Three nodes, each of which receives from all others in one thread.
    #[test]
    fn threads_of_three_nodes_have_the_lock_one_at_a_time() {
        type Sent = (u16, LockMessage, u64);
        let (senders, receivers): (Vec<_>, Vec<_>) =
            ALL.map(|_| mpsc::channel::<Sent>()).into_iter().unzip();
        let lock = |own: u16| {
            let senders = senders.clone();
            let send = move |to: InstanceId, message, time| {
                let at = ALL.iter().position(|&one| one == to.0).expect("a member");
                senders[at].send((own, message, time)).is_ok()
            };
            Arc::from(Lock::Lamport.of(InstanceId(own), send))
        };
        let locks: Vec<Arc<dyn HeavyLock>> = ALL.map(lock).into();
        // The nodes come one after the other; a new node learns of the others first.
        for count in 1..=ALL.len() {
            let members = BTreeSet::from_iter(ALL[..count].iter().copied());
            locks[..count].iter().rev().for_each(|lock| lock.follow(&members));
        }
        for (lock, receiver) in locks.iter().zip(receivers) {
            let lock = Arc::clone(lock);
            // It ends with the last sender, or the process.
            std::thread::spawn(move || {
                for (from, message, time) in receiver {
                    lock.hear(InstanceId(from), message, time);
                }
            });
        }
        let (inside, times) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for lock in locks.iter().chain(&locks) {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let (_held, messages) = HeavyLockGuard::acquire(&**lock);
                        assert_eq!(messages, 6);
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        times.fetch_add(1, SeqCst);
                        assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    }
                });
            }
        });
        assert_eq!(times.into_inner(), 600);
        locks.iter().for_each(|lock| lock.end());
        assert_eq!(HeavyLockGuard::acquire(&*locks[0]).1, 0);
    }
}
