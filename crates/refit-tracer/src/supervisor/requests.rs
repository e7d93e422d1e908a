//! What only the tracer of a task can do, the thread that follows does for others: they leave it in `requests`, and ring
//! ([`refit_sys::wait_interrupt`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use refit_sys::trace::Tracee;
use rustix::io::Errno;
use tracing::debug;

use crate::resume::{Resume, StopReason};
use crate::supervisor::event_loop::EventLoop;
use crate::supervisor::{StopAllWork, Supervisor, SupervisorRequest, Tell, Work, lock};

/// After that an errand that could not be done is tried again, and one that is left over when nobody follows any more is given up.
const REQUEST_POLL: Duration = Duration::from_millis(2);

/// When whoever has ordered something hears what has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// Before the thread goes on.
    AtOnce,
    /// Once it does: nobody takes its processor from it for that.
    Later,
}

impl Supervisor {
    /// Has the thread that follows do `work` with the first thread of a process, which is stopped for as long, as for
    /// [`Tracee::call`]; what it returns.
    ///
    /// # Errors
    /// `ESRCH`: it is not of this tree, or has ended. `ETIMEDOUT`: it has not stopped `within` this time, and nothing has been done:
    /// it waits for a page, or for the child of its `vfork`.
    pub fn ask<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee) -> R + Send + 'static,
    ) -> io::Result<R> {
        self.order(process, within, |held, stands| {
            let after = if stands == StopReason::Kept { Resume::Stay } else { Resume::GoOn };
            (work(held), after)
        })
    }

    /// As [`ask`](Self::ask), of any thread, and the work says how it goes on. A thread that [stays](Resume::Stay) is not in an event stop
    /// always: see what it was kept for.
    pub fn order<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee, StopReason) -> (R, Resume) + Send + 'static,
    ) -> io::Result<R> {
        self.order_and_hear(process, within, work, Hears::AtOnce)
    }

    /// As [`order`](Self::order); `hears`: whether the caller, or the thread is what does not wait for the other.
    pub fn order_and_hear<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Tracee, StopReason) -> (R, Resume) + Send + 'static,
        hears: Hears,
    ) -> io::Result<R> {
        let (answer, answered) = mpsc::channel();
        // Whoever is first says whether it is done: who has stopped the thread, or who does not want to wait any longer.
        let decided = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&decided);
        let work: Work = Box::new(move |held, stands| {
            // Relaxed, as below: what is decided is all that is told.
            if begins.swap(true, Ordering::Relaxed) {
                // Somebody else decides about one that is kept.
                let after = if stands == StopReason::Kept { Resume::Stay } else { Resume::GoOn };
                return (after, None);
            }
            let (done, after) = work(held, stands);
            let tell = move || drop(answer.send(done));
            match hears {
                Hears::AtOnce => tell(),
                Hears::Later => return (after, Some(Box::new(tell))),
            }
            (after, None)
        });
        lock(&self.requests).push(SupervisorRequest { task: process, work, kept_only: false });
        let waits = || lock(&self.requests).iter().any(|request| request.task == process);
        // The end of a first thread is not told before the other threads have ended, and it stops for nothing.
        let ended = || refit_sys::process::life(process).is_none_or(|life| life.ended());
        let done = self.until_answered(&answered, &decided, Instant::now() + within, waits, ended);
        if let Err(error) = &done {
            debug!(task = process, %error, ?within, "a request was not done");
        }
        done
    }

    /// As [`order`](Self::order), and does not wait for it. Orders about a thread are done in their turn.
    pub fn order_later(
        &self,
        task: u32,
        work: impl FnOnce(&mut Tracee, StopReason) -> Resume + Send + 'static,
    ) {
        self.leave_errand(task, |held, stands| (work(held, stands), None), false);
    }

    /// The same; what the work has returned is called when the thread goes on, and before anything else that it does is seen.
    pub fn order_and_tell(
        &self,
        task: u32,
        work: impl FnOnce(&mut Tracee, StopReason) -> (Resume, Box<dyn FnOnce() + Send>)
        + Send
        + 'static,
    ) {
        let work = |held: &mut Tracee, stands| {
            let (after, tell) = work(held, stands);
            (after, Some(tell))
        };
        self.leave_errand(task, work, false);
    }

    /// As [`order_later`](Self::order_later), if the thread is kept: one that runs is not stopped for it.
    pub fn order_kept(&self, task: u32, work: impl FnOnce(&mut Tracee) -> Resume + Send + 'static) {
        self.leave_errand(task, |held, _| (work(held), None), true);
    }

    fn leave_errand(
        &self,
        task: u32,
        work: impl FnOnce(&mut Tracee, StopReason) -> (Resume, Tell) + Send + 'static,
        kept_only: bool,
    ) {
        lock(&self.requests).push(SupervisorRequest { task, work: Box::new(work), kept_only });
        self.wakeup.ring();
    }

    /// Lets a thread go that stands in its end, for whoever was told of that.
    pub fn let_end(&self, thread: u32) {
        lock(&self.ended_well).push(thread);
        self.wakeup.ring();
    }

    /// Has the thread that follows do `work` while all threads of a process stand, wherever they are, and all that have its memory for a
    /// while (`vfork`); what it returns. Threads that wait for the end of a `vfork` do not count: they touch nothing.
    ///
    /// # Errors
    /// `ESRCH`: nobody follows any more. `ETIMEDOUT`: they do not all stand `within` this time; nothing has been done.
    pub fn still<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<R> {
        let (answer, answered) = mpsc::channel();
        let decided = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&decided);
        let work: StopAllWork = Box::new(move || {
            if !begins.swap(true, Ordering::Relaxed) {
                drop(answer.send(work()));
            }
        });
        lock(&self.stop_requests).push((process, work));
        let waits = || lock(&self.stop_requests).iter().any(|(of, _)| *of == process);
        let done =
            self.until_answered(&answered, &decided, Instant::now() + within, waits, || false);
        if let Err(error) = &done {
            debug!(process, %error, ?within, "its threads were not all stopped");
        }
        done
    }

    /// Calls who follows as long as the errand `waits`, until there is an answer, or who it is about has `ended`.
    fn until_answered<R>(
        &self,
        answered: &mpsc::Receiver<R>,
        decided: &AtomicBool,
        deadline: Instant,
        waits: impl Fn() -> bool,
        ended: impl Fn() -> bool,
    ) -> io::Result<R> {
        let mut gone = false;
        loop {
            // Pairs with `follow`.
            let over = self.over.load(Ordering::Acquire);
            if (over || gone) && !decided.swap(true, Ordering::Relaxed) {
                return Err(Errno::SRCH.into());
            }
            if !over && waits() {
                self.wakeup.ring();
            }
            match answered.recv_timeout(REQUEST_POLL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(Errno::SRCH.into()),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => gone = ended(),
                Err(RecvTimeoutError::Timeout) if decided.swap(true, Ordering::Relaxed) => {
                    // It has begun.
                    return answered.recv().map_err(|_| Errno::SRCH.into());
                }
                Err(RecvTimeoutError::Timeout) => return Err(Errno::TIMEDOUT.into()),
            }
        }
    }

    /// Interrupts the tasks that something is to be done with.
    pub(super) fn fetch(&self, following: &mut EventLoop) {
        // Not in the head of the loop, which would keep the lock: what is done here leaves errands, too.
        let requests = std::mem::take(&mut *lock(&self.requests));
        for SupervisorRequest { task, work, kept_only } in requests {
            if !self.tasks().contains(&task) || following.ending.contains(&task) {
                continue;
            }
            let mut held = Tracee::of(task);
            if following.kept.remove(&task) {
                // Killed meanwhile, if not: its end is the next that is told.
                let _ = following.run(&mut held, StopReason::Kept, vec![work]);
            } else if !kept_only && held.interrupt().is_ok() {
                following.expected.entry(task).or_default().push(work);
            }
            held.leave();
        }
        let ended_well = std::mem::take(&mut *lock(&self.ended_well));
        for task in ended_well.into_iter().filter(|task| following.ending.remove(task)) {
            let held = Tracee::of(task);
            // It is gone, if not.
            let _ = held.resume(0);
            held.leave();
        }
        let requests = std::mem::take(&mut *lock(&self.stop_requests));
        for (process, work) in requests {
            // Killed meanwhile: what that means is told later.
            let _ = self.stand_still(process, following, work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    /// Of a thread that stops for something else again and again: were an interruption lost with any such stop, its errand would not be done.
    #[test]
    fn no_errand_is_lost_with_a_stop_for_something_else() {
        const TIMES: u32 = 2000;
        let forks = "echo; while :; do (:); done";
        let mut shell = Command::new("sh");
        let mut child = shell.args(["-c", forks]).stdout(Stdio::piped()).spawn().expect("a shell");
        // It is the shell by now, and no copy of this process any more.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("a line");
        let (process, supervisor) = (child.id(), Arc::new(Supervisor::default()));
        let (tell, told) = mpsc::channel();
        let followed = Arc::clone(&supervisor);
        let follows = std::thread::spawn(move || {
            followed.follow(process, || tell.send(()).map_err(io::Error::other))
        });
        told.recv().expect("it is followed");
        for _ in 0..TIMES {
            let done =
                supervisor.order(process, Duration::from_secs(20), |_, _| ((), Resume::GoOn));
            done.expect("it stands");
        }
        child.kill().expect("it is ours");
        follows.join().expect("no panic").expect("until the end");
        // Who follows may have been told of the end instead.
        let _ = child.wait();
    }

    /// Its end is not told before that of the other one: whoever waited for that would wait as long.
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
        // What is to be done with a program that becomes another one is not done with that.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("a line");
        let (process, supervisor) = (child.id(), Arc::new(Supervisor::default()));
        let (tell, told) = mpsc::channel();
        let followed = Arc::clone(&supervisor);
        let follows = std::thread::spawn(move || {
            followed.follow(process, || tell.send(()).map_err(io::Error::other))
        });
        told.recv().expect("it is followed");
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        let refused = loop {
            let forever = Duration::from_secs(10_000);
            // Before it ends this is done.
            if let Err(error) = supervisor.order(process, forever, |_, _| ((), Resume::GoOn)) {
                break error;
            }
        };
        assert_eq!(refused.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
        assert!(supervisor.has(process), "its end is not told yet");
        child.kill().expect("it is ours");
        follows.join().expect("no panic").expect("until the end");
        // Who follows may have been told of the end instead.
        let _ = child.wait();
    }
}
