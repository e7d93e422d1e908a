//! The heavy lock of a program: who of its instances may change its memory (Katz 2014, §5.7.5).
//!
//! | lock | how | messages |
//! |---|---|---|
//! | `queue` | all changes come to the origin's coordinator, which makes one after the other | none of its own |
//! | `lamport` | an instance first agrees with all others that have a replica ([`lamport`]); then its change comes to the coordinator | 3 for each of these |
//!
//! The queue is there in any case: the origin's own threads come to it, too, and it is what keeps changes and retrievals apart. So `lamport` decides
//! only in which order instances come to it; it is the thesis's first lock, to be measured beside the other one.
//!
//! Instances that do not hear each other leave each other out.
//!
//! What is said is sent while the state is locked, so that links have it in the order of its times. Nobody waits for room then: between two such
//! instances there is never more under way than some words for each thread.

mod lamport;

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use refit_messages::InstanceId;
use refit_sys::adaptive_spin;
use serde::{Deserialize, Serialize};

pub(crate) use lamport::LockMessage;
use lamport::{Lamport, LockAction};

/// The locks there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lock {
    /// The coordinator's queue.
    #[default]
    Queue,
    /// Lamport's algorithm, among the instances that have a replica.
    Lamport,
}

/// A lock, as one instance has it.
pub(crate) trait HeavyLock: Send + Sync {
    /// Waits until this thread has it; how many messages that takes, with its release.
    fn acquire(&self) -> u64;
    /// It has it no more.
    fn release(&self);
    /// These instances have a replica.
    fn follow(&self, members: &BTreeSet<u16>);
    /// Another one says something.
    fn hear(&self, from: InstanceId, word: LockMessage, time: u64);
    /// Another one is heard no more.
    fn lose(&self, one: InstanceId);
    /// Nobody gets it any more, nor has to wait for it.
    fn end(&self);
}

impl Lock {
    /// That of one instance, which `says` words to others, if they are there.
    pub(crate) fn of(
        self,
        own: InstanceId,
        says: impl Fn(InstanceId, LockMessage, u64) -> bool + Send + Sync + 'static,
    ) -> Box<dyn HeavyLock> {
        match self {
            Self::Queue => Box::new(Queue),
            Self::Lamport => Box::new(Agreed {
                own: own.0,
                says: Box::new(says),
                state: Mutex::default(),
                change: Condvar::new(),
            }),
        }
    }
}

/// Has a lock, as long as it is there.
pub(crate) struct HeavyLockGuard<'a>(&'a dyn HeavyLock);

impl<'a> HeavyLockGuard<'a> {
    /// Waits for it; and how many messages it takes.
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

/// The origin's queue, to which all changes come: nothing has to be done before.
struct Queue;

impl HeavyLock for Queue {
    fn acquire(&self) -> u64 {
        0
    }
    fn release(&self) {}
    fn follow(&self, _: &BTreeSet<u16>) {}
    fn hear(&self, _: InstanceId, _: LockMessage, _: u64) {}
    fn lose(&self, _: InstanceId) {}
    fn end(&self) {}
}

/// Says a word to another one; whether that is there.
type Says = Box<dyn Fn(InstanceId, LockMessage, u64) -> bool + Send + Sync>;

/// All that have a replica agree.
struct Agreed {
    own: u16,
    says: Says,
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Default)]
struct State {
    /// Since the others are known.
    lamport: Option<Lamport>,
    /// A thread of this instance has it, or waits for it; the others wait for that one.
    taken: bool,
    ended: bool,
}

impl State {
    /// Whether a thread may begin to wait for the others.
    fn may_begin(&self) -> bool {
        let may = self.lamport.as_ref().is_none_or(Lamport::may_request);
        self.ended || !self.taken && may
    }

    fn has_it(&self) -> bool {
        self.ended || self.lamport.as_ref().is_none_or(Lamport::holds)
    }
}

impl Agreed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something, and says what is to be said then.
    fn tell<S: IntoIterator<Item = (u16, LockAction)>>(
        &self,
        state: &mut State,
        act: impl FnOnce(&mut Lamport) -> S,
    ) {
        let Some(lamport) = &mut state.lamport else { return };
        for (to, (word, time)) in act(lamport) {
            if !(self.says)(InstanceId(to), word, time) {
                lamport.lose(to);
            }
        }
    }

    fn wait(&self, until: fn(&State) -> bool) -> MutexGuard<'_, State> {
        adaptive_spin::a_moment(|| until(&self.state()));
        let waited = self.change.wait_while(self.state(), |state| !until(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeavyLock for Agreed {
    fn acquire(&self) -> u64 {
        let mut state = self.wait(State::may_begin);
        if state.ended {
            return 0;
        }
        state.taken = true;
        let others = state.lamport.as_ref().map_or(0, Lamport::others);
        self.tell(&mut state, Lamport::request);
        drop(state);
        drop(self.wait(State::has_it));
        3 * others as u64
    }

    fn release(&self) {
        let mut state = self.state();
        state.taken = false;
        self.tell(&mut state, Lamport::release);
        drop(state);
        self.change.notify_all();
    }

    fn follow(&self, members: &BTreeSet<u16>) {
        let mut state = self.state();
        if state.lamport.is_some() {
            self.tell(&mut state, |lamport| lamport.follow(members));
        } else {
            state.lamport = Some(Lamport::among(self.own, members.iter().copied()));
        }
        drop(state);
        self.change.notify_all();
    }

    fn hear(&self, from: InstanceId, word: LockMessage, time: u64) {
        self.tell(&mut self.state(), |lamport| lamport.hear(from.0, (word, time)));
        self.change.notify_all();
    }

    fn lose(&self, one: InstanceId) {
        if let Some(lamport) = &mut self.state().lamport {
            lamport.lose(one.0);
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

    /// Three instances, each of which hears from all others in one thread.
    #[test]
    fn threads_of_three_instances_have_the_lock_one_at_a_time() {
        type Sent = (u16, LockMessage, u64);
        let (senders, receivers): (Vec<_>, Vec<_>) =
            ALL.map(|_| mpsc::channel::<Sent>()).into_iter().unzip();
        let lock = |own: u16| {
            let senders = senders.clone();
            let says = move |to: InstanceId, word, time| {
                let at = ALL.iter().position(|&one| one == to.0).expect("a member");
                senders[at].send((own, word, time)).is_ok()
            };
            Arc::from(Lock::Lamport.of(InstanceId(own), says))
        };
        let locks: Vec<Arc<dyn HeavyLock>> = ALL.map(lock).into();
        // They come one after the other, the newcomer first told of the others.
        for count in 1..=ALL.len() {
            let members = BTreeSet::from_iter(ALL[..count].iter().copied());
            locks[..count].iter().rev().for_each(|lock| lock.follow(&members));
        }
        for (lock, receiver) in locks.iter().zip(receivers) {
            let lock = Arc::clone(lock);
            // It ends with the last sender, or the process.
            std::thread::spawn(move || {
                for (from, word, time) in receiver {
                    lock.hear(InstanceId(from), word, time);
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
