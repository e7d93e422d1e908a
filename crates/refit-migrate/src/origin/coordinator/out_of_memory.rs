//! Nodes that have no memory left: threads that need more go on at their origin, and callers
//! receive the reason.

use refit_messages::InstanceId;

use crate::error::MoveError;
use crate::origin::coordinator::{Coordinator, Next};

impl Coordinator {
    /// Handles a destination that has no memory for another page, which one of the threads there
    /// waits for. Which one is unknown, so all threads there return.
    pub(super) fn on_out_of_memory(&mut self, node: InstanceId) -> Next {
        let there = self.threads.iter().filter(|(_, thread)| thread.away_at() == Some(node));
        let there: Vec<u32> = there.map(|(&id, _)| id).collect();
        let why = MoveError::NoMemory(format!("{node} has no memory left for its pages"));
        for id in there {
            self.want_home(id, &why);
            self.recall(id);
        }
        Ok(())
    }

    /// Has a thread, for which there is no memory where it is, run at its origin until a user wants
    /// it elsewhere again.
    pub(super) fn want_home(&mut self, id: u32, why: &MoveError) {
        let own = self.own;
        if self.threads.get(&id).is_some_and(|thread| thread.wanted != own) {
            self.refuse(id, why);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.wanted = own;
        }
    }

    /// Counts a refusal for want of memory, and reports the first to the user.
    pub(super) fn report_no_memory(&mut self, why: &MoveError) {
        self.ledger.counts().no_memory += 1;
        if !std::mem::replace(&mut self.reported_memory, true) {
            let process = self.group.process;
            let name = refit_sys::process::name(process);
            refit_log::say(&format!(
                "{name} ({process}) continues where it began as far as needed: {why}"
            ));
        }
    }
}
