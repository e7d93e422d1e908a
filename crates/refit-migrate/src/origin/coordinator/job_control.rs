//! Job control: a program that is stopped stands, wherever its threads are. The signal that stops it waits until all of them are here; then
//! the kernel stops them as ever. They leave again when it lets them go on.

use refit_sys::trace::Tracee;
use refit_tracer::Resume;

use crate::origin::coordinator::{Coordinator, Next, THREAD_STOP_TIMEOUT};
use crate::origin::detach_attach;

impl Coordinator {
    /// A thread stands before a signal that stops all.
    pub(super) fn stops(&mut self, id: u32) -> Next {
        if !self.threads.contains_key(&id) {
            detach_attach::go_on(&self.tree, self.coordinator_id, id);
            return Ok(());
        }
        self.stopping.insert(id, false);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().for_each(|one| self.recall(one));
        self.stop_if_all_are_here();
        Ok(())
    }

    /// Gives the signals that stop all, once no thread is elsewhere.
    pub(super) fn stop_if_all_are_here(&mut self) {
        if self.threads.values().any(|thread| thread.away_at().is_some()) {
            return;
        }
        self.limit_now();
        let mut stopping = std::mem::take(&mut self.stopping);
        for (&id, given) in stopping.iter_mut().filter(|(_, given)| !**given) {
            *given = true;
            let visiting = self.threads.get(&id).is_some_and(|thread| thread.is_visiting());
            let tree = std::sync::Arc::clone(&self.tree);
            let on = move |held: &mut Tracee, _| {
                // What it tells next, it tells when that is decided.
                tree.threads.gives_stop(id);
                let after = match (detach_attach::between(held), visiting) {
                    // It was given it when it came.
                    (true, false) => Resume::Once(0),
                    (true, true) => Resume::ToSystemCall(0),
                    (false, false) => Resume::Once(detach_attach::signal_of(held)),
                    (false, true) => Resume::ToSystemCall(detach_attach::signal_of(held)),
                };
                ((), after)
            };
            // One that is killed meanwhile tells so.
            let _ = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, on);
        }
        self.stopping = stopping;
    }

    /// A thread has been given such a signal, or is no more. Where it has not stopped them after all they leave again at once.
    pub(super) fn is_stopped(&mut self, id: u32) -> Next {
        if self.stopping.remove(&id).is_none() || !self.stopping.is_empty() {
            return Ok(());
        }
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().try_for_each(|id| self.settle(id))
    }
}
