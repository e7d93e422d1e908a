//! Threads and processes that threads here make.

use super::{Custodian, Next, PATIENCE, kill};
use crate::migration::passage;
use crate::tree::After;

impl Custodian {
    pub(super) fn is_born(&mut self, task: u32) -> Next {
        if refit_sys::process::threads(self.group.process).contains(&task) {
            self.know(task);
            let wanted = self.next_place();
            if let Some(thread) = self.threads.get_mut(&task) {
                thread.wanted = wanted;
            }
            return self.settle(task);
        }
        self.born.insert(task);
        self.let_live(task)
    }

    /// Lets a process that a thread here has made go on, and the thread, once all is known.
    pub(super) fn let_live(&mut self, child: u32) -> Next {
        let Some(&(parent, copy)) = self.made.get(&child) else { return Ok(()) };
        if !self.born.remove(&child) {
            return Ok(());
        }
        self.made.remove(&child);
        if copy && let Err(error) = self.space.copy_for(child) {
            // It would share what it must not.
            eprintln!("refit: a child of {}: {error}", self.group.process);
            kill(child);
        }
        passage::go_on(&self.tree, child);
        if copy {
            let visiting = self.threads.get(&parent).is_some_and(|thread| thread.visiting);
            let after = if visiting { After::ToSystemCall(0) } else { After::GoOn };
            let _ = self.tree.order(parent, PATIENCE, move |_, _| ((), after));
        }
        Ok(())
    }
}
