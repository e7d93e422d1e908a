//! Threads and processes that threads here make.

use refit_sys::trace::Tracee;
use refit_tracer::Resume;
use refit_tracer::process::kill;

use crate::origin::command::Command;
use crate::origin::coordinator::new_process::Fork;
use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::program_tree::THREAD_STOP_TIMEOUT;
use crate::origin::tracer_event::TracerEvent;

impl Coordinator {
    pub(super) fn on_new_task(&mut self, task: u32) -> Next {
        if refit_tracer::process::process_of(task) == Some(self.group.process) {
            self.add_thread(task);
            let wanted = self.next_place();
            if let Some(thread) = self.threads.get_mut(&task) {
                thread.wanted = wanted;
            }
            return self.settle(task);
        }
        self.new_processes.insert(task);
        self.start_process(task)
    }

    /// Starts a process that a thread here has made, and resumes that thread, once both events of
    /// the process have come.
    pub(super) fn start_process(&mut self, child: u32) -> Next {
        let Some(&Fork { parent, copy }) = self.forks.get(&child) else { return Ok(()) };
        if !self.new_processes.remove(&child) {
            return Ok(());
        }
        self.forks.remove(&child);
        self.start(child, copy);
        if copy.is_some() {
            let resume = self.tree.threads.default_resume(parent);
            let on = move |_: &mut Tracee, _| ((), resume);
            let _ = self.tree.order_of(self.coordinator_id, parent, THREAD_STOP_TIMEOUT, on);
        }
        Ok(())
    }

    /// Starts a process that a thread here has made, with a copy of the memory if it gets one.
    fn start(&self, child: u32, copy: Option<Option<u64>>) {
        if let Some(word) = copy
            && let Err(error) = self.space.copy_for(child, word)
        {
            // Without its copy it would share memory that it must not. A process that was killed
            // meanwhile does not.
            if ![Some(libc::ESRCH), Some(libc::ENOENT)].contains(&error.raw_os_error()) {
                refit_log::say(&format!("a child of {} is killed: {error}", self.group.process));
            }
            let _ = kill(child);
        }
        self.tree.threads.process_started(child);
        // It is stopped in its first stop, or where it made a call for refit. If it is killed
        // meanwhile, that is reported.
        let _ =
            self.tree.supervisor.order(child, THREAD_STOP_TIMEOUT, |_, _| ((), Resume::Continue));
    }

    /// Starts all processes that wait for more events, since the group has ended.
    pub(super) fn start_all_processes(&mut self) {
        let mut new = std::mem::take(&mut self.new_processes);
        for queued in std::mem::take(&mut self.deferred).into_iter().chain(self.queue.try_iter()) {
            match queued.command {
                Command::Event(TracerEvent::NewTask(task)) => drop(new.insert(task)),
                Command::Event(TracerEvent::Exiting(thread)) => {
                    self.tree.supervisor.let_exit(thread)
                }
                _ => {}
            }
        }
        let copy = |child| self.forks.get(&child).map_or(Some(None), |fork| fork.copy);
        new.into_iter().for_each(|child| self.start(child, copy(child)));
    }
}
