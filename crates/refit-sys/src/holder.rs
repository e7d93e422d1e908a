//! A holder: a process that keeps the descriptors of a server open beyond the server's end, and
//! starts the server again if it ends without having finished.
//!
//! The holder is the process that was started. It makes a child that shares its table of
//! descriptors (`CLONE_FILES`), and the child is the server. Whatever the server opens is therefore
//! open in the holder, too, without being sent to it. If the server is killed or aborts, the holder
//! makes another child, which finds all descriptors of the one before ([`Server::inherited`]), and
//! on the [`Board`], which descriptors these are.
//!
//! The holder has one thread, allocates nothing once the first server runs, and does nothing but
//! wait: for the end of the server, and for signals that end it, which it passes on. It has the
//! memory of the process as of the start (the pages are shared until one side writes), so a server
//! that is started again begins as the first did, without executing a program.
//!
//! # When a server has ended
//!
//! A server has ended when none of its threads has any effect any more. Usually all threads can be
//! reaped then. A thread that waits in the kernel without being interruptible cannot, until its
//! wait ends, and what it waits for may be the next server: a notification makes the kernel write
//! back pages, and wait for the file server meanwhile. So the next server starts once the first
//! thread has exited, which happens when all threads have been killed, and each other thread has
//! exited or waits in the call that sends notifications (`tasks::stuck`). A write to the host that
//! waits for the disk, however, is waited for: it must not overwrite what the next server writes.
//!
//! # Crash loops
//!
//! A server that ends by itself within ten seconds, or is killed before it
//! [serves](Board::serves), counts as a crash at the start. After three in a row the holder waits
//! before it starts another one, twice as long each time; after ten such crashes it gives up and
//! ends, which closes the descriptors.

mod tasks;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use crate::descriptors::Inherited;
use crate::pidfd::Pidfd;
use crate::word_table::WordTable;

/// The number of crashes at the start after which the holder gives up.
const MAX_CRASHES: u64 = 10;
/// A server that ends by itself before this time has crashed at its start.
const START: Duration = Duration::from_secs(10);
/// The number of such crashes after which the holder waits before it starts a server.
const PROMPT_RESTARTS: u64 = 3;
/// The first such wait.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The interval at which the holder looks whether the threads of a server that is ending have
/// ended. The kernel reports only the end of all of them.
const ENDING_INTERVAL: Duration = Duration::from_micros(500);

/// The words of the board.
const BOARD_WORDS: usize = 512;
/// The number of the server for which the holder is ready.
const READY: usize = 0;
/// Whether the server has finished: when it ends, the holder ends as well.
const FINISHED: usize = 1;
/// The descriptor by which the holder watches the server.
const WATCH: usize = 2;
/// Whether the server has begun to serve.
const SERVES: usize = 3;
/// The words that belong to the server.
const OF_SERVER: usize = 16;

/// The exit code of a server whose thread has panicked, and of a holder that gives up.
const PANICKED: i32 = 101;

/// The memory that the holder and all of its servers share.
#[derive(Debug)]
pub struct Board(WordTable);

impl Board {
    /// Returns the words that belong to the servers, which are zero in the beginning.
    pub fn words(&self) -> &[AtomicU64] {
        &self.0.words()[OF_SERVER..]
    }

    /// Records that the server has finished, and that no other one is to continue its work.
    pub fn finish(&self) {
        self.0.words()[FINISHED].store(1, Release);
    }

    /// Records that the server serves: if it is killed from now on, the fault is not its own.
    pub fn serves(&self) {
        self.0.words()[SERVES].store(1, Release);
    }

    fn finished(&self) -> bool {
        self.0.words()[FINISHED].load(Acquire) != 0
    }
}

/// A server that a holder has started.
#[derive(Debug)]
pub struct Server {
    /// The memory that it shares with the holder and with the servers before and after it.
    pub board: Board,
    /// The process of the holder.
    pub holder: u32,
    /// The descriptors of the server before; `None` in the first server.
    pub inherited: Option<Inherited>,
}

