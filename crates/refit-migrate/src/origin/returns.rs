//! Restores returning threads without delay: the thread that receives a return has the event loop
//! restore the registers, and notifies the coordinator afterwards.
//!
//! ```text
//!   destination: returned ──► Returns ──► event loop: registers, it goes on ──► coordinator
//!                                │ in a call, or before a signal                     ▲
//!                                └───────────────────────────────────────────────────┘
//! ```
//!
//! **A thread runs once.** Its coordinator makes a [`Ticket`] for a residency when the thread is
//! away, and only the destination of that residency reports its return. The thread that receives
//! the report takes the ticket: so a ticket is used once, and a residency ends once. An operation
//! of the coordinator on a thread that is away requires that the ticket still exists
//! ([`Returns::is_away`], [`Returns::while_away`]); otherwise the coordinator does nothing, and
//! receives the return soon. The supervisor request that restores the thread is queued under the
//! lock under which the ticket is taken, and so are the requests that need the ticket: so no
//! request stops a shadow whose thread has already returned.
//!
//! **This module makes no decisions.** For a thread in a call, or one to whose shadow a signal is
//! about to be delivered, the coordinator decides how it is restored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::origin::command::{Command, QueuedCommand};
use crate::origin::detach_attach::{self, Restoration, ShadowRef, SignalPending};
use crate::origin::program_tree::ProgramTree;
use crate::protocol::messages::ThreadReturned;

/// Permits one return from one residency.
struct Ticket {
    residency: u64,
    tree: Arc<ProgramTree>,
    shadow_ref: ShadowRef,
}

/// The tickets of threads that are away, by thread.
#[derive(Default)]
pub(crate) struct Returns {
    tickets: Mutex<BTreeMap<u32, Ticket>>,
}

impl Returns {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Ticket>> {
        self.tickets.lock()
    }

    /// Makes the ticket of a thread that is away, and returns to this shadow.
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

    /// Drops the ticket of a thread that is here, or has ended.
    pub(crate) fn forget(&self, thread: u32) {
        self.all().remove(&thread);
    }

    /// Returns whether no return of a thread was reported yet.
    pub(crate) fn is_away(&self, thread: u32) -> bool {
        self.all().contains_key(&thread)
    }

    /// Calls `does` if no return of a thread was reported yet, and lets none be reported meanwhile.
    /// Returns whether it did.
    pub(crate) fn while_away(&self, thread: u32, does: impl FnOnce()) -> bool {
        let all = self.all();
        let away = all.contains_key(&thread);
        if away {
            does();
        }
        away
    }

    /// Handles a return: the thread goes on as soon as possible, and its coordinator is notified.
    pub(crate) fn on_returned(
        &self,
        returned: Box<ThreadReturned>,
        coordinator: Sender<QueuedCommand>,
    ) {
        let began = Instant::now();
        let notify = move |returned, pending: Option<SignalPending>| {
            let restored = pending.map(|pending| Restoration { pending, took: began.elapsed() });
            // A coordinator that has ended has torn the replicas down.
            drop(coordinator.send(QueuedCommand::now(Command::ThreadReturned(returned, restored))));
        };
        self.end_residency(returned.thread, returned.residency, |ticket| match ticket {
            Some(Ticket { tree, shadow_ref, .. }) if !returned.in_call => {
                detach_attach::attach_later(&tree, shadow_ref, returned, notify);
            }
            // Only the coordinator knows what its call has returned.
            _ => notify(returned, None),
        });
    }

    /// Handles the report that a thread has returned from a residency: calls `does` with the
    /// residency's ticket, or with `None` if it has ended already.
    fn end_residency(&self, thread: u32, residency: u64, does: impl FnOnce(Option<Ticket>)) {
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
    use crate::origin::tracer_event::CoordinatorId;

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
    fn a_residency_ends_once() {
        let returns = Returns::default();
        let ends = |residency| {
            let mut ends = false;
            returns.end_residency(THREAD, residency, |ticket| ends = ticket.is_some());
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

    /// If it was, it would be stopped forever: nobody reports its return once more.
    #[test]
    fn no_shadow_is_stopped_whose_thread_has_returned() {
        let returns = Returns::default();
        for residency in 0..500 {
            let requests = Mutex::new(Vec::new());
            let leave = |request| requests.lock().push(request);
            let (begin, begun) = mpsc::channel();
            expect(&returns, residency);
            let stop = || {
                begin.send(()).expect("it is heard");
                // The other thread is about to report the return.
                (0..50).for_each(|_| thread::yield_now());
                leave("stop");
            };
            thread::scope(|scope| {
                scope.spawn(|| returns.while_away(THREAD, stop));
                begun.recv().expect("it begins");
                returns.end_residency(THREAD, residency, |_| leave("attach"));
            });
            let requests = requests.into_inner();
            assert_eq!(requests, ["stop", "attach"]);
        }
    }
}
