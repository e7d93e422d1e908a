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
//! before it starts another one, twice as long each time. After six, that one and all later ones
//! let programs only read ([`Server::read_only`]). After ten the holder gives up and ends, which
//! closes the descriptors.
//!
//! # Hand-over
//!
//! A server can also hand over to one that is another program ([`handover`]). That program becomes
//! a holder of its own ([`take_over`]), with its own table of descriptors, into which the new
//! server copies those of the old one. The first holder starts it, and remains when it has handed
//! over: it has no descriptors any more, but it keeps the number by which the instance and the
//! process are known, passes signals on, and ends as the last server does.

mod board;
mod calls;
mod children;
pub mod handover;
#[cfg(test)]
mod model;
mod retirement;
mod succession;
mod tasks;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub use board::Board;
use board::{READY, SERVES, WATCH};
use calls::{clone_sharing_descriptors, end_as, say, signal_descriptor};
use children::{Child, Environment};
use handover::{Handover, Phase};
pub use succession::Succession;

use crate::descriptors::{self, Inherited};

/// The number of crashes at the start after which the holder gives up.
const MAX_CRASHES: u64 = 10;
/// The number of crashes at the start after which servers let programs only read.
const WRITABLE_RESTARTS: u64 = 6;
/// A server that ends by itself before this time has crashed at its start.
const START: Duration = Duration::from_secs(10);
/// The number of such crashes after which the holder waits before it starts a server.
const PROMPT_RESTARTS: u64 = 3;
/// The first such wait.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The interval at which the holder looks at the phase of a hand-over, in milliseconds.
const HANDOVER_INTERVAL: i32 = 1;
/// The interval at which the holder looks whether the server handles signals if one waits for it,
/// in milliseconds.
const SIGNAL_INTERVAL: i32 = 1;

/// The exit code of a server whose thread has panicked, and of a holder that gives up.
const PANICKED: i32 = 101;

/// A server that a holder has started.
#[derive(Debug)]
pub struct Server {
    /// The memory that it shares with the holder and with the servers before and after it.
    pub board: Board,
    /// The process of the first holder, which stays through hand-overs.
    pub first: u32,
    /// The descriptors of the server before; `None` in the first server of a holder.
    pub inherited: Option<Inherited>,
    /// Whether the server before has crashed: it was neither killed nor has it handed over.
    pub crashed: bool,
    /// Whether programs may only read, since too many servers have crashed at their start.
    pub read_only: bool,
    /// The hand-over by which this server takes over, if it does.
    pub succession: Option<Succession>,
    /// The hand-over to another server.
    pub handover: Handover,
}

/// Makes this process the holder of a server that runs `serve` and ends with the exit code that
/// `serve` returns. Returns only in case of an error; otherwise the process ends as the server
/// does, once that has [finished](Board::finish).
///
/// A program that takes over in a hand-over has the environment of this process, with these
/// `variables`.
///
/// `serve` runs on a thread of its own: the first thread of a child that shares descriptors has,
/// for the C library, the number of its parent's.
///
/// # Errors
/// `WouldBlock`: this process has more than one thread. The errors of `memfd_create`, `signalfd`,
/// `clone` and `pidfd_open`.
pub fn hold(
    variables: &[(&str, String)],
    serve: impl FnOnce(Server) -> i32 + Send + 'static,
) -> io::Error {
    match Holder::new(None, variables) {
        Ok(holder) => holder.run(serve),
        Err(error) => error,
    }
}

/// Makes this process, which the first holder has started with the descriptor of its board, the
/// holder of a server that takes over. See [`hold`].
///
/// # Errors
/// As for [`hold`]. `InvalidData`, `InvalidInput`, `EBADF`: `board` is no board. `Unsupported`: the
/// server before uses a protocol that this one does not know.
pub fn take_over(board: RawFd, serve: impl FnOnce(Server) -> i32 + Send + 'static) -> io::Error {
    let board = descriptors::passed(board);
    match board.and_then(|board| Holder::new(Some(Board::open(board)?), &[])) {
        Ok(holder) => holder.run(serve),
        Err(error) => error,
    }
}

/// The number of signals that a holder watches.
const WATCHED: usize = 6;

