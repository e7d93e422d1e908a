//! Threads that come back go on at once: whoever hears that one is back has its registers given to it, and its coordinator is told of that afterwards.
//!
//! ```text
//!   host: it is back ──► Returns ──► who follows: registers, it goes on ──► coordinator: it is here
//!                           │ in a call, or before a signal                 ▲
//!                           └───────────────────────────────────────────────┘
//! ```
//!
//! **A thread runs once.** Its coordinator makes a [`Ticket`] for a stay when the thread is elsewhere, and nobody but the host of that stay says that
//! it has come back; who is said so takes the ticket, so it is used once, and a stay is over once. What the coordinator does with a thread that
//! is away needs the ticket still to be there ([`Returns::is_away`], [`Returns::while_away`]): else it does nothing, and hears soon of the return. The
//! errand of a return is left within the same lock as the ticket is taken, and so are those that need it: a thread is never made to stand
//! for a return that has been.
//!
//! **Nothing is decided here.** A thread in a call, or one whose shadow is about to be given a signal, comes as its coordinator says.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::origin::coordinator::{Command, QueuedCommand};
use crate::origin::detach_attach::{self, ShadowRef, SignalPending};
use crate::origin::program_tree::ProgramTree;
use crate::protocol::messages::ThreadReturned;

/// For a return from one stay.
struct Ticket {
    residency: u64,
    tree: Arc<ProgramTree>,
    shadow_ref: ShadowRef,
}

/// What a thread has got that is back.
pub(crate) struct Restoration {
    pub(crate) has: SignalPending,
    /// Since it was heard of.
    pub(crate) took: Duration,
}

/// Threads that are away, by number.
#[derive(Default)]
pub(crate) struct Returns {
    tickets: Mutex<BTreeMap<u32, Ticket>>,
}

impl Returns {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Ticket>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is away; this shadow_ref it comes back.
    pub(crate) fn expect(
        &self,
        thread: u32,
        residency: u64,
        tree: &Arc<ProgramTree>,
        shadow_ref: ShadowRef,
    ) {
        let ticket = Ticket { residency, tree: Arc::clone(tree), shadow_ref };
        self.all().insert(thread, ticket);
    }

    /// A thread is here, or no more.
    pub(crate) fn forget(&self, thread: u32) {
        self.all().remove(&thread);
    }

    /// Whether nobody has said yet that it is back.
    pub(crate) fn is_away(&self, thread: u32) -> bool {
        self.all().contains_key(&thread)
    }

    /// Does something if nobody has said yet that it is back, nor does meanwhile; whether.
    pub(crate) fn while_away(&self, thread: u32, does: impl FnOnce()) -> bool {
        let all = self.all();
        let away = all.contains_key(&thread);
        if away {
            does();
        }
        away
    }

    /// A thread is back: it goes on as soon as that can be, and its coordinator is told.
    pub(crate) fn hear(&self, came: Box<ThreadReturned>, coordinator: Sender<QueuedCommand>) {
        let heard = Instant::now();
        let tell = move |came, has: Option<SignalPending>| {
            let given = has.map(|has| Restoration { has, took: heard.elapsed() });
            // A group that is no more tells its hosts.
            drop(coordinator.send(QueuedCommand::now(Command::ThreadReturned(came, given))));
        };
        self.is_back(came.thread, came.residency, |ticket| match ticket {
            Some(Ticket { tree, shadow_ref, .. }) if !came.in_call => {
                detach_attach::come_at_once(&tree, shadow_ref, came, tell);
            }
            // What its call has returned, its coordinator knows.
            _ => tell(came, None),
        });
    }

    /// Somebody has said that a thread is back from this stay: does what follows from it, with the stay's ticket if this is its end.
    fn is_back(&self, thread: u32, residency: u64, does: impl FnOnce(Option<Ticket>)) {
        let mut all = self.all();
        let ends = all.get(&thread).is_some_and(|ticket| ticket.residency == residency);
        let ticket = if ends { all.remove(&thread) } else { None };
        does(ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;
    use std::thread;

    use refit_sys::shadow_stub::{self, Slot};

    use super::*;
    use crate::origin::thread_table::CoordinatorId;

    const THREAD: u32 = 7;

    fn expect(returns: &Returns, residency: u64) {
        static WORDS: [AtomicU64; shadow_stub::WORDS] =
            [const { AtomicU64::new(0) }; shadow_stub::WORDS];
        let slot = Slot::at(&WORDS, 0).expect("there is one");
        let shadow_ref =
            ShadowRef { coordinator_id: CoordinatorId::default(), code: 0, slot, place: 0 };
        let tree = ProgramTree::new(false, None, false);
        returns.expect(THREAD, residency, &tree, shadow_ref);
    }

    #[test]
    fn a_stay_is_over_once() {
        let returns = Returns::default();
        let ends = |residency| {
            let mut ends = false;
            returns.is_back(THREAD, residency, |ticket| ends = ticket.is_some());
            ends
        };
        expect(&returns, 2);
        assert!(!ends(1), "another one's");
        assert!(returns.is_away(THREAD));
        assert!(ends(2));
        assert!(!ends(2), "it is over");
        assert!(!returns.is_away(THREAD));
        assert!(!returns.while_away(THREAD, || panic!("it is back")));
    }

    /// Were it, it would stand for ever: nobody says once more that it is back.
    #[test]
    fn no_thread_is_made_to_stand_that_is_back() {
        let returns = Returns::default();
        for residency in 0..500 {
            let errands = Mutex::new(Vec::new());
            let leave = |errand| errands.lock().expect("no panic").push(errand);
            let (begin, begun) = mpsc::channel();
            expect(&returns, residency);
            let stand = || {
                begin.send(()).expect("it is heard");
                // The other one is about to say so.
                (0..50).for_each(|_| thread::yield_now());
                leave("stand");
            };
            thread::scope(|scope| {
                scope.spawn(|| returns.while_away(THREAD, stand));
                begun.recv().expect("it begins");
                returns.is_back(THREAD, residency, |_| leave("come"));
            });
            let errands = errands.into_inner().expect("no panic");
            assert_eq!(errands, ["stand", "come"]);
        }
    }
}
