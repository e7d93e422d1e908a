//! Threads and processes that threads here make.

use refit_sys::trace::Tracee;
use refit_tracer::Resume;
use refit_tracer::process::kill;

use crate::origin::coordinator::{Command, Coordinator, Next, THREAD_STOP_TIMEOUT};
use crate::origin::thread_table::TracerEvent;

impl Coordinator {
    pub(super) fn is_born(&mut self, task: u32) -> Next {
        if refit_tracer::process::process_of(task) == Some(self.group.process) {
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
        self.begins(child, copy);
        if copy.is_some() {
            let after = self.tree.threads.plainly(parent);
            let on = move |_: &mut Tracee, _| ((), after);
            let _ = self.tree.order_of(self.coordinator_id, parent, THREAD_STOP_TIMEOUT, on);
        }
        Ok(())
    }

    /// A process that a thread here has made begins.
    fn begins(&self, child: u32, copy: Option<Option<u64>>) {
        if let Some(word) = copy
            && let Err(error) = self.space.copy_for(child, word)
        {
            // It would share what it must not. One that was killed meanwhile does not.
            if ![Some(libc::ESRCH), Some(libc::ENOENT)].contains(&error.raw_os_error()) {
                refit_log::say(&format!("a child of {} is killed: {error}", self.group.process));
            }
            let _ = kill(child);
        }
        self.tree.threads.begins(child);
        // It stands in its first stop, or where a call was made in it. If it is killed meanwhile that is told.
        let _ = self.tree.supervisor.order(child, THREAD_STOP_TIMEOUT, |_, _| ((), Resume::GoOn));
    }

    /// The group is no more: lets all go on that wait for more to be told.
    pub(super) fn let_all_live(&mut self) {
        let mut born = std::mem::take(&mut self.born);
        for asked in std::mem::take(&mut self.deferred).into_iter().chain(self.asked.try_iter()) {
            match asked.ask {
                Command::Event(TracerEvent::Born(task)) => drop(born.insert(task)),
                Command::Event(TracerEvent::Ends(thread)) => self.tree.supervisor.let_end(thread),
                _ => {}
            }
        }
        let made = |child| self.made.get(&child).map_or(Some(None), |&(_, copy)| copy);
        born.into_iter().for_each(|child| self.begins(child, made(child)));
    }
}