struct Holder {
    board: Board,
    handover: Handover,
    /// Whether this is the holder of the process that was started.
    is_first: bool,
    /// Reports the signals that end the process, and the ends of children.
    signals: OwnedFd,
    /// The signals that were blocked before.
    mask: libc::sigset_t,
    /// The descriptors that were open before the first server, in order.
    own: Vec<RawFd>,
    environment: Environment,
    /// A signal for the server that has come before that could handle it; 0 if none has.
    pending: Cell<i32>,
    /// The last signal that was sent to a server while it was handing over; 0 if none was. It may
    /// have ended before it did anything about it.
    unanswered: Cell<i32>,
    /// The number of the server.
    number: Cell<u64>,
    /// Whether the server before has crashed.
    crashed: Cell<bool>,
    /// Whether servers let programs only read.
    read_only: Cell<bool>,
}

/// The action of a holder when its server has ended.
enum Next {
    /// Start another one. The flag says whether the end counts as a crash.
    Restart { crashed: bool },
    /// Another holder has taken over.
    HandedOver,
}

impl Holder {
    fn new(first: Option<Board>, variables: &[(&str, String)]) -> io::Result<Self> {
        if tasks::count(std::process::id())? != 1 {
            let what = "a process with several threads cannot become a holder";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
        }
        let board = Board::new()?;
        let handover = Handover::of(first.as_ref().unwrap_or(&board));
        match &first {
            Some(_) => handover.check()?,
            None => handover.begin(board.as_fd().as_raw_fd()),
        }
        let watched: [i32; WATCHED] = [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGUSR1,
            libc::SIGCHLD,
        ];
        let (signals, mask) = signal_descriptor(&watched)?;
        let own = Inherited::open_descriptors();
        let environment = Environment::with(variables);
        Ok(Self {
            board,
            handover,
            is_first: first.is_none(),
            signals,
            mask,
            own,
            environment,
            pending: Cell::new(0),
            unanswered: Cell::new(0),
            number: Cell::new(0),
            crashed: Cell::new(false),
            read_only: Cell::new(false),
        })
    }

    fn run(self, serve: impl FnOnce(Server) -> i32 + Send + 'static) -> io::Error {
        let mut crashes_at_start = 0;
        let mut successor = None;
        for number in 1.. {
            let began = Instant::now();
            self.board.put(SERVES, 0);
            self.number.set(number);
            let started = match clone_sharing_descriptors() {
                Ok(0) => self.become_server(number, serve),
                started => started.and_then(Child::server),
            };
            let server = match started {
                Ok(server) => server,
                Err(error) => return error,
            };
            if !self.is_first && number == 1 {
                self.handover.set_successor_server(server.process.cast_unsigned());
            }
            self.board.put(WATCH, server.watch.as_fd().as_raw_fd() as u64);
            self.board.put(READY, number);
            if let Err(error) = self.wait(&server, &mut successor) {
                return error;
            }
            let status = server.ending(|| self.handover.server_ended(server.process));
            if self.board.finished() {
                let (hand_over, _) = self.handover.phase();
                if self.handover.fail(hand_over, "the server has finished meanwhile") {
                    self.handover.end_successor();
                }
                end_as(status);
            }
            match self.next(&mut successor) {
                Next::HandedOver => self.retire(successor),
                Next::Restart { crashed: false } => {
                    self.crashed.set(false);
                    continue;
                }
                Next::Restart { crashed: true } => {}
            }
            let killed = status
                .is_none_or(|it| libc::WIFSIGNALED(it) && libc::WTERMSIG(it) == libc::SIGKILL);
            self.crashed.set(!killed);
            let served = self.board.get(SERVES) != 0;
            if began.elapsed() >= START {
                crashes_at_start = 0;
            } else if !(killed && served) {
                crashes_at_start += 1;
            }
            if crashes_at_start == WRITABLE_RESTARTS && !self.read_only.replace(true) {
                say(b"refit: servers crash again and again; programs may only read until another \
                      build takes over (`refit handover --binary PATH`)\n");
            }
            pause_after(crashes_at_start);
        }
        unreachable!("servers are counted with 64 bits")
    }

