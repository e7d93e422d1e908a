//! The data of the event loop's thread: which tasks are stopped, for what, and how they go on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use refit_sys::trace::Tracee;

use crate::resume::{Resume, StopReason};
use crate::supervisor::restarted_calls::RestartedCalls;
use crate::supervisor::short_writes::ShortWrites;
use crate::supervisor::task::Task;
use crate::supervisor::work::{Tell, Work};

/// The stopped tasks of a supervisor; only the thread that traces them has it.
pub(super) struct EventLoop {
    /// The process that was followed first.
    pub(super) first: u32,
    /// The tasks that were ever interrupted or stopped for work, by number.
    tasks: BTreeMap<u32, Task>,
    /// Processes that were noticed to execute another program before the kernel reported it, and
    /// the numbers of the threads that called `execve`.
    pub(super) noticed_execs: Vec<(u32, u32)>,
    short_writes: Arc<ShortWrites>,
    restarted_calls: Arc<RestartedCalls>,
}

impl EventLoop {
    pub(super) fn new(
        first: u32,
        short_writes: Arc<ShortWrites>,
        restarted_calls: Arc<RestartedCalls>,
    ) -> Self {
        Self {
            first,
            tasks: BTreeMap::new(),
            noticed_execs: Vec::new(),
            short_writes,
            restarted_calls,
        }
    }

    /// Returns a task, of which nothing needs to be known yet.
    pub(super) fn task(&mut self, task: u32) -> &mut Task {
        self.tasks.entry(task).or_insert_with(|| Task::new(task))
    }

    /// Returns whether a thread is stopped already.
    pub(super) fn is_stopped(&self, task: u32) -> bool {
        self.tasks.get(&task).is_some_and(Task::is_stopped)
    }

    /// Returns whether a thread is stopped at its exit.
    pub(super) fn is_exiting(&self, task: u32) -> bool {
        self.tasks.get(&task).is_some_and(Task::is_exiting)
    }

    fn is_interrupted(&self, task: u32) -> bool {
        self.tasks.get(&task).is_some_and(Task::is_interrupted)
    }

    /// Ends the interruption of a thread. Returns the work that it was interrupted for.
    pub(super) fn take_work(&mut self, task: u32) -> Option<Vec<Work>> {
        self.tasks.get_mut(&task)?.take_work()
    }

    /// Lets a thread exit. Returns whether it is stopped at its exit.
    pub(super) fn let_exit(&mut self, task: u32) -> bool {
        self.tasks.get_mut(&task).is_some_and(Task::let_exit)
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
        if self.is_interrupted(task) && tracee.has_faulted().is_ok_and(|faulted| faulted) {
            // The interruption stops it again behind the signal.
            return Some(tracee.resume(0));
        }
        let works = self.take_work(task)?;
        Some(self.run(tracee, StopReason::Requested, works))
    }

    /// Interrupts a thread again that was interrupted, and has stopped for something else first:
    /// any stop cancels an interruption that is still to come.
    pub(super) fn interrupt_again(&self, tracee: &Tracee) -> io::Result<()> {
        if self.is_interrupted(tracee.thread()) { tracee.interrupt() } else { Ok(()) }
    }

    /// Resumes a stopped tracee, or keeps it.
    pub(super) fn resume(&mut self, tracee: &Tracee, resume: Resume) -> io::Result<()> {
        if resume != Resume::Stay {
            self.interrupt_again(tracee)?;
        }
        let resume = self.short_writes.adjust(tracee, resume);
        match self.restarted_calls.adjust(tracee, resume) {
            Resume::Continue => tracee.resume(0),
            Resume::ToSystemCall(signal) => tracee.resume_to_system_call(signal),
            Resume::Once(signal) => {
                tracee.interrupt()?;
                tracee.resume(signal)
            }
            Resume::Stay => {
                let task = tracee.thread();
                let Some(works) = self.task(task).keep() else { return Ok(()) };
                let mut again = Tracee::of(task);
                let done = self.run(&mut again, StopReason::Kept, works);
                again.leave();
                done
            }
        }
    }

    /// Forgets a task that has ended, or executes another program.
    pub(super) fn forget(&mut self, task: u32) {
        self.tasks.remove(&task);
    }
}
