//! Following a tree of processes from outside: each task that it begins, each program that it runs, each end
//! (ptrace(2), Linux 3.4 or later).
//!
//! The follower is one thread. It seizes the first task; the kernel hands it every task that a followed one makes, stopped
//! before its first instruction. Nothing else is changed for them: signals are delivered as they come, stops of job control are
//! stops, and parents learn of the ends of their children as ever, a moment later. When the follower dies, the kernel
//! kills all that it follows: nothing of the tree runs on without it.

use std::io;
use std::marker::PhantomData;

/// What a followed task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new, or is seen for the first time.
    Began {
        /// Its number.
        task: u32,
    },
    /// It runs another program: it stands before the first instruction of it, or of its loader. The other threads of its
    /// process are gone, and it has the number of the process.
    Exec {
        /// Its number now.
        task: u32,
        /// Its number before.
        was: u32,
    },
    /// It has ended.
    Ended {
        /// Its number.
        task: u32,
        /// How, as `wait` tells it.
        status: i32,
    },
}

/// Follows the tasks of a tree; only the thread that began it can.
#[derive(Debug)]
pub struct Follower {
    /// The task whose event was told last: it stands still until the next one is asked for.
    standing: Option<u32>,
    /// `ptrace` answers the tracing thread only.
    here: PhantomData<*const ()>,
}

/// What a tracer is told and when, and that all ends with it.
const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

impl Follower {
    /// Follows a process of one thread, and all that it makes from now on. It goes on running.
    ///
    /// # Errors
    /// `ESRCH`: there is none. `EPERM`: it is somebody else's, or another process traces it.
    pub fn begin(process: u32) -> io::Result<Self> {
        let follower = Self { standing: None, here: PhantomData };
        follower.ask(libc::PTRACE_SEIZE, process, OPTIONS as usize)?;
        Ok(follower)
    }

    /// Lets the task whose event came last go on, and waits for the next event of any. `None`: all have ended.
    ///
    /// # Errors
    /// What `wait` says.
    pub fn wait(&mut self) -> io::Result<Option<Event>> {
        if let Some(task) = self.standing.take() {
            self.go_on(task, libc::PTRACE_CONT, 0)?;
        }
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the answer.
            let task = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if task < 0 {
                match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            }
            if let Some(event) = self.event(task.cast_unsigned(), status)? {
                return Ok(Some(event));
            }
        }
    }

    /// What the answer of `wait` says; `None` where the task goes on by itself.
    fn event(&mut self, task: u32, status: i32) -> io::Result<Option<Event>> {
        if !libc::WIFSTOPPED(status) {
            return Ok(Some(Event::Ended { task, status }));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            // About to be given a signal, by somebody else.
            0 => self.go_on(task, libc::PTRACE_CONT, signal)?,
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => {
                // New, or back from a stop of job control: the second is no harm to be told again.
                self.standing = Some(task);
                return Ok(Some(Event::Began { task }));
            }
            // Stopped by job control: it stays so until somebody continues it.
            libc::PTRACE_EVENT_STOP => self.go_on(task, libc::PTRACE_LISTEN, 0)?,
            libc::PTRACE_EVENT_EXEC => {
                let was = self.message(task).unwrap_or(task);
                self.standing = Some(task);
                return Ok(Some(Event::Exec { task, was }));
            }
            // It has made a task, which tells of itself.
            _ => self.go_on(task, libc::PTRACE_CONT, 0)?,
        }
        Ok(None)
    }

    /// The number that an event comes with.
    fn message(&self, task: u32) -> io::Result<u32> {
        let mut number: libc::c_ulong = 0;
        let place = (&raw mut number) as usize;
        self.ask(libc::PTRACE_GETEVENTMSG, task, place)?;
        Ok(number as u32)
    }

    /// A task that was killed meanwhile tells of its end next.
    fn go_on(&self, task: u32, how: libc::c_uint, signal: i32) -> io::Result<()> {
        match self.ask(how, task, signal as usize) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    fn ask(&self, request: libc::c_uint, task: u32, data: usize) -> io::Result<()> {
        // SAFETY: `data` is a number, or the address of a local of the caller that is of the size that the request stores.
        match unsafe { libc::ptrace(request, task.cast_signed(), 0_usize, data) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
