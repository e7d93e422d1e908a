//! The protocol of a hand-over: a server gives what it serves to another one, which may be of
//! another build.
//!
//! The participants are the server that serves and its holder, the new server and its holder, and
//! the first holder, which is the process that was started and keeps its number through all
//! hand-overs. (After none, the first holder is the holder of the server that serves.) They share
//! the board of the first holder, and agree by one word of it, the phase:
//!
//! | from | to | by | when |
//! |---|---|---|---|
//! | `Idle`, `Done`, `Failed` | `Requested` | the server | it is asked to hand over |
//! | `Requested` | `Ready` | the new server | it is prepared, as far as it can be before |
//! | `Ready` | `Switching` | the server | immediately before it exits |
//! | `Switching` | `Stopped` | its holder | the server has ended |
//! | `Stopped` | `Committed` | the new server | nothing can fail any more |
//! | `Committed` | `Done` | the new server | the kernel has sent everything again |
//! | `Requested` to `Stopped` | `Failed` | anyone | one has ended or failed, or it is late |
//!
//! The first holder starts the new holder, which is a new program, upon `Requested`.
//!
//! # Why one server serves
//!
//! The phase is changed by compare-and-swap only, and contains the number of the hand-over. The new
//! server executes no request before it has made the phase `Committed`, which it can only from
//! `Stopped`, hence after the old server has ended. The old holder starts a server again only after
//! it has read `Failed` of this hand-over, which excludes `Committed`, and after the new server and
//! its holder have ended (`end_successor`): whatever they did to the host is done. It reads
//! one of both before long, because after the deadline it makes the phase `Failed` itself. The
//! module's test visits every state of this protocol.

use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use super::board::Board;
use crate::pidfd::Pidfd;
use crate::word_table;

/// The version of the words of a hand-over and of what a server finds on a board.
const VERSION: u64 = 1;

/// The reason that no hand-over is possible after the first holder was killed.
const FIRST_HAS_ENDED: &str = "the process that was started first has ended";

/// The words of the hand-over.
const PHASE: usize = 0;
const VERSION_WORD: usize = 1;
/// The process of the first holder.
const FIRST: usize = 2;
/// The holder of the server that serves, and the descriptor of its board.
const HOLDER: usize = 3;
pub(super) const HOLDER_BOARD: usize = 4;
/// The new holder, and the new server; 0 once they have ended or taken over.
const SUCCESSOR: usize = 5;
const SUCCESSOR_SERVER: usize = 6;
/// The times of the hand-over, in nanoseconds of the monotonic clock.
const DEADLINE: usize = 7;
const SWITCHED: usize = 8;
const DONE: usize = 9;
const STOPPED: usize = 10;
/// The new program, and why a hand-over failed: a length in bytes, and the bytes.
const PROGRAM: usize = 16;
pub(super) const PROGRAM_BYTES: usize = 4096;
const REASON: usize = PROGRAM + 1 + PROGRAM_BYTES / 8;
const REASON_BYTES: usize = 1024;

/// The interval at which a participant looks at the phase while it waits for another one, which
/// may be killed at any instant and then notifies nobody.
pub(super) const LOOK: Duration = Duration::from_micros(100);

/// The phase of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Phase {
    /// There has been none.
    Idle,
    /// A new server is being started.
    Requested,
    /// The new server is prepared.
    Ready,
    /// The server that serves is ending.
    Switching,
    /// The server before has ended.
    Stopped,
    /// The new server may execute requests.
    Committed,
    /// The kernel has sent the requests again that the old server did not answer. Until then its
    /// descriptors stay open: the kernel ends the requests that were read by one that is closed.
    Done,
    /// The server before serves.
    Failed,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Idle,
        Self::Requested,
        Self::Ready,
        Self::Switching,
        Self::Stopped,
        Self::Committed,
        Self::Done,
        Self::Failed,
    ];

    /// Returns whether a hand-over is being made.
    pub fn is_active(self) -> bool {
        self.can_fail() || self == Self::Committed
    }

    /// Returns whether the hand-over is being made and is not committed.
    pub(super) fn can_fail(self) -> bool {
        matches!(self, Self::Requested | Self::Ready | Self::Switching | Self::Stopped)
    }

    /// Returns whether the phase can follow this one.
    pub(super) fn precedes(self, next: Self) -> bool {
        match next {
            Self::Idle => false,
            Self::Requested => !self.is_active(),
            Self::Ready => self == Self::Requested,
            Self::Switching => self == Self::Ready,
            Self::Stopped => self == Self::Switching,
            Self::Committed => self == Self::Stopped,
            Self::Done => self == Self::Committed,
            Self::Failed => self.can_fail(),
        }
    }
}

