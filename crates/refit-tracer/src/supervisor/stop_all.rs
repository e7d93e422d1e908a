//! Stops all threads of a process at once.
//!
//! Each thread is interrupted, and then waited for. The first event that it reports, whichever it
//! is, shows that the thread is stopped; the event is handled afterwards, as if it came then.
//! Threads that are made meanwhile are found by listing the threads until there are no new ones: a
//! new thread is stopped before its first instruction, since its creator is traced.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use refit_sys::trace::{self, Event, Tracee};
use rustix::io::Errno;

use crate::supervisor::Supervisor;
use crate::supervisor::event_loop::EventLoop;
use crate::supervisor::task::Task;
use crate::supervisor::work::{StopAllWork, Stopped, is};

/// The time within which all threads stop. A thread that waits for a page does not stop, and
/// meanwhile the event loop serves nobody else.
const STOP_ALL_TIMEOUT: Duration = Duration::from_millis(200);
/// The pause between two polls of a thread that does not stop at once.
const STOP_ALL_POLL: Duration = Duration::from_micros(50);
/// The number of polls before the first pause: a running thread stops within microseconds.
const POLLS_BEFORE_PAUSE: u32 = 50;

impl Supervisor {
    /// Does work while all tasks that it lists are stopped; if they do not all stop in time, not at
    /// all. Then the tasks go on.
    pub(super) fn stop_all(
        &self,
        event_loop: &mut EventLoop<'_>,
        mut request: StopAllWork<Self>,
    ) -> io::Result<()> {
        let since = Instant::now();
        let deadline = since + STOP_ALL_TIMEOUT;
        let mut stopped = BTreeMap::new();
        let all_stopped = loop {
            let more: Vec<u32> = (request.list)(self)
                .into_iter()
                .filter(|thread| !stopped.contains_key(thread))
                .collect();
            if more.is_empty() {
                break true;
            }
            for &thread in more.iter().filter(|&&thread| !self.tasks.is(thread, Task::is_stopped)) {
                let tracee = Tracee::of(thread);
                // A thread that has ended reports that.
                let _ = tracee.interrupt();
                tracee.leave();
            }
            let mut late = false;
            for thread in more {
                let ended = refit_sys::process::life(thread).is_none_or(|life| life.ended());
                if ended || self.tasks.is(thread, Task::is_stopped) || self.is_in_vfork(thread) {
                    stopped.insert(thread, None);
                    continue;
                }
                match wait_for_stop(thread, deadline)? {
                    Some(event) => drop(stopped.insert(thread, Some(event))),
                    None => late = true,
                }
            }
            if late {
                break false;
            }
        };
        // If not all are stopped, the caller receives no answer, and the request is tried again
        // unless the caller gives up.
        let stopped = Stopped { tasks: stopped, since };
        if all_stopped {
            (request.work)(self, &stopped);
        } else {
            self.stop_requests.lock().push(request);
        }
        for (thread, event) in stopped.tasks {
            let Some(event) = event else { continue };
            self.on_event(thread, event, event_loop)?;
        }
        Ok(())
    }

    /// Returns the threads of a process, and the processes that borrow its memory.
    pub(super) fn with_memory_of(&self, process: u32) -> Vec<u32> {
        let mut threads = refit_sys::process::threads(process);
        threads.extend(self.processes.borrowers(process));
        threads
    }
}

/// Returns the event with which a thread stops, or `None` if it does not stop before the deadline.
fn wait_for_stop(thread: u32, deadline: Instant) -> io::Result<Option<Event>> {
    for poll in 0_u32.. {
        match trace::next_of(thread, false) {
            Ok(Some((_, event))) => return Ok(Some(event)),
            Ok(None) => {}
            // Its end was reported already, or another thread of ours has traced it.
            Err(error) if is(&error, Errno::CHILD) => return Ok(Some(Event::Exited(0))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            break;
        }
        match poll {
            0..POLLS_BEFORE_PAUSE => refit_sys::thread::give_way(),
            _ => std::thread::sleep(STOP_ALL_POLL),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    /// A process that cannot be stopped, since it is blocked in a `vfork` that happened before it
    /// was traced; and the child of that.
    struct Unstoppable(Child, u32);

    impl Drop for Unstoppable {
        fn drop(&mut self) {
            for number in [self.1, self.0.id()] {
                if let Some(number) = rustix::process::Pid::from_raw(number.cast_signed()) {
                    // It may have ended.
                    let _ = rustix::process::kill_process(number, rustix::process::Signal::KILL);
                }
            }
        }
    }

    fn unstoppable() -> Unstoppable {
        const PROGRAM: &str = "import ctypes, os\n\
            l = ctypes.CDLL(None)\n\
            if l.vfork() == 0:\n    print(os.getpid(), flush=True)\n    l.pause()\n    l._exit(0)\n\
            l.pause()";
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut parent = command.spawn().expect("there is python3");
        let mut line = String::new();
        let output = parent.stdout.as_mut().expect("it is ours");
        BufReader::new(output).read_line(&mut line).expect("it says who its child is");
        let child = line.trim().parse().expect("a number");
        Unstoppable(parent, child)
    }

    #[test]
    fn the_event_loop_goes_on_where_a_thread_does_not_stop() {
        let unstoppable = unstoppable();
        let (supervisor, process) = (Arc::new(Supervisor::default()), unstoppable.0.id());
        let (ready, follows) = mpsc::channel();
        let followed = Arc::clone(&supervisor);
        let follower = thread::spawn(move || {
            followed.follow(process, || ready.send(()).map_err(io::Error::other))
        });
        follows.recv().expect("it is followed");
        let asker = Arc::clone(&supervisor);
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for _ in 0..2 {
                let _ = sender.send(asker.while_stopped(process, 2 * STOP_ALL_TIMEOUT, || ()));
            }
        });
        for _ in 0..2 {
            let refused = answers.recv_timeout(Duration::from_secs(30)).expect("it answers");
            let error = refused.expect_err("it does not stop");
            assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error()));
        }
        drop(unstoppable);
        follower.join().expect("no panic").expect("until the end");
    }
}
