//! Work that other threads have the event loop do, since only the tracer of a task can act on it:
//! they leave the work in `requests`, and wake the event loop ([`refit_sys::wait_interrupt`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use refit_sys::trace::Tracee;
use rustix::io::Errno;
use tracing::debug;

use crate::resume::{Resume, StopReason};
use crate::supervisor::Supervisor;
use crate::supervisor::event_loop::EventLoop;
use crate::supervisor::task::Task;
use crate::supervisor::work::{StopAllWork, Stopped, SupervisorRequest, Tell, Work};

/// The interval at which a caller wakes the event loop again for a request that it has not fetched,
/// and looks whether the event loop or the task has ended.
const REQUEST_POLL: Duration = Duration::from_millis(2);

/// When the caller of [`Supervisor::order_with_timing`] receives the result of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultTiming {
    /// Before the thread goes on.
    BeforeResume,
    /// Once the thread goes on, so that the caller does not take the processor from it.
    AfterResume,
}

impl Supervisor {
    /// Has the event loop do `work` with the first thread of a process, which is stopped meanwhile
    /// as [`Tracee::call`] requires. Returns the result of the work.
    ///
    /// # Errors
    /// `ESRCH`: the process is not one of this supervisor's, or has ended. `ETIMEDOUT`: it has not
    /// stopped `within` this time, and nothing was done: it waits for a page, or for the child of
    /// its `vfork`.
    pub fn ask<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee) -> R + Send + 'static,
    ) -> io::Result<R> {
        self.order(process, within, |tracee, reason| {
            let resume = if reason == StopReason::Kept { Resume::Stay } else { Resume::Continue };
            (work(tracee), resume)
        })
    }

    /// As [`ask`](Self::ask), for any thread, and the work decides how the thread goes on. A thread
    /// that was [kept](Resume::Stay) is not necessarily in a ptrace event stop: its state depends
    /// on what it was kept for.
    pub fn order<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee, StopReason) -> (R, Resume) + Send + 'static,
    ) -> io::Result<R> {
        self.order_with_timing(process, within, work, ResultTiming::BeforeResume)
    }

    /// As [`order`](Self::order); `timing` says whether the caller or the thread goes on first.
    pub fn order_with_timing<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee, StopReason) -> (R, Resume) + Send + 'static,
        timing: ResultTiming,
    ) -> io::Result<R> {
        let (answer, answered) = mpsc::channel();
        // The first to set this decides whether the work is done: the event loop, which has stopped
        // the thread, or the caller, which does not wait any longer.
        let decided = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&decided);
        let work: Work = Box::new(move |tracee, reason| {
            // Relaxed, as below: the flag is all that the two exchange.
            if begins.swap(true, Ordering::Relaxed) {
                // Another thread decides about a tracee that is kept.
                let resume =
                    if reason == StopReason::Kept { Resume::Stay } else { Resume::Continue };
                return (resume, None);
            }
            let (done, resume) = work(tracee, reason);
            let tell = move || drop(answer.send(done));
            match timing {
                ResultTiming::BeforeResume => tell(),
                ResultTiming::AfterResume => return (resume, Some(Box::new(tell))),
            }
            (resume, None)
        });
        self.requests.lock().push(SupervisorRequest { task: process, work, kept_only: false });
        let pending = || self.requests.lock().iter().any(|request| request.task == process);
        // The kernel does not report the end of a first thread before the other threads have ended,
        // and the thread stops for nothing meanwhile.
        let ended = || refit_sys::process::life(process).is_none_or(|life| life.ended());
        let done =
            self.until_answered(&answered, &decided, Instant::now() + within, pending, ended);
        if let Err(error) = &done {
            debug!(task = process, %error, ?within, "a request was not done");
        }
        done
    }

    /// As [`order`](Self::order), without waiting. The orders about one thread are done in the
    /// order in which they were left.
    pub fn order_later(
        &self,
        task: u32,
        work: impl FnOnce(&mut Tracee, StopReason) -> Resume + Send + 'static,
    ) {
        self.leave_request(task, |tracee, reason| (work(tracee, reason), None), false);
    }

    /// As [`order_later`](Self::order_later); the callback that the work returns is called when the
    /// thread goes on, before the event loop handles anything else that the thread does.
    pub fn order_and_notify(
        &self,
        task: u32,
        work: impl FnOnce(&mut Tracee, StopReason) -> (Resume, Box<dyn FnOnce() + Send>)
        + Send
        + 'static,
    ) {
        let work = |tracee: &mut Tracee, reason| {
            let (resume, tell) = work(tracee, reason);
            (resume, Some(tell))
        };
        self.leave_request(task, work, false);
    }

    /// As [`order_later`](Self::order_later), but only if the thread is kept: a running thread is
    /// not stopped for it.
    pub fn order_kept(&self, task: u32, work: impl FnOnce(&mut Tracee) -> Resume + Send + 'static) {
        self.leave_request(task, |tracee, _| (work(tracee), None), true);
    }

    fn leave_request(
        &self,
        task: u32,
        work: impl FnOnce(&mut Tracee, StopReason) -> (Resume, Tell) + Send + 'static,
        kept_only: bool,
    ) {
        self.requests.lock().push(SupervisorRequest { task, work: Box::new(work), kept_only });
        self.wakeup.ring();
    }

    /// Lets a thread exit that is stopped at its exit because the hook asked for it.
    pub fn let_exit(&self, thread: u32) {
        self.may_exit.lock().push(thread);
        self.wakeup.ring();
    }

    /// Has the event loop do `work` while all threads of a process are stopped, wherever they run,
    /// and all processes that borrow its memory (`vfork`). Returns the result of the work. Threads
    /// that are blocked in `vfork` do not count: they touch no memory.
    ///
    /// # Errors
    /// `ESRCH`: the event loop has ended. `ETIMEDOUT`: the threads did not all stop `within` this
    /// time; nothing was done.
    pub fn while_stopped<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<R> {
        let list = move |supervisor: &Self| supervisor.with_memory_of(process);
        self.while_all_stopped(process, within, list, |_, _| work())
    }

    /// As [`while_stopped`](Self::while_stopped), for the tasks that `list` returns.
    pub(super) fn while_all_stopped<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        list: impl FnMut(&Self) -> Vec<u32> + Send + 'static,
        work: impl FnOnce(&Self, &Stopped) -> R + Send + 'static,
    ) -> io::Result<R> {
        let (answer, answered) = mpsc::channel();
        let decided = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&decided);
        let work = Box::new(move |supervisor: &Self, stopped: &Stopped| {
            if !begins.swap(true, Ordering::Relaxed) {
                drop(answer.send(work(supervisor, stopped)));
            }
        });
        self.stop_requests.lock().push(StopAllWork { process, list: Box::new(list), work });
        let pending = || self.stop_requests.lock().iter().any(|one| one.process == process);
        let done =
            self.until_answered(&answered, &decided, Instant::now() + within, pending, || false);
        if let Err(error) = &done {
            debug!(process, %error, ?within, "its threads were not all stopped");
        }
        done
    }

    /// Wakes the event loop as long as the request is `pending`, until the answer comes or its task
    /// `has_ended`.
    fn until_answered<R>(
        &self,
        answered: &mpsc::Receiver<R>,
        decided: &AtomicBool,
        deadline: Instant,
        pending: impl Fn() -> bool,
        has_ended: impl Fn() -> bool,
    ) -> io::Result<R> {
        let mut ended = false;
        loop {
            // Pairs with the store in `follow`.
            let over = self.over.load(Ordering::Acquire);
            if (over || ended) && !decided.swap(true, Ordering::Relaxed) {
                return Err(Errno::SRCH.into());
            }
            if !over && pending() {
                self.wakeup.ring();
            }
            match answered.recv_timeout(REQUEST_POLL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(Errno::SRCH.into()),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => ended = has_ended(),
                Err(RecvTimeoutError::Timeout) if decided.swap(true, Ordering::Relaxed) => {
                    // The work has begun.
                    return answered.recv().map_err(|_| Errno::SRCH.into());
                }
                Err(RecvTimeoutError::Timeout) => return Err(Errno::TIMEDOUT.into()),
            }
        }
    }

    /// Fetches all requests, and interrupts the tasks that they concern.
    pub(super) fn take_requests(&self, event_loop: &mut EventLoop<'_>) {
        // Not in the head of the loop, which would hold the lock: the work done here leaves
        // requests, too.
        let requests = std::mem::take(&mut *self.requests.lock());
        for SupervisorRequest { task, work, kept_only } in requests {
            if !self.tasks.is(task, |task| task.started && !task.is_exiting()) {
                continue;
            }
            let mut tracee = Tracee::of(task);
            if self.tasks.entry(task, Task::take_kept) {
                // This fails only if the task was killed meanwhile: its end is the next event.
                let _ = event_loop.run(&mut tracee, StopReason::Kept, vec![work]);
            } else if !kept_only && tracee.interrupt().is_ok() {
                self.tasks.entry(task, |task| task.interrupt(work));
            }
            tracee.leave();
        }
        let may_exit = std::mem::take(&mut *self.may_exit.lock());
        let waits = |task| self.tasks.find(task, |entry| entry.let_exit().then_some(task));
        for task in may_exit.into_iter().filter_map(waits) {
            let tracee = Tracee::of(task);
            // This fails only if the task is gone.
            let _ = tracee.resume(0);
            tracee.leave();
        }
        let requests = std::mem::take(&mut *self.stop_requests.lock());
        for request in requests {
            // This fails only if the process was killed meanwhile: its end is reported later.
            let _ = self.stop_all(event_loop, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    /// If a stop for something else cancelled an interruption, the request of this thread, which
    /// stops for something else again and again, would not be done.
    #[test]
    fn no_request_is_lost_with_a_stop_for_something_else() {
        const TIMES: u32 = 2000;
        let forks = "echo; while :; do (:); done";
        let mut shell = Command::new("sh");
        let mut child = shell.args(["-c", forks]).stdout(Stdio::piped()).spawn().expect("a shell");
        // It has become the shell by now, and is not a copy of this process any more.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("a line");
        let (process, supervisor) = (child.id(), Arc::new(Supervisor::default()));
        let (ready, is_ready) = mpsc::channel();
        let followed = Arc::clone(&supervisor);
        let follows = std::thread::spawn(move || {
            followed.follow(process, || ready.send(()).map_err(io::Error::other))
        });
        is_ready.recv().expect("it is followed");
        for _ in 0..TIMES {
            let done =
                supervisor.order(process, Duration::from_secs(20), |_, _| ((), Resume::Continue));
            done.expect("it is stopped");
        }
        child.kill().expect("it is ours");
        follows.join().expect("no panic").expect("until the end");
        // The event loop may have consumed the status.
        let _ = child.wait();
    }

    /// The kernel reports its end after that of the other thread: a caller that waited for the
    /// report would wait as long.
    #[test]
    fn nothing_is_done_with_a_first_thread_that_has_ended_before_another() {
        const ENDS: &str = "import ctypes, threading, time\n\
            print(flush=True)\n\
            input()\n\
            threading.Thread(target=lambda: time.sleep(1000)).start()\n\
            ctypes.CDLL(None).syscall(60, 0)";
        let mut python = Command::new("python3");
        python.args(["-c", ENDS]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().expect("there is python3");
        // Work with a program that executes another one is not done with the latter.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("a line");
        let (process, supervisor) = (child.id(), Arc::new(Supervisor::default()));
        let (ready, is_ready) = mpsc::channel();
        let followed = Arc::clone(&supervisor);
        let follows = std::thread::spawn(move || {
            followed.follow(process, || ready.send(()).map_err(io::Error::other))
        });
        is_ready.recv().expect("it is followed");
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        let refused = loop {
            let forever = Duration::from_secs(10_000);
            // This succeeds until the thread has ended.
            if let Err(error) = supervisor.order(process, forever, |_, _| ((), Resume::Continue)) {
                break error;
            }
        };
        assert_eq!(refused.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
        assert!(supervisor.has(process), "its end is not reported yet");
        child.kill().expect("it is ours");
        follows.join().expect("no panic").expect("until the end");
        // The event loop may have consumed the status.
        let _ = child.wait();
    }
}