/// Makes this process the holder of a server that runs `serve` and ends with the exit code that
/// `serve` returns. Returns only in case of an error; otherwise the process ends as the server
/// does, once that has [finished](Board::finish).
///
/// `serve` runs on a thread of its own: the first thread of a child that shares descriptors has,
/// for the C library, the number of its parent's.
///
/// # Errors
/// `WouldBlock`: this process has more than one thread. The errors of `memfd_create`, `signalfd`,
/// `clone` and `pidfd_open`.
pub fn hold(serve: impl FnOnce(Server) -> i32 + Send + 'static) -> io::Error {
    match Holder::new() {
        Ok(holder) => holder.run(serve),
        Err(error) => error,
    }
}

struct Holder {
    board: Board,
    /// Reports the signals that end the process, and the ends of children.
    signals: OwnedFd,
    /// The signals that were blocked before.
    mask: libc::sigset_t,
    /// The descriptors that were open before the first server.
    own: Vec<RawFd>,
}

/// Why the holder continues.
enum Woken {
    /// The server has ended, with this status of `waitpid`, or `None` if some of its threads cannot
    /// be reaped yet.
    Ended(Option<i32>),
    /// The holder cannot watch the server any more.
    Failed(io::Error),
}

impl Holder {
    fn new() -> io::Result<Self> {
        if tasks::count(std::process::id())? != 1 {
            let what = "a process with several threads cannot become a holder";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
        }
        let board = Board(WordTable::new(c"refit-board", BOARD_WORDS)?);
        let watched = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGCHLD];
        let (signals, mask) = signal_descriptor(&watched)?;
        let own = Inherited::open_descriptors();
        Ok(Self { board, signals, mask, own })
    }

    fn run(self, serve: impl FnOnce(Server) -> i32 + Send + 'static) -> io::Error {
        let mut crashes_at_start = 0;
        for number in 1.. {
            let began = Instant::now();
            self.board.0.words()[SERVES].store(0, Release);
            let child = match clone_sharing_descriptors() {
                Ok(0) => self.become_server(number, serve),
                Ok(child) => child,
                Err(error) => return error,
            };
            let watch = match watch(child) {
                Ok(watch) => watch,
                Err(error) => return error,
            };
            self.board.0.words()[WATCH].store(watch.as_fd().as_raw_fd() as u64, Release);
            self.board.0.words()[READY].store(number, Release);
            let status = match self.wait(child, &watch) {
                Woken::Ended(status) => status,
                Woken::Failed(error) => return error,
            };
            if self.board.finished() {
                end_as(status);
            }
            let killed = status
                .is_none_or(|it| libc::WIFSIGNALED(it) && libc::WTERMSIG(it) == libc::SIGKILL);
            let served = self.board.0.words()[SERVES].load(Acquire) != 0;
            if began.elapsed() >= START {
                crashes_at_start = 0;
            } else if !(killed && served) {
                crashes_at_start += 1;
            }
            if crashes_at_start >= MAX_CRASHES {
                say(
                    b"refit: the server has crashed ten times in a row, and is not started again\n",
                );
                end_as(Some(PANICKED << 8));
            }
            say(b"refit: the server has crashed, and is started again\n");
            if crashes_at_start > PROMPT_RESTARTS {
                std::thread::sleep(FIRST_PAUSE * (1 << (crashes_at_start - PROMPT_RESTARTS - 1)));
            }
        }
        unreachable!("servers are counted with 64 bits")
    }

    /// Waits for the end of the server, and passes signals on to it.
    fn wait(&self, child: libc::pid_t, watch: &Pidfd) -> Woken {
        let poll_of = |fd: BorrowedFd<'_>| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        loop {
            let mut polled = [poll_of(self.signals.as_fd()), poll_of(watch.as_fd())];
            // SAFETY: the array has the length that is passed.
            let woken = unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
            let error = io::Error::last_os_error();
            if woken < 0 && error.kind() != io::ErrorKind::Interrupted {
                return Woken::Failed(error);
            }
            if polled[0].revents != 0 {
                self.pass_on(child);
            }
            if polled[1].revents != 0 {
                return Woken::Ended(ending(child));
            }
        }
    }

    /// Passes a signal on to the server. A signal of the terminal reaches both by itself.
    fn pass_on(&self, child: libc::pid_t) {
        // SAFETY: the structure is plain data, and as long as what is read into it.
        unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let read = libc::read(self.signals.as_raw_fd(), (&raw mut info).cast(), size);
            let signal = info.ssi_signo.cast_signed();
            let of_terminal = info.ssi_code == libc::SI_KERNEL;
            if read == size.cast_signed() && signal == libc::SIGCHLD {
                Self::reap(child);
            } else if read == size.cast_signed() && !of_terminal {
                libc::kill(child, signal);
            }
        }
    }

    /// Reaps the servers before `child` whose last threads have ended.
    fn reap(child: libc::pid_t) {
        let mut ended = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        loop {
            let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            // SAFETY: the structure receives the answer, and its process number is zero if there is
            // none.
            let process = unsafe {
                libc::waitid(libc::P_ALL, 0, ended.as_mut_ptr(), how);
                ended.assume_init_ref().si_pid()
            };
            if process == 0 || process == child {
                return;
            }
            // SAFETY: no status is stored.
            unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) };
            ended = std::mem::MaybeUninit::zeroed();
        }
    }

    fn become_server(self, number: u64, serve: impl FnOnce(Server) -> i32 + Send + 'static) -> ! {
        let Self { board, mask, mut own, signals } = self;
        // SAFETY: the mask is the one that the process had before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
        while board.0.words()[READY].load(Acquire) != number {
            // The holder needs a moment until it watches this process, which is what it does next.
            std::thread::yield_now();
        }
        own.push(board.0.words()[WATCH].load(Acquire) as RawFd);
        // SAFETY: this process has the memory of the holder, whose values own the descriptors that
        // were open before the first server, and the one that watches this process.
        let inherited = (number > 1).then(|| unsafe { Inherited::new(&own) });
        // SAFETY: the call has no effect on memory.
        let holder = unsafe { libc::getppid() }.cast_unsigned();
        // The holder reads from it, and the table of descriptors is its as well.
        std::mem::forget(signals);
        let served = std::thread::Builder::new()
            .name("refit".into())
            .spawn(move || serve(Server { board, holder, inherited }));
        let code = served.map(std::thread::JoinHandle::join);
        std::process::exit(code.ok().and_then(Result::ok).unwrap_or(PANICKED))
    }
}

