//! The thread that traces all tasks of a supervisor, and what each event leads to.
//!
//! The first thread of the first process reports that it is about to exit, since that is the last
//! moment at which its descriptors can be reached. The tasks that a task makes inherit its trace
//! options; [`Supervisor::on_new_task`] takes that option off again in the first stop of each.

use std::io;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use refit_sys::trace::{self, Event, Tracee};
use rustix::io::Errno;
use tracing::{debug, info};

use crate::resume::{Resume, StopReason};
use crate::supervisor::event_loop::EventLoop;
use crate::supervisor::processes::Loan;
use crate::supervisor::records::ClearWord;
use crate::supervisor::state::Watcher;
use crate::supervisor::task::Task;
use crate::supervisor::work::is;
use crate::supervisor::{
    Supervisor, TRACE_OPTIONS, TRACE_OPTIONS_WITH_EXIT, restarted_calls, short_writes,
};
use crate::{process, signals, vdso};

impl Supervisor {
    /// Follows a process that has one thread, and all that it starts, until all of it has ended.
    /// Calls `ready` when no task can escape any more. If the calling thread ends before that, the
    /// kernel kills all tasks.
    ///
    /// # Errors
    /// The process cannot be traced (`ESRCH`, `EPERM`); what the kernel reports afterwards.
    pub fn follow(&self, process: u32, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        Tracee::seize_with(process, TRACE_OPTIONS_WITH_EXIT)?.leave();
        self.tasks.entry(process, |task| task.started = true);
        if self.movable {
            // Until it executes the program.
            self.processes.entry(process, |state| state.bound = true);
        }
        self.wakeup.hear()?;
        info!(process, movable = self.movable, "is followed");
        ready()?;
        let mut event_loop = EventLoop::new(process, &self.tasks);
        let result = loop {
            match trace::next_unless(&self.wakeup) {
                Ok((task, event)) => {
                    self.on_event(task, event, &mut event_loop)?;
                    self.on_noticed_execs(&mut event_loop)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if self.wakeup.answer() {
                        self.take_requests(&mut event_loop);
                        self.on_noticed_execs(&mut event_loop)?;
                    }
                }
                // No task is left.
                Err(error) if is(&error, Errno::CHILD) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Pairs with `until_answered`: the thread that left a request which is not seen here sees
        // there that nobody fetches it any more.
        self.over.store(true, Ordering::Release);
        info!(process, ?result, "is followed no more");
        // The listener learns that no task is left. After the store above, which
        // `subscribe_programs` reads under the same lock.
        *self.program_listener.lock() = None;
        self.requests.lock().clear();
        self.stop_requests.lock().clear();
        self.may_exit.lock().clear();
        result
    }

    /// Handles execs that were noticed while a tracee made calls for refit, before the event loop
    /// received their events.
    fn on_noticed_execs(&self, event_loop: &mut EventLoop<'_>) -> io::Result<()> {
        while let Some((task, former)) = event_loop.noticed_execs.pop() {
            self.on_event(task, Event::Exec { former }, event_loop)?;
        }
        Ok(())
    }

    /// Handles an event of a task, and resumes the task as if nobody traced it.
    pub(super) fn on_event(
        &self,
        task: u32,
        event: Event,
        event_loop: &mut EventLoop<'_>,
    ) -> io::Result<()> {
        let mut tracee = Tracee::of(task);
        short_writes::on_event(&self.tasks, &tracee, event);
        restarted_calls::on_event(&self.tasks, &tracee, event);
        self.on_entered_strict(&tracee, event);
        let decided = self.on_filtered(&tracee, event);
        let decided = decided.or_else(|| self.hook.on_event(&tracee, event));
        let decided = decided.or_else(|| self.on_move_request(&tracee, event));
        let decided = decided.or_else(|| self.on_affinity_query(&tracee, event));
        let resumed = match decided {
            Some(resume) => event_loop.resume(&tracee, resume),
            None => self.on_plain_event(&mut tracee, event, event_loop),
        };
        tracee.leave();
        match resumed {
            // Killed meanwhile: the next event of the task is its end.
            Err(error) if !is(&error, Errno::SRCH) => Err(error),
            _ => Ok(()),
        }
    }

    /// Handles an event that means what it means to any tracee.
    fn on_plain_event(
        &self,
        tracee: &mut Tracee,
        event: Event,
        event_loop: &mut EventLoop<'_>,
    ) -> io::Result<()> {
        let task = tracee.thread();
        match event {
            Event::Signal(signal) => return self.deliver(tracee, signal, event_loop),
            Event::SystemCall
                if let Some(resume) = restarted_calls::on_call(&self.tasks, tracee) =>
            {
                return event_loop.resume(tracee, resume);
            }
            Event::Stopped(_) => return self.on_job_control_stop(tracee),
            Event::Clone { child } | Event::Fork { child } => {
                self.note_clear_word(tracee, child);
                self.note_shared_memory(task, child);
            }
            Event::Vfork { child } => {
                let lender = process::process_of(task).unwrap_or(task);
                let loan = Loan { lender, blocked: Some(task) };
                self.processes.entry(child, |state| state.loan = Some(loan));
            }
            Event::Exited(_) | Event::Killed(_) => {
                self.on_end(task);
                return Ok(());
            }
            // Where nothing is movable, a task other than the first reports this only if it is
            // killed before its first stop, in which the option is taken off.
            Event::Exit { .. } => {
                if task == event_loop.first {
                    Self::notify(&self.exit_observer, task);
                }
                // Threads that wait for work with the task learn here that it is gone: its end may
                // be reported much later if it is the first thread of its process.
                drop(self.tasks.find(task, Task::drop_work));
                if self.hook.thread_exits(task) {
                    self.tasks.entry(task, Task::exit);
                    return Ok(());
                }
            }
            Event::Interrupted => {
                // Only refit interrupts tracees.
                self.on_interrupt(tracee);
                if !self.tasks.has(task) {
                    if refit_sys::agent::is_lost(tracee) {
                        return process::kill(task);
                    }
                    if self.on_new_task(tracee) {
                        return event_loop.resume(tracee, Resume::Stay);
                    }
                }
                if let Some(done) = event_loop.do_expected(tracee) {
                    return done;
                }
            }
            Event::Exec { former } => self.on_exec(tracee, former, event_loop),
            // It has made a task, which reports its own first stop.
            _ => {}
        }
        event_loop.resume(tracee, self.hook.resume(task))
    }

    /// Leaves a task in the stop of its process until the process is continued.
    fn on_job_control_stop(&self, tracee: &mut Tracee) -> io::Result<()> {
        let task = tracee.thread();
        self.on_interrupt(tracee);
        let works = self.tasks.find(task, Task::take_work).unwrap_or_default();
        let (_, tells) = EventLoop::do_all(tracee, StopReason::JobControl, works);
        tells.into_iter().flatten().for_each(|tell| tell());
        match tracee.leave_stopped() {
            // The work has taken the task out of its stop.
            Err(error) if is(&error, Errno::IO) => {
                tracee.interrupt()?;
                tracee.resume(0)
            }
            left => left,
        }
    }

    /// Forgets a task that has ended.
    fn on_end(&self, task: u32) {
        let word = self.tasks.remove(task).and_then(|task| task.clear_word);
        self.processes.remove(task);
        self.hook.task_ended(task, word.map(|word| word.address));
        Self::notify(&self.watcher, task);
    }

    /// Has the call restarted that an interruption of its thread would end.
    fn on_interrupt(&self, tracee: &Tracee) {
        // The coordinator of a thread that runs elsewhere decides what becomes of its call.
        let follow = !self.hook.is_tracked(tracee.thread());
        restarted_calls::on_interrupt(&self.tasks, tracee, follow);
    }

    /// Handles the first stop of a task. Returns whether it stays stopped until an order for it
    /// comes.
    fn on_new_task(&self, tracee: &Tracee) -> bool {
        let task = tracee.thread();
        // This fails only if the task was killed meanwhile.
        let _ =
            tracee.set_options(if self.movable { TRACE_OPTIONS_WITH_EXIT } else { TRACE_OPTIONS });
        self.processes.inherit(task);
        let stays = self.hook.task_started(task) | self.is_awaited(task);
        // Others see the task only now: the hook knows by then that it has not begun.
        self.tasks.entry(task, |task| task.started = true);
        self.notify_program_listener();
        stays
    }

    /// Delivers a signal to a thread.
    fn deliver(
        &self,
        tracee: &Tracee,
        signal: i32,
        event_loop: &mut EventLoop<'_>,
    ) -> io::Result<()> {
        let task = tracee.thread();
        let awaited = signals::dumps(task, signal)
            && self.dumps.lock().as_ref().is_some_and(|watcher| watcher(task, signal));
        if awaited {
            return event_loop.resume(tracee, Resume::Stay);
        }
        event_loop.interrupt_again(tracee)?;
        // The coordinator of a thread that runs elsewhere decides what becomes of its call.
        let follow = !self.hook.is_tracked(task);
        if restarted_calls::on_signal(&self.tasks, tracee, signal, follow) {
            return tracee.resume_to_system_call(signal);
        }
        tracee.resume(signal)
    }

    /// Handles an `execve`: the thread `former` goes on under the number of the first thread.
    fn on_exec(&self, tracee: &mut Tracee, former: u32, event_loop: &mut EventLoop<'_>) {
        let task = tracee.thread();
        debug!(process = task, by = former, "executes another program");
        // All other threads of the process report their ends, except the first one, whose number
        // `former` takes.
        self.tasks.replace_program(task, former);
        self.processes.entry(task, |state| state.loan = None);
        self.hide_vdso(tracee);
        self.hook.program_replaced(task, former);
        self.notify_program_listener();
        Self::notify(&self.watcher, task);
        if task == event_loop.first {
            // The exec may have been made by another thread, without this option.
            let _ = tracee.set_options(TRACE_OPTIONS_WITH_EXIT);
        }
    }

    /// Notes the word that the kernel clears at the end of a thread which `tracee` has just made.
    fn note_clear_word(&self, tracee: &Tracee, thread: u32) {
        if let Ok(Some(address)) = self.with_page(tracee, Tracee::clears_at_end) {
            let word = ClearWord { address, process: None };
            self.tasks.entry(thread, |task| task.clear_word = Some(word));
        }
    }

    /// Notes a new process that shares its parent's memory without being a thread of it
    /// (`CLONE_VM`).
    fn note_shared_memory(&self, task: u32, child: u32) {
        let lender = process::process_of(task);
        if self.movable
            && let Some(lender) = lender.filter(|_| process::process_of(child) != lender)
            && refit_sys::process::same_memory(task, child).unwrap_or(false)
        {
            let loan = Loan { lender, blocked: None };
            self.processes.entry(child, |state| state.loan = Some(loan));
        }
    }

    /// Makes a program movable that stands before its first instruction, if its supervisor is of
    /// movable programs.
    fn hide_vdso(&self, tracee: &Tracee) {
        if self.movable {
            let bound = vdso::hide_vdso(tracee).is_err();
            self.processes.entry(tracee.thread(), |state| state.bound = bound);
        }
    }

    fn notify(watcher: &Mutex<Option<Watcher>>, task: u32) {
        if let Some(watcher) = &*watcher.lock() {
            watcher(task);
        }
    }
}
