//! Programs that limit their own calls (seccomp; [`refit_tracer::supervisor`]'s `sandbox`): all
//! their threads return before the filter is installed, and stay at their origin.

use std::sync::Arc;

use refit_tracer::{Resume, StopReason};

use crate::origin::coordinator::{Coordinator, Next};

impl Coordinator {
    /// Handles a thread that is about to limit its own calls, or those of all threads.
    pub(super) fn on_limit(&mut self, id: u32) -> Next {
        self.limiting.insert(id);
        let all: Vec<u32> = self.threads.keys().copied().collect();
        all.into_iter().for_each(|one| self.recall(one));
        self.stop_if_all_are_here();
        Ok(())
    }

    /// Has the calls made that limit calls, once all threads are here; no thread leaves any more.
    pub(super) fn limit_now(&mut self) {
        for id in std::mem::take(&mut self.limiting) {
            // Without effect if the thread was killed meanwhile.
            let (tree, coordinator_id) = (Arc::clone(&self.tree), self.coordinator_id);
            self.tree.supervisor.order_kept(id, move |_| {
                let others = tree.resume_of_other(coordinator_id, id, StopReason::Kept);
                others.unwrap_or(Resume::ToSystemCall(0))
            });
        }
    }
}