    /// Waits for the end of the server, passes signals on to it, and looks after the holder that
    /// takes over.
    fn wait(&self, server: &Child, successor: &mut Option<Child>) -> io::Result<()> {
        loop {
            if self.accepts_signals() {
                self.deliver(server.process);
            }
            let timeout = if self.pending.get() == 0 { -1 } else { SIGNAL_INTERVAL };
            if self.poll(Some(server), successor, timeout)? {
                return Ok(());
            }
        }
    }

    /// Returns whether the server handles signals: the first one does so before anything else,
    /// and others when they serve.
    fn accepts_signals(&self) -> bool {
        self.number.get() == 1 || self.board.get(SERVES) != 0
    }

    /// Waits at most `timeout` milliseconds for events, and handles them. Returns whether `watched`
    /// has ended.
    fn poll(
        &self,
        watched: Option<&Child>,
        successor: &mut Option<Child>,
        timeout: i32,
    ) -> io::Result<bool> {
        let none = libc::pollfd { fd: -1, events: 0, revents: 0 };
        let signals = libc::pollfd { fd: self.signals.as_raw_fd(), events: libc::POLLIN, ..none };
        let of = |child: Option<&Child>| child.map_or(none, Child::polled);
        let mut polled = [signals, of(watched), of(successor.as_ref())];
        // SAFETY: the array has the length that is passed.
        let woken = unsafe { libc::poll(polled.as_mut_ptr(), 3, timeout) };
        let error = io::Error::last_os_error();
        if woken < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        if polled[0].revents != 0 {
            self.take_signal(watched, successor.as_ref());
        }
        if self.is_first {
            self.look_after(successor, polled[2].revents != 0);
        }
        Ok(polled[1].revents != 0)
    }