/// Waits until no thread of a process whose first thread has exited executes an instruction any
/// more. Returns the status of the process if it could be reaped.
fn ending(child: libc::pid_t) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: `status` receives the answer.
        let reaped = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if reaped == child {
            return Some(status);
        }
        if reaped < 0 || tasks::stuck(child.cast_unsigned()) {
            return None; // It is reaped later, when its last thread has ended (`pass_on`).
        }
        // Polled; see `ENDING_INTERVAL`. All threads have been killed.
        std::thread::sleep(ENDING_INTERVAL);
    }
}

/// Ends this process as a server with this status has ended.
fn end_as(status: Option<i32>) -> ! {
    let status = status.unwrap_or(0);
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    // SAFETY: the process ends.
    unsafe { libc::_exit(code) }
}

fn clone_sharing_descriptors() -> io::Result<libc::pid_t> {
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: like a fork of a process with one thread, but for the shared table of descriptors:
    // the child has its own memory. Its first thread only starts another one and waits for it.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(child as libc::pid_t) }
}

/// Opens a descriptor that reports the end of the first thread of a process, or, before Linux 6.9,
/// of all of them.
fn watch(child: libc::pid_t) -> io::Result<Pidfd> {
    let child = child.cast_unsigned();
    Pidfd::open_thread(child).or_else(|_| Pidfd::open(child))
}

/// Blocks signals and returns a descriptor that reports them, and the mask before.
fn signal_descriptor(signals: &[i32]) -> io::Result<(OwnedFd, libc::sigset_t)> {
    // SAFETY: the sets are plain data that the calls fill; the descriptor belongs to nothing else.
    unsafe {
        let (mut set, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fd), before))
    }
}

fn say(line: &[u8]) {
    // SAFETY: the line is valid for its length.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
