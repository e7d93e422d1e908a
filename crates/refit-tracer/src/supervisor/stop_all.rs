//! All threads of a process stand at once.
//!
//! Each is interrupted, and then waited for; whatever it tells first, it stands. What it has told is taken note of afterwards, as if it
//! came then. Threads that are made meanwhile are found by looking until there are no more: a new one stands before its first
//! instruction, since who makes it is traced.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use refit_sys::trace::{self, Event, Tracee};
use rustix::io::Errno;

use crate::supervisor::event_loop::EventLoop;
use crate::supervisor::{StopAllWork, Supervisor, is, lock};

/// How long all of them may take to stand. One that waits for a page does not, and everybody else waits for us.
const STOP_ALL_TIMEOUT: Duration = Duration::from_millis(200);
/// Between two looks, where one does not stand at once.
const STOP_ALL_POLL: Duration = Duration::from_micros(50);
/// How often one looks before it pauses: who runs stands within microseconds.
const LOOKS: u32 = 50;

impl Supervisor {
    /// Does `work` while they stand; not, if they do not. Then they go on.
    pub(super) fn stand_still(
        &self,
        process: u32,
        following: &mut EventLoop,
        work: StopAllWork,
    ) -> io::Result<()> {
        let deadline = Instant::now() + STOP_ALL_TIMEOUT;
        let mut stand = BTreeMap::new();
        let all = loop {
            let more: Vec<u32> = self
                .with_memory_of(process)
                .into_iter()
                .filter(|thread| !stand.contains_key(thread))
                .collect();
            if more.is_empty() {
                break true;
            }
            for &thread in more.iter().filter(|&&thread| !following.stands(thread)) {
                let held = Tracee::of(thread);
                // One that has ended tells so.
                let _ = held.interrupt();
                held.leave();
            }
            let mut late = false;
            for thread in more {
                let ended = refit_sys::process::life(thread).is_none_or(|life| life.ended());
                if ended || following.stands(thread) || self.lends(thread) {
                    stand.insert(thread, None);
                    continue;
                }
                match told(thread, deadline)? {
                    Some(event) => drop(stand.insert(thread, Some(event))),
                    None => late = true,
                }
            }
            if late {
                break false;
            }
        };
        // Where they do not all stand, whoever has asked is not told, and asks again, or does not.
        if all {
            work();
        } else {
            lock(&self.stop_requests).push((process, work));
        }
        for (thread, event) in stand {
            let Some(event) = event else { continue };
            self.take(thread, event, following)?;
        }
        Ok(())
    }

    fn with_memory_of(&self, process: u32) -> Vec<u32> {
        let mut threads = refit_sys::process::threads(process);
        let borrowers = lock(&self.borrowers);
        let of_this = borrowers.iter().filter(|(_, borrower)| borrower.of == process);
        threads.extend(of_this.map(|(&child, _)| child));
        threads
    }

    /// Whether a thread has lent its memory, and waits to have it back.
    pub fn lends(&self, thread: u32) -> bool {
        lock(&self.borrowers).values().any(|one| one.waits == Some(thread))
    }
}

/// What a thread tells when it stands; `None`: it does not by then.
fn told(thread: u32, deadline: Instant) -> io::Result<Option<Event>> {
    for look in 0_u32.. {
        match trace::next_of(thread, false) {
            Ok(Some((_, event))) => return Ok(Some(event)),
            Ok(None) => {}
            // Its end was told already, or it is another's.
            Err(error) if is(&error, Errno::CHILD) => return Ok(Some(Event::Exited(0))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            break;
        }
        match look {
            0..LOOKS => refit_sys::thread::give_way(),
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

    /// A process that cannot be stopped: it waits for the child of its `vfork`, of which nobody has told; and that child.
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
    fn who_follows_goes_on_where_one_does_not_stand() {
        let unstoppable = unstoppable();
        let (supervisor, process) = (Arc::new(Supervisor::default()), unstoppable.0.id());
        let (ready, follows) = mpsc::channel();
        let followed = Arc::clone(&supervisor);
        let follower = thread::spawn(move || {
            followed.follow(process, || ready.send(()).map_err(io::Error::other))
        });
        follows.recv().expect("it is followed");
        let asked = Arc::clone(&supervisor);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for _ in 0..2 {
                let _ = tell.send(asked.still(process, 2 * STOP_ALL_TIMEOUT, || ()));
            }
        });
        for _ in 0..2 {
            let refused = told.recv_timeout(Duration::from_secs(30)).expect("it answers");
            let error = refused.expect_err("it does not stand");
            assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error()));
        }
        drop(unstoppable);
        follower.join().expect("no panic").expect("until the end");
    }
}
