//! Job control: a stopped program is stopped wherever its threads are. The signal that stops it
//! waits until all threads are here; then the kernel stops them as usual. They leave again when the
//! kernel continues them.

use refit_sys::trace::Tracee;
use refit_tracer::Resume;

use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::detach_attach;
use crate::origin::program_tree::THREAD_STOP_TIMEOUT;

impl Coordinator {
    /// Handles a thread to which a signal is about to be delivered that stops all threads.
    pub(super) fn on_stop_signal(&mut self, id: u32) -> Next {
        if !self.threads.contains_key(&id) {
            detach_attach::resume_here(&self.tree, self.coordinator_id, id);
            return Ok(());
        }
        self.stopping.insert(id, false);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().for_each(|one| self.recall(one));
        self.stop_if_all_are_here();
        Ok(())
    }

    /// Delivers the signals that stop all threads, once no thread is away.
    pub(super) fn stop_if_all_are_here(&mut self) {
        if self.threads.values().any(|thread| thread.away_at().is_some()) {
            return;
        }
        self.limit_now();
        self.loans.begin();
        let mut stopping = std::mem::take(&mut self.stopping);
        for (&id, given) in stopping.iter_mut().filter(|(_, given)| !**given) {
            *given = true;
            let visiting = self.threads.get(&id).is_some_and(|thread| thread.is_visiting());
            let tree = std::sync::Arc::clone(&self.tree);
            let on = move |tracee: &mut Tracee, _| {
                // Its next event comes once the stop is decided.
                tree.threads.stop_delivered(id);
                let resume = match (detach_attach::is_between_calls(tracee), visiting) {
                    // The signal was delivered when it returned.
                    (true, false) => Resume::Once(0),
                    (true, true) => Resume::ToSystemCall(0),
                    (false, false) => Resume::Once(detach_attach::signal_of(tracee)),
                    (false, true) => Resume::ToSystemCall(detach_attach::signal_of(tracee)),
                };
                ((), resume)
            };
            // A thread that is killed meanwhile reports that.
            let _ = self.tree.order_of(self.coordinator_id, id, THREAD_STOP_TIMEOUT, on);
        }
        self.stopping = stopping;
    }

    /// Handles a thread that such a signal was delivered to, or that has ended. If the signal has
    /// not stopped the threads after all, they leave again at once.
    pub(super) fn on_stop_delivered(&mut self, id: u32) -> Next {
        if self.stopping.remove(&id).is_none() || !self.stopping.is_empty() {
            return Ok(());
        }
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().try_for_each(|id| self.settle(id))
    }
}
