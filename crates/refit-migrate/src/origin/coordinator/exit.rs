//! Threads end.

use crate::error::MoveError;
use crate::origin::coordinator::{Coordinator, Ended, Next};
use crate::protocol::messages::Teardown;

impl Coordinator {
    /// A thread stands in its end; what it holds is passed on while its memory is still its own.
    pub(super) fn ends(&mut self, id: u32) -> Next {
        // A list that cannot be read is passed over by the kernel, too.
        let _ = self.space.pass_on(id);
        self.tree.supervisor.let_end(id);
        Ok(())
    }

    pub(super) fn ended(&mut self, id: u32) -> Next {
        if let Some(thread) = self.threads.remove(&id) {
            self.remote_programs.back(self.group.process, id);
            self.returns.forget(id);
            self.free.extend(thread.slot());
            thread.waiting.into_iter().for_each(|one| drop(one.send(Err(MoveError::Ended))));
            let gone = Teardown { group: self.group, thread: Some(id) };
            for &host in &self.destinations {
                let _ = self.layer.send(host, &gone, &[]);
            }
            self.places.end(self.group.process, id);
            self.is_stopped(id)?;
            self.stop_if_all_are_here();
        }
        if self.threads.is_empty() { Err(Ended) } else { Ok(()) }
    }
}