    /// Passes a signal on to the server. A signal of the terminal reaches both by itself.
    fn take_signal(&self, server: Option<&Child>, successor: Option<&Child>) {
        // SAFETY: the structure is plain data, and as long as what is read into it.
        let (signal, of_terminal) = unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            if libc::read(self.signals.as_raw_fd(), (&raw mut info).cast(), size)
                != size.cast_signed()
            {
                return;
            }
            (info.ssi_signo.cast_signed(), info.ssi_code == libc::SI_KERNEL)
        };
        let number = |child: Option<&Child>| child.map_or(-1, |child| child.process);
        match (signal, server) {
            (libc::SIGCHLD, _) => children::reap(&[number(server), number(successor)]),
            // Of the first holder: a hand-over has begun. `look_after` sees to the rest.
            (libc::SIGUSR1, _) => self.handover.permit_successor(),
            (_, Some(_)) if of_terminal => {}
            (_, server) => {
                self.pending.set(signal);
                if let Some(server) = server.filter(|_| self.accepts_signals()) {
                    self.deliver_to(server, successor);
                }
            }
        }
    }

    /// Sends the server, or the holder that has one, the signal that waits for it; or the holder
    /// that has taken over from that one, which is about to end.
    fn deliver_to(&self, server: &Child, successor: Option<&Child>) {
        let retired = self.is_first && self.handover.holder() != std::process::id();
        let next = || successor.filter(|_| retired && self.has_successor(successor));
        if let Some(next) = next() {
            return self.deliver(next.process);
        }
        let signal = self.pending.get();
        self.deliver(server.process);
        // It may have handed over just now, and ended without having read the signal.
        if let Some(next) = next() {
            self.pending.set(signal);
            self.deliver(next.process);
        }
    }

    /// Sends a process the signal that waits for it.
    fn deliver(&self, process: libc::pid_t) {
        let signal = self.pending.replace(0);
        if signal != 0 {
            let hands_over = self.handover.phase().1.is_active();
            self.unanswered.set(if hands_over { signal } else { 0 });
            // SAFETY: the call has no effect on memory. The process is a server or a holder, and
            // was not reaped.
            unsafe { libc::kill(process, signal) };
        }
    }

    /// Starts the holder that takes over, or notices its end. `ended` says that it has ended.
    fn look_after(&self, successor: &mut Option<Child>, ended: bool) {
        let (number, phase) = self.handover.phase();
        match successor {
            None if phase == Phase::Requested => {
                let board = self.board.as_fd().as_raw_fd();
                let (mask, environment) = (&self.mask, &self.environment);
                match children::start_successor(&self.handover, board, mask, environment) {
                    Ok(child) => {
                        self.handover.set_successor(child.process.cast_unsigned());
                        self.handover.permit_successor();
                        *successor = Some(child);
                    }
                    Err(_) => {
                        self.handover.fail(number, "no process could be made for the new server");
                    }
                }
            }
            Some(child) if ended && phase.can_fail() || phase == Phase::Failed => {
                self.handover.fail(number, "the new program has ended before it could take over");
                self.handover.end_successor();
                self.handover.no_successor();
                child.reap();
                *successor = None;
            }
            _ => {}
        }
    }

    /// Decides what to do when the server has ended.
    fn next(&self, successor: &mut Option<Child>) -> Next {
        let (number, phase) = self.handover.phase();
        if self.handover.holder() != std::process::id() {
            // This holder was to take over.
            if !matches!(phase, Phase::Committed | Phase::Done) {
                end_as(Some(1 << 8));
            }
            return Next::Restart { crashed: true };
        }
        match phase {
            Phase::Idle | Phase::Committed | Phase::Done => return Next::Restart { crashed: true },
            Phase::Requested | Phase::Ready => {
                self.handover.fail(number, "the server has crashed meanwhile");
            }
            Phase::Switching | Phase::Stopped | Phase::Failed => {
                self.handover.stopped(number);
            }
        }
        while self.handover.phase() == (number, Phase::Stopped) {
            // The deadline ends the wait, also if `poll` fails.
            let _ = self.poll(None, successor, HANDOVER_INTERVAL);
            if self.handover.time_left().is_zero() {
                self.handover.fail(number, "the new server did not take over in time");
            }
        }
        if self.pending.get() == 0 {
            self.pending.set(self.unanswered.replace(0));
        }
        if self.handover.phase().1 != Phase::Failed {
            self.wait_until_done(number, successor);
            return Next::HandedOver;
        }
        self.handover.end_successor();
        Next::Restart { crashed: !self.handover.take_switched() }
    }

    fn become_server(self, number: u64, serve: impl FnOnce(Server) -> i32 + Send + 'static) -> ! {
        let Self { board, handover, is_first, mask, mut own, signals, crashed, read_only, .. } =
            self;
        // SAFETY: the mask is the one that the process had before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
        while board.get(READY) != number {
            // The holder needs a moment until it watches this process, which is what it does next.
            std::thread::yield_now();
        }
        own.push(board.get(WATCH) as RawFd);
        // SAFETY: this process has the memory of the holder, whose values own the descriptors that
        // were open before the first server, and the one that watches this process.
        let inherited = (number > 1).then(|| unsafe { Inherited::new(&own) });
        // SAFETY: the call has no effect on memory.
        let holder = unsafe { libc::getppid() }.cast_unsigned();
        // The holder reads from it, and the table of descriptors is its as well.
        std::mem::forget(signals);
        let serve = move || {
            let succession = if is_first || number > 1 {
                handover.held_by(holder, board.as_fd().as_raw_fd());
                None
            } else {
                match Succession::new(&handover, holder, &board) {
                    Ok(succession) => Some(succession),
                    Err(error) => {
                        let (hand_over, _) = handover.phase();
                        handover.fail(hand_over, &format!("it cannot reach the server: {error}"));
                        return 1;
                    }
                }
            };
            let first = handover.first();
            let (crashed, read_only) = (crashed.get(), read_only.get());
            serve(Server { board, first, inherited, crashed, read_only, succession, handover })
        };
        let served = std::thread::Builder::new().name("refit".into()).spawn(serve);
        let code = served.map(std::thread::JoinHandle::join);
        std::process::exit(code.ok().and_then(Result::ok).unwrap_or(PANICKED))
    }
}

/// Says that the server is started again, and waits if it has crashed at its start too often. Ends
/// the process if it has done so ten times.
fn pause_after(crashes_at_start: u64) {
    if crashes_at_start >= MAX_CRASHES {
        say(b"refit: the server has crashed ten times in a row, and is not started again\n");
        end_as(Some(PANICKED << 8));
    }
    say(b"refit: the server has crashed, and is started again\n");
    if crashes_at_start > PROMPT_RESTARTS {
        std::thread::sleep(FIRST_PAUSE * (1 << (crashes_at_start - PROMPT_RESTARTS - 1)));
    }
}
