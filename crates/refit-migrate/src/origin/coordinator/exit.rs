//! Ends of threads.

use crate::error::MoveError;
use crate::origin::coordinator::{Coordinator, Ended, Next};
use crate::protocol::messages::Teardown;

impl Coordinator {
    /// Handles a thread that is stopped at its exit: passes its robust mutexes on while its memory
    /// is still its own.
    pub(super) fn on_exiting(&mut self, id: u32) -> Next {
        // The kernel, too, gives up on a list that cannot be read.
        let _ = self.space.pass_mutexes_on(id);
        self.tree.supervisor.let_exit(id);
        Ok(())
    }

    pub(super) fn on_ended(&mut self, id: u32) -> Next {
        if let Some(thread) = self.threads.remove(&id) {
            self.remote_programs.end_proxy(self.group.process, id);
            self.returns.forget(id);
            self.free.extend(thread.slot());
            thread.waiting.into_iter().for_each(|one| drop(one.send(Err(MoveError::Ended))));
            let teardown = Teardown { group: self.group, thread: Some(id) };
            for &node in &self.destinations {
                let _ = self.layer.send(node, &teardown, &[]);
            }
            self.places.end(self.group.process, id);
            self.on_stop_delivered(id)?;
            self.stop_if_all_are_here();
        }
        if self.threads.is_empty() { Err(Ended) } else { Ok(()) }
    }
}
