//! The data of the event loop's thread: which tasks are stopped, for what, and how they go on.

use std::io;

use refit_sys::trace::Tracee;

use crate::resume::{Resume, StopReason};
use crate::supervisor::task::Task;
use crate::supervisor::tasks::TaskTable;
use crate::supervisor::work::{Tell, Work};
use crate::supervisor::{restarted_calls, short_writes};

/// The data that only the thread that traces a supervisor's tasks has.
pub(super) struct EventLoop<'t> {
    /// The process that was followed first.
    pub(super) first: u32,
    tasks: &'t TaskTable,
    /// Processes that were noticed to execute another program before the kernel reported it, and
    /// the numbers of the threads that called `execve`.
    pub(super) noticed_execs: Vec<(u32, u32)>,
}

impl<'t> EventLoop<'t> {
    pub(super) fn new(first: u32, tasks: &'t TaskTable) -> Self {
        Self { first, tasks, noticed_execs: Vec::new() }
    }

    /// Does all work with a stopped tracee. The last work decides how it goes on.
    pub(super) fn do_all(
        tracee: &mut Tracee,
        reason: StopReason,
        works: Vec<Work>,
    ) -> (Resume, Vec<Tell>) {
        works.into_iter().fold((Resume::Continue, Vec::new()), |(_, mut tells), work| {
            let (resume, tell) = work(tracee, reason);
            tells.push(tell);
            (resume, tells)
        })
    }

    /// Does all work with a stopped tracee, and resumes it.
    pub(super) fn run(
        &mut self,
        tracee: &mut Tracee,
        reason: StopReason,
        works: Vec<Work>,
    ) -> io::Result<()> {
        if self.notice_exec(tracee) {
            // The work was for a thread of the former program.
            return Ok(());
        }
        let (resume, tells) = Self::do_all(tracee, reason, works);
        let resumed = if self.notice_exec(tracee) { Ok(()) } else { self.resume(tracee, resume) };
        // Before this thread handles anything else that the tracee does.
        tells.into_iter().flatten().for_each(|tell| tell());
        resumed
    }

    /// Returns whether the process of a stopped thread has executed another program, and notes it.
    fn notice_exec(&mut self, tracee: &Tracee) -> bool {
        let former = tracee.executed();
        self.noticed_execs.extend(former.map(|former| (tracee.thread(), former)));
        former.is_some()
    }

    /// Does the work that a thread was interrupted for. Returns `None` if there is none. A thread
    /// whose last instruction has faulted receives that signal first: a call that refit has it make
    /// in between would overwrite what the signal reports.
    pub(super) fn do_expected(&mut self, tracee: &mut Tracee) -> Option<io::Result<()>> {
        let task = tracee.thread();
        if self.tasks.is(task, Task::is_interrupted)
            && tracee.has_faulted().is_ok_and(|faulted| faulted)
        {
            // The interruption stops it again behind the signal.
            return Some(tracee.resume(0));
        }
        let works = self.tasks.find(task, Task::take_work)?;
        Some(self.run(tracee, StopReason::Requested, works))
    }

    /// Interrupts a thread again that was interrupted, and has stopped for something else first:
    /// any stop cancels an interruption that is still to come.
    pub(super) fn interrupt_again(&self, tracee: &Tracee) -> io::Result<()> {
        let interrupted = self.tasks.is(tracee.thread(), Task::is_interrupted);
        if interrupted { tracee.interrupt() } else { Ok(()) }
    }

    /// Resumes a stopped tracee, or keeps it.
    pub(super) fn resume(&mut self, tracee: &Tracee, resume: Resume) -> io::Result<()> {
        if resume != Resume::Stay {
            self.interrupt_again(tracee)?;
        }
        let resume = short_writes::adjust(self.tasks, tracee, resume);
        match restarted_calls::adjust(self.tasks, tracee, resume) {
            Resume::Continue => tracee.resume(0),
            Resume::ToSystemCall(signal) => tracee.resume_to_system_call(signal),
            Resume::Once(signal) => {
                tracee.interrupt()?;
                tracee.resume(signal)
            }
            Resume::Stay => {
                let task = tracee.thread();
                let Some(works) = self.tasks.entry(task, Task::keep) else { return Ok(()) };
                let mut again = Tracee::of(task);
                let done = self.run(&mut again, StopReason::Kept, works);
                again.leave();
                done
            }
        }
    }
}
