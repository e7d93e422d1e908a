//! Restarts calls of threads here that lack pages which are at other nodes.
//!
//! The kernel waits for a page wherever it copies from or to a program, but not for the words that
//! some futex operations pass from one thread to another (`FUTEX_LOCK_PI`, `FUTEX_WAKE_OP`): such a
//! call does nothing, and fails. Refit then fetches the pages, and restarts the call. For threads
//! that are away, the proxy that makes their calls does the same
//! ([`Proxy`](crate::origin::syscall_proxy::Proxy)).

use refit_sys::shadow_stub;
use refit_sys::trace::Tracee;
use refit_tracer::Resume;
use refit_tracer::syscall::about_to_call;

use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::program_tree::THREAD_STOP_TIMEOUT;

impl Coordinator {
    /// Handles a thread at the end of a call that may have lacked pages.
    pub(super) fn on_missing_pages(&mut self, id: u32) -> Next {
        self.tree.threads.decide_futex(id);
        let read = |tracee: &mut Tracee, _| (about_to_call(tracee), Resume::Stay);
        let Ok(Ok((number, words))) =
            self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, read)
        else {
            return Ok(());
        };
        if !self.space.fetch_pages([words[0], words[4]]) {
            // The call fails as it would without refit.
            return self.on_call_returned(id);
        }
        let visits = self.threads.get(&id).is_some_and(|thread| thread.is_visiting());
        let again = move |tracee: &mut Tracee, _| {
            let stepped = tracee.registers().and_then(|mut registers| {
                shadow_stub::step_back(&mut registers, number);
                tracee.set_registers(&registers)
            });
            let resume = if visits { Resume::ToSystemCall(0) } else { Resume::Stay };
            // This fails only if the thread was killed meanwhile.
            (stepped.is_ok(), resume)
        };
        match self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, again) {
            Ok(true) if !visits => self.settle(id),
            _ => Ok(()),
        }
    }
}