/// The words of the hand-over on the board of the first holder.
#[derive(Clone, Debug)]
pub struct Handover {
    board: Board,
}

/// The last hand-over, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHandover {
    /// Its number, from 1.
    pub number: u64,
    /// The phase that it has reached.
    pub phase: Phase,
    /// The new program.
    pub program: PathBuf,
    /// The time from the end of the server before until the new one served; `None` before that.
    pub paused: Option<Duration>,
    /// The part of that time in which the server before ended.
    pub ending: Option<Duration>,
    /// Why it failed.
    pub reason: Option<String>,
}

impl Handover {
    /// Returns the hand-overs of which `board` is the first holder's.
    pub(super) fn of(board: &Board) -> Self {
        Self { board: board.clone() }
    }

    /// Makes this process the first holder, whose server serves.
    pub(super) fn begin(&self, board: RawFd) {
        self.put(VERSION_WORD, VERSION);
        self.put(FIRST, std::process::id().into());
        self.held_by(std::process::id(), board);
    }

    /// Returns an error if another version of refit, whose words this one cannot read, has begun.
    pub(super) fn check(&self) -> io::Result<()> {
        let found = self.get(VERSION_WORD);
        if found == VERSION {
            return Ok(());
        }
        let what = format!("the server uses version {found} of the hand-over, not {VERSION}");
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    fn words(&self) -> &[AtomicU64] {
        self.board.handover()
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.words()[word].load(Acquire)
    }

    pub(super) fn put(&self, word: usize, value: u64) {
        self.words()[word].store(value, Release);
    }

    /// Returns the number of the hand-over and its phase.
    pub(super) fn phase(&self) -> (u64, Phase) {
        let word = self.get(PHASE);
        (word >> 8, Phase::ALL[(word & 0xff) as usize % Phase::ALL.len()])
    }

    /// Changes the phase of hand-over `number`. Returns whether it was one that precedes `to`.
    pub(super) fn advance(&self, number: u64, to: Phase) -> bool {
        let word = |number: u64, phase: Phase| number << 8 | phase as u64;
        loop {
            let (current, phase) = self.phase();
            if current != number || !phase.precedes(to) {
                return false;
            }
            // AcqRel, with the acquiring load of `phase`: who sees the new phase sees what its
            // author did before, and the author has seen what led to the old one.
            let (from, to) = (word(number, phase), word(number, to));
            if self.words()[PHASE].compare_exchange(from, to, AcqRel, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Records that the server before has ended, upon its own wish.
    pub(super) fn stopped(&self, number: u64) {
        self.put(STOPPED, now());
        self.advance(number, Phase::Stopped);
    }

    /// Ends the hand-over by which this server, or one before it of the same holder, has taken
    /// over: the kernel has sent everything again.
    pub fn resent(&self) {
        let (number, phase) = self.phase();
        if phase == Phase::Committed {
            self.put(DONE, now());
            self.advance(number, Phase::Done);
        }
    }

    /// Gives the hand-over up, unless it is committed, and says why. Returns whether it is given
    /// up.
    pub(super) fn fail(&self, number: u64, reason: &str) -> bool {
        // The first reason is the cause of the others.
        if self.phase().0 == number && self.get(REASON) == 0 {
            self.put_text(REASON, REASON_BYTES, reason.as_bytes());
        }
        self.advance(number, Phase::Failed) || self.phase() == (number, Phase::Failed)
    }

    /// Records which process holds the descriptors of the server that serves, and its board.
    pub(super) fn held_by(&self, holder: u32, board: RawFd) {
        self.put(HOLDER_BOARD, board as u64);
        self.put(HOLDER, holder.into());
    }

    /// Returns the holder of the server that serves.
    pub(super) fn holder(&self) -> u32 {
        self.get(HOLDER) as u32
    }

    /// Returns the process of the first holder, which is the number of the instance.
    pub(super) fn first(&self) -> u32 {
        self.get(FIRST) as u32
    }

    /// Returns the new holder, if it exists.
    pub(super) fn successor(&self) -> Option<u32> {
        Some(self.get(SUCCESSOR) as u32).filter(|process| *process != 0)
    }

    pub(super) fn set_successor(&self, process: u32) {
        self.put(SUCCESSOR, process.into());
    }

    pub(super) fn set_successor_server(&self, process: u32) {
        self.put(SUCCESSOR_SERVER, process.into());
    }

    /// Records that a server has ended, before it is reaped.
    pub(super) fn server_ended(&self, process: libc::pid_t) {
        if self.get(SUCCESSOR_SERVER) == u64::from(process.cast_unsigned()) {
            self.set_successor_server(0);
        }
    }

    /// Records that there is no new holder any more: it has ended and is being reaped, or it has
    /// taken over.
    pub(super) fn no_successor(&self) {
        self.set_successor_server(0);
        self.set_successor(0);
    }

    /// Lets the new server copy the descriptors of this process if it is the holder, or has the
    /// holder do so.
    pub(super) fn permit_successor(&self) {
        let Some(successor) = self.successor() else { return };
        if self.holder() == std::process::id() {
            // SAFETY: the call has no effect on memory. It fails, and is not needed, where any
            // process of the same user may do so.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(successor)) };
        } else if let Ok(holder) = Pidfd::open(self.holder()) {
            let _ = holder.signal(libc::SIGUSR1);
        }
    }

    /// Records why the new program could not be executed.
    pub(super) fn not_executed(&self, error: &io::Error) {
        let reason: &[u8] = match error.raw_os_error() {
            Some(libc::ENOENT) => b"there is no such program",
            Some(libc::EACCES) => b"it is not permitted to execute the program",
            Some(libc::ENOEXEC) => b"the file is no program of this machine",
            _ => b"the program cannot be executed",
        };
        self.put_text(REASON, REASON_BYTES, reason);
    }

    /// Returns whether a server has ended in order to hand over, once.
    pub(super) fn take_switched(&self) -> bool {
        self.words()[SWITCHED].swap(0, AcqRel) != 0
    }

    /// Kills the new holder and the new server, and waits until they have ended.
    pub(super) fn end_successor(&self) {
        // The server first: its holder would not start another one, but it might not notice.
        for word in [SUCCESSOR_SERVER, SUCCESSOR] {
            let process = self.get(word);
            let Ok(ending) = Pidfd::open(process as u32) else { continue };
            // Its parent clears the word before it reaps the process, so a number that is still
            // there has not been given to another process.
            if process == 0 || self.get(word) != process {
                continue;
            }
            let _ = ending.signal(libc::SIGKILL);
            while !ending.wait_for_end(Duration::from_secs(1)).unwrap_or(true) {}
        }
    }

    /// Returns the time that is left.
    pub(super) fn time_left(&self) -> Duration {
        Duration::from_nanos(self.get(DEADLINE).saturating_sub(now()))
    }

    /// Waits until the phase of the hand-over is none of `during`, or it is too late. Returns it.
    pub(super) fn wait_while(&self, number: u64, during: &[Phase]) -> Phase {
        loop {
            let (current, phase) = self.phase();
            if current != number {
                return Phase::Failed;
            }
            if !during.contains(&phase) || self.time_left().is_zero() {
                return phase;
            }
            // Polled; see `LOOK`.
            std::thread::sleep(LOOK);
        }
    }

    fn text(&self, word: usize, at_most: usize) -> Vec<u8> {
        let mut text = vec![0; (self.get(word) as usize).min(at_most)];
        word_table::read_bytes(&self.words()[word + 1..], &mut text);
        text
    }

    fn put_text(&self, word: usize, at_most: usize, text: &[u8]) {
        let text = &text[..text.len().min(at_most)];
        word_table::write_bytes(&self.words()[word + 1..], text);
        self.put(word, text.len() as u64);
    }

    /// Writes the new program, as a C string, without allocating.
    pub(super) fn program(&self, path: &mut [u8; PROGRAM_BYTES + 1]) {
        let length = (self.get(PROGRAM) as usize).min(PROGRAM_BYTES);
        word_table::read_bytes(&self.words()[PROGRAM + 1..], &mut path[..length]);
        path[length..].fill(0);
    }
}

/// The part of the server that serves.
impl Handover {
    /// Asks for a new server that runs `program`, and waits until it is prepared. The caller makes
    /// one request at a time.
    ///
    /// # Errors
    /// `WouldBlock`: another hand-over is being made. `NotFound`: the first holder has ended.
    /// `InvalidInput`: the path is too long. `TimedOut`: the new server was not prepared in time.
    /// `Other`: it failed; the text is its reason.
    pub fn request(&self, program: &Path, timeout: Duration) -> io::Result<u64> {
        let path = program.as_os_str().as_bytes();
        if path.len() > PROGRAM_BYTES || path.contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Pidfd::open(self.first())
            .map_err(|_| io::Error::new(io::ErrorKind::NotFound, FIRST_HAS_ENDED))?;
        let (last, phase) = self.phase();
        if phase.is_active() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.set_deadline(timeout);
        while self.successor().is_some() {
            if self.time_left().is_zero() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // Polled: the first holder notices in a moment that the last new server took over.
            std::thread::sleep(LOOK);
        }
        let number = last + 1;
        self.put(SWITCHED, 0);
        self.put(DONE, 0);
        self.put_text(PROGRAM, PROGRAM_BYTES, path);
        self.put_text(REASON, REASON_BYTES, b"");
        self.put(PHASE, number << 8 | Phase::Requested as u64);
        if let Err(error) = self.notify_first() {
            self.fail(number, FIRST_HAS_ENDED);
            return Err(error);
        }
        match self.wait_while(number, &[Phase::Requested]) {
            Phase::Ready => Ok(number),
            Phase::Requested => {
                self.cancel(number, "the new server was not ready in time");
                Err(io::Error::new(io::ErrorKind::TimedOut, self.reason()))
            }
            _ => Err(io::Error::other(self.reason())),
        }
    }

    /// Gives up a hand-over that is requested or ready.
    pub fn cancel(&self, number: u64, reason: &str) {
        if self.fail(number, reason) {
            let _ = self.notify_first();
        }
    }

    /// Ends this process, so that the new server continues what it serves, for which it has
    /// `timeout`. Returns only if the hand-over has failed meanwhile.
    pub fn switch(&self, number: u64, timeout: Duration) {
        self.set_deadline(timeout);
        self.put(SWITCHED, now());
        if self.advance(number, Phase::Switching) {
            // SAFETY: the process ends. The next server does the rest of its work.
            unsafe { libc::_exit(0) }
        }
        self.put(SWITCHED, 0);
    }

    fn set_deadline(&self, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.put(DEADLINE, now().saturating_add(timeout));
    }

    fn notify_first(&self) -> io::Result<()> {
        Pidfd::open(self.first())?.signal(libc::SIGUSR1)
    }

    /// Returns the last hand-over; `None` if there has been none.
    pub fn last(&self) -> Option<LastHandover> {
        let (number, phase) = self.phase();
        let since_switch = |word: usize| {
            let time = self.get(word).checked_sub(self.get(SWITCHED))?;
            (phase == Phase::Done).then(|| Duration::from_nanos(time))
        };
        let program = std::ffi::OsString::from_vec(self.text(PROGRAM, PROGRAM_BYTES));
        (phase != Phase::Idle).then(|| LastHandover {
            number,
            phase,
            program: program.into(),
            paused: since_switch(DONE),
            ending: since_switch(STOPPED),
            reason: (phase == Phase::Failed).then(|| self.reason()),
        })
    }

    fn reason(&self) -> String {
        let reason = self.text(REASON, REASON_BYTES);
        match reason.is_empty() {
            true => "the new server has ended without a reason".into(),
            false => OsStr::from_bytes(&reason).to_string_lossy().into_owned(),
        }
    }
}

/// Returns the time of the monotonic clock, which all processes share, in nanoseconds.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
