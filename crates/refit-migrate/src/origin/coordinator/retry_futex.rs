//! Calls of threads here that lack pages which are elsewhere.
//!
//! The kernel waits for a page wherever it copies from or to a program, but not for a word that it passes from one thread to another (`FUTEX_LOCK_PI`,
//! `FUTEX_WAKE_OP`): such a call does nothing, and fails. The pages are brought here then, and the call is made again. Of threads elsewhere the same is
//! done where their calls are made ([`Proxy`](crate::origin::syscall_proxy::Proxy)).

use refit_sys::shadow_stub;
use refit_sys::trace::Tracee;
use refit_tracer::Resume;
use refit_tracer::syscall::about_to_call;

use crate::origin::coordinator::{Coordinator, Next, THREAD_STOP_TIMEOUT};

impl Coordinator {
    /// A thread stands at the end of a call that may have lacked pages.
    pub(super) fn lacks(&mut self, id: u32) -> Next {
        self.tree.threads.decides(id);
        let read = |held: &mut Tracee, _| (about_to_call(held), Resume::Stay);
        let Ok(Ok((number, words))) =
            self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, read)
        else {
            return Ok(());
        };
        if !self.space.bring([words[0], words[4]]) {
            // It is as it would be anywhere.
            return self.has_returned(id);
        }
        let visits = self.threads.get(&id).is_some_and(|thread| thread.is_visiting());
        let again = move |held: &mut Tracee, _| {
            let stepped = held.registers().and_then(|mut registers| {
                shadow_stub::step_back(&mut registers, number);
                held.set_registers(&registers)
            });
            let after = if visits { Resume::ToSystemCall(0) } else { Resume::Stay };
            // Killed meanwhile, if not.
            (stepped.is_ok(), after)
        };
        match self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, again) {
            Ok(true) if !visits => self.settle(id),
            _ => Ok(()),
        }
    }
}
