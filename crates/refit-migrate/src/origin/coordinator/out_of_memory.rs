//! Where an instance has no memory left: what needs more goes on at home, and whoever asks is told why.

use refit_messages::InstanceId;

use crate::error::MoveError;
use crate::origin::coordinator::{Coordinator, Next};

impl Coordinator {
    /// A host has no memory for another page, which one of its threads waits for. Nobody knows which: all come.
    pub(super) fn is_full(&mut self, host: InstanceId) -> Next {
        let there = self.threads.iter().filter(|(_, thread)| thread.away_at() == Some(host));
        let there: Vec<u32> = there.map(|(&id, _)| id).collect();
        let why = MoveError::NoMemory(format!("{host} has no memory left for its pages"));
        for id in there {
            self.is_wanted_home(id, &why);
            self.recall(id);
        }
        Ok(())
    }

    /// There is no memory for a thread where it is: it is wanted at home, until somebody wants it elsewhere again.
    pub(super) fn is_wanted_home(&mut self, id: u32, why: &MoveError) {
        let own = self.own;
        if self.threads.get(&id).is_some_and(|thread| thread.wanted != own) {
            self.refuse(id, why);
        }
        if let Some(thread) = self.threads.get_mut(&id) {
            thread.wanted = own;
        }
    }

    /// A thread is refused for want of memory.
    pub(super) fn lacks_memory(&mut self, why: &MoveError) {
        self.ledger.counts().no_memory += 1;
        if !std::mem::replace(&mut self.told_of_memory, true) {
            let process = self.group.process;
            let name = refit_sys::process::name(process);
            refit_log::say(&format!("{name} ({process}) goes on at home as far as needed: {why}"));
        }
    }
}
