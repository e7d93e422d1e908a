//! The thread that traces all tasks of a supervisor, and what each event leads to.
//!
//! The first thread of the first process reports that it is about to exit, since that is the last
//! moment at which its descriptors can be reached. The tasks that a task makes inherit its trace
//! options; [`Supervisor::on_new_task`] takes that option off again in the first stop of each.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use refit_sys::status::Status;
use refit_sys::trace::{self, Event, Tracee};
use rustix::io::Errno;
use tracing::{debug, info};

use crate::resume::{Resume, StopReason};
use crate::supervisor::event_loop::EventLoop;
use crate::supervisor::state::{Borrower, ClearWord, Watcher};
use crate::supervisor::work::is;
use crate::supervisor::{Supervisor, TRACE_OPTIONS, TRACE_OPTIONS_WITH_EXIT};
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
        self.tasks().insert(process);
        if self.movable {
            // Until it executes the program.
            self.bound.lock().insert(process);
        }
        self.wakeup.hear()?;
        info!(process, movable = self.movable, "is followed");
        ready()?;
        let (short_writes, restarted) =
            (Arc::clone(&self.short_writes), Arc::clone(&self.restarted_calls));
        let mut event_loop = EventLoop::new(process, short_writes, restarted);
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
    fn on_noticed_execs(&self, event_loop: &mut EventLoop) -> io::Result<()> {
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
        event_loop: &mut EventLoop,
    ) -> io::Result<()> {
        let mut tracee = Tracee::of(task);
        self.short_writes.on_event(&tracee, event);
        self.restarted_calls.on_event(&tracee, event);
        self.sandbox.on_event(&tracee, event);
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
        event_loop: &mut EventLoop,
    ) -> io::Result<()> {
        let task = tracee.thread();
        match event {
            Event::Signal(signal) => return self.deliver(tracee, signal, event_loop),
            Event::SystemCall if let Some(resume) = self.restarted_calls.on_call(tracee) => {
                return event_loop.resume(tracee, resume);
            }
            Event::Stopped(_) => return self.on_job_control_stop(tracee, event_loop),
            Event::Clone { child } | Event::Fork { child } => {
                self.note_clear_word(tracee, child);
                self.note_shared_memory(task, child);
            }
            Event::Vfork { child } => {
                let lender = process::process_of(task).unwrap_or(task);
                self.borrowers.lock().insert(child, Borrower { lender, blocked: Some(task) });
            }
            Event::Exited(_) | Event::Killed(_) => {
                self.on_end(task, event_loop);
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
                event_loop.forget(task);
                if self.hook.thread_exits(task) {
                    event_loop.task(task).exit();
                    return Ok(());
                }
            }
            Event::Interrupted => {
                // Only refit interrupts tracees. The coordinator of a thread that runs elsewhere
                // decides what becomes of its call.
                self.restarted_calls.on_interrupt(tracee, !self.hook.is_tracked(task));
                if !self.tasks().contains(&task) {
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
    fn on_job_control_stop(
        &self,
        tracee: &mut Tracee,
        event_loop: &mut EventLoop,
    ) -> io::Result<()> {
        let task = tracee.thread();
        self.restarted_calls.on_interrupt(tracee, !self.hook.is_tracked(task));
        let works = event_loop.take_work(task).unwrap_or_default();
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
    fn on_end(&self, task: u32, event_loop: &mut EventLoop) {
        let word = self.clear_words.lock().remove(&task);
        self.tasks().remove(&task);
        self.bound.lock().remove(&task);
        self.managed.lock().remove(&task);
        self.borrowers.lock().remove(&task);
        self.sandbox.forget(task);
        self.forget(task, event_loop);
        self.hook.task_ended(task, word.map(|word| word.address));
        Self::notify(&self.watcher, task);
    }

    /// Handles the first stop of a task. Returns whether it stays stopped until an order for it
    /// comes.
    fn on_new_task(&self, tracee: &Tracee) -> bool {
        let task = tracee.thread();
        // This fails only if the task was killed meanwhile.
        let _ =
            tracee.set_options(if self.movable { TRACE_OPTIONS_WITH_EXIT } else { TRACE_OPTIONS });
        self.inherit(task);
        let stays = self.hook.task_started(task) | self.is_awaited(task);
        // Others see the task only now: the hook knows by then that it has not begun.
        self.tasks().insert(task);
        self.notify_program_listener();
        stays
    }

    /// Delivers a signal to a thread.
    fn deliver(&self, tracee: &Tracee, signal: i32, event_loop: &mut EventLoop) -> io::Result<()> {
        let task = tracee.thread();
        let awaited = signals::dumps(task, signal)
            && self.dumps.lock().as_ref().is_some_and(|watcher| watcher(task, signal));
        if awaited {
            return event_loop.resume(tracee, Resume::Stay);
        }
        event_loop.interrupt_again(tracee)?;
        // The coordinator of a thread that runs elsewhere decides what becomes of its call.
        let follow = !self.hook.is_tracked(task);
        if self.restarted_calls.on_signal(tracee, signal, follow) {
            return tracee.resume_to_system_call(signal);
        }
        tracee.resume(signal)
    }

    /// Handles an `execve`: the thread `former` goes on under the number of the first thread.
    fn on_exec(&self, tracee: &mut Tracee, former: u32, event_loop: &mut EventLoop) {
        let task = tracee.thread();
        debug!(process = task, by = former, "executes another program");
        // All other threads of the process report their ends, except the first one, whose number
        // `former` takes.
        self.clear_words.lock().retain(|thread, _| ![former, task].contains(thread));
        self.tasks().remove(&former);
        [former, task].into_iter().for_each(|one| self.forget(one, event_loop));
        self.borrowers.lock().remove(&task);
        self.tasks().insert(task);
        self.hide_vdso(tracee);
        self.hook.program_replaced(task, former);
        self.notify_program_listener();
        Self::notify(&self.watcher, task);
        if task == event_loop.first {
            // The exec may have been made by another thread, without this option.
            let _ = tracee.set_options(TRACE_OPTIONS_WITH_EXIT);
        }
    }

    /// Forgets the requests and calls of a task that has ended.
    fn forget(&self, task: u32, event_loop: &mut EventLoop) {
        event_loop.forget(task);
        self.move_requests.forget(task);
        self.restarted_calls.forget(task);
        self.short_writes.forget(task);
    }

    /// Notes the word that the kernel clears at the end of a thread which `tracee` has just made.
    fn note_clear_word(&self, tracee: &Tracee, thread: u32) {
        if let Ok(Some(address)) = self.with_page(tracee, Tracee::clears_at_end) {
            self.clear_words.lock().insert(thread, ClearWord { address, process: None });
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
            self.borrowers.lock().insert(child, Borrower { lender, blocked: None });
        }
    }

    /// Gives a new process what its parent has: filters, limits, and what binds it to this kernel.
    fn inherit(&self, task: u32) {
        self.sandbox.inherit(task);
        let mut managed = self.managed.lock();
        if !managed.is_empty()
            && process::parent_of(task).is_some_and(|from| managed.contains(&from))
        {
            // It may have been made before its parent had the filter.
            let filters = Status::of(task).ok().and_then(|status| status.filters());
            if filters.is_some_and(|count| count > 0) {
                managed.insert(task);
            }
        }
        drop(managed);
        let mut bound = self.bound.lock();
        // Usually empty, and the parent is read from /proc.
        if !bound.is_empty() && process::parent_of(task).is_some_and(|from| bound.contains(&from)) {
            bound.insert(task);
        }
    }

    /// Makes a program movable that stands before its first instruction, if its supervisor is of
    /// movable programs.
    fn hide_vdso(&self, tracee: &Tracee) {
        if self.movable {
            let hidden = vdso::hide_vdso(tracee).is_ok();
            let mut bound = self.bound.lock();
            if hidden {
                bound.remove(&tracee.thread())
            } else {
                bound.insert(tracee.thread())
            };
        }
    }

    fn notify(watcher: &Mutex<Option<Watcher>>, task: u32) {
        if let Some(watcher) = &*watcher.lock() {
            watcher(task);
        }
    }
}
