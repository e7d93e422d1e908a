//! A traced thread: its stops, its registers, and the requests that let it run.

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use super::Registers;
use super::options::Options;

/// A thread of another process that the calling thread traces, and that is stopped but for short
/// runs.
#[derive(Debug)]
pub struct Tracee {
    pub(super) thread: libc::pid_t,
    /// Whether the thread has ended, or its number now belongs to a thread of another program.
    pub(super) gone: bool,
    /// Whether the thread was at the beginning of its program when it first made a call; `None`
    /// before that.
    pub(super) began_at_exec: Option<bool>,
    /// `ptrace` serves the tracing thread only.
    here: PhantomData<*const ()>,
}

/// The last stop of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread was interrupted, or its process is stopped (`SIGSTOP`).
    Event,
    /// The thread has executed another program, and is before its first instruction.
    Exec,
    /// The thread is about to receive this signal; 0 for stops by [`Options`] that only
    /// [`next`](super::next) distinguishes.
    Signal(i32),
    /// The thread has ended.
    Ended,
}

impl Tracee {
    /// Traces a thread, which runs on until [`interrupt`](Self::interrupt).
    ///
    /// # Errors
    /// `ESRCH`: no such thread. `EPERM`: it belongs to another user, or another process traces it.
    pub fn seize(thread: u32) -> io::Result<Self> {
        Self::seize_with(thread, Options::EXEC)
    }

    /// As [`seize`](Self::seize), with the options that select further events
    /// ([`next`](super::next)).
    ///
    /// # Errors
    /// As [`seize`](Self::seize).
    pub fn seize_with(thread: u32, options: Options) -> io::Result<Self> {
        let held = Self::of(thread);
        held.ask(libc::PTRACE_SEIZE, options.number())?;
        Ok(held)
    }

    /// Returns a thread that the calling thread traces already, because a tracee created it or
    /// because it asked to be traced. A caller that no longer needs it before its tracing ends has
    /// to [`leave`](Self::leave) it.
    pub fn of(thread: u32) -> Self {
        let thread = thread as libc::pid_t;
        Self { thread, gone: false, began_at_exec: None, here: PhantomData }
    }

    /// Returns the thread's number.
    pub fn thread(&self) -> u32 {
        self.thread as u32
    }

    /// Asks the thread to stop; [`settle`](Self::settle) waits until it has.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn interrupt(&self) -> io::Result<()> {
        self.ask(libc::PTRACE_INTERRUPT, 0)
    }

    /// Waits for the stop that [`interrupt`](Self::interrupt) has asked for, and delivers signals
    /// that come first. Returns [`Stop::Exec`] if the thread runs another program now, else
    /// [`Stop::Event`].
    ///
    /// # Errors
    /// `ESRCH`: the thread has ended. `ETIMEDOUT`: it has not stopped by `deadline`, since it waits
    /// where it cannot stop (for the child of a `vfork`, or for a device); it is detached when the
    /// calling thread ends.
    pub fn settle(&mut self, deadline: Instant) -> io::Result<Stop> {
        loop {
            match self.look(deadline)? {
                stop @ (Stop::Event | Stop::Exec) => return Ok(stop),
                // The thread begins its handler, the default action or its call, and returns here.
                // Any stop cancels an interruption that is still to come: a thread that stops for
                // its calls again and again would never stop for this one.
                Stop::Signal(signal) => {
                    self.interrupt()?;
                    self.ask(libc::PTRACE_CONT, signal as usize)?;
                }
                Stop::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        }
    }

    /// Returns the next stop of the thread, or `ETIMEDOUT` if there is none by `deadline`.
    ///
    /// # Errors
    /// The errors of `waitid`.
    pub fn look(&mut self, deadline: Instant) -> io::Result<Stop> {
        // A running thread stops within microseconds; one that has to be scheduled first needs a
        // tick.
        for round in 0_u32.. {
            if let Some(stop) = self.ask_for_stop()? {
                return Ok(stop);
            }
            if Instant::now() >= deadline {
                break;
            }
            match round {
                0..50 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
    }

    /// Returns the stop of the thread, if it has stopped. The end of a thread is left for its
    /// parent to reap, which may be this process.
    fn ask_for_stop(&mut self) -> io::Result<Option<Stop>> {
        // SAFETY: all zeros are a valid value of this plain structure.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let how = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
        // SAFETY: `info` is valid for the answer.
        let answer =
            unsafe { libc::waitid(libc::P_PID, self.thread as libc::id_t, &raw mut info, how) };
        if answer != 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Some(self.end())),
                error => Err(error),
            };
        }
        // SAFETY: `waitid` has filled in the part for children, or left the zeros.
        let (found, status) = unsafe { (info.si_pid(), info.si_status()) };
        if found == 0 {
            let ended = crate::process::life(self.thread()).is_none_or(|life| life.ended());
            return Ok(ended.then(|| self.end()));
        }
        Ok(Some(match status >> 8 {
            libc::PTRACE_EVENT_STOP => Stop::Event,
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            0 if status & 0x80 == 0 => Stop::Signal(status),
            // A stop that options ask for, which `next` reports: there is no signal to deliver.
            _ => Stop::Signal(0),
        }))
    }

    fn end(&mut self) -> Stop {
        self.gone = true;
        Stop::Ended
    }

    /// Returns the general registers of the thread, which must be stopped.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed.
    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all zeros are a valid value of this plain structure of integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let mut place =
            libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        self.set(libc::PTRACE_GETREGSET, libc::NT_PRSTATUS, &mut place)?;
        if place.iov_len != size_of::<Registers>() {
            // The state of a 32-bit thread has fewer bytes.
            return Err(io::Error::from_raw_os_error(libc::ENOEXEC));
        }
        Ok(registers)
    }

    /// Sets the general registers of the thread, which must be stopped.
    ///
    /// # Errors
    /// As [`registers`](Self::registers); `EIO` for a segment selector that user code may not have.
    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut registers = *registers;
        let mut place =
            libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        self.set(libc::PTRACE_SETREGSET, libc::NT_PRSTATUS, &mut place)
    }

    /// Returns the set of signals that the thread blocks, where signal `n` is bit `n - 1`.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed.
    pub fn signal_mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        self.mask(libc::PTRACE_GETSIGMASK, &mut mask)?;
        Ok(mask)
    }

    /// Sets the signals that the thread blocks. `SIGKILL` and `SIGSTOP` cannot be blocked.
    ///
    /// # Errors
    /// As [`signal_mask`](Self::signal_mask).
    pub fn set_signal_mask(&self, mut mask: u64) -> io::Result<()> {
        self.mask(libc::PTRACE_SETSIGMASK, &mut mask)
    }

    fn mask(&self, request: libc::c_uint, mask: &mut u64) -> io::Result<()> {
        // SAFETY: `mask` is valid for the size that is passed, for reading and writing.
        match unsafe { libc::ptrace(request, self.thread, size_of::<u64>(), &raw mut *mask) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the thread's restartable-sequence area, if it has registered one: its address, and
    /// the signature that precedes the code to which its sequences are aborted (rseq(2)).
    ///
    /// # Errors
    /// `EINVAL` or `EIO` on kernels that lack the request (before 5.13).
    pub fn rseq(&self) -> io::Result<Option<(u64, u32)>> {
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            address: u64,
            size: u32,
            signature: u32,
            flags: u32,
            pad: u32,
        }
        const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
        let mut found = Configuration::default();
        // SAFETY: `found` is valid for the size that is passed.
        let answer = unsafe {
            libc::ptrace(
                PTRACE_GET_RSEQ_CONFIGURATION,
                self.thread,
                size_of::<Configuration>(),
                &raw mut found,
            )
        };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((found.address != 0).then_some((found.address, found.signature)))
    }

    /// Lets the thread run one instruction, which may be a system call, and waits for its next
    /// stop.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `ETIMEDOUT`: it has not stopped for a minute.
    pub fn step(&mut self) -> io::Result<Stop> {
        self.ask(libc::PTRACE_SINGLESTEP, 0)?;
        // The calls that are made here wait for nothing but the processor.
        self.look(Instant::now() + Duration::from_secs(60))
    }

    /// Lets the thread run to its next stop, a breakpoint in refit's code.
    pub(crate) fn until_trap(&mut self) -> io::Result<Stop> {
        self.ask(libc::PTRACE_CONT, 0)?;
        // As in `step`.
        self.look(Instant::now() + Duration::from_secs(60))
    }

    /// Lets the thread run on, with a signal if `signal` is not 0; the thread stays traced.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn resume(&self, signal: i32) -> io::Result<()> {
        self.ask(libc::PTRACE_CONT, signal as usize)
    }

    /// Detaches the thread, so that it continues untraced. Succeeds also if it has ended.
    ///
    /// # Errors
    /// The errors of `ptrace` but `ESRCH`.
    pub fn let_go(mut self) -> io::Result<()> {
        self.release()
    }

    /// Leaves the thread as it is, running or stopped, and traced: [`of`](Self::of) returns it
    /// again.
    pub fn leave(mut self) {
        self.gone = true;
    }

    /// Detaches the thread as if it had been sent `SIGSTOP`.
    pub(crate) fn let_go_stopped(mut self) -> io::Result<()> {
        self.gone = true;
        self.ask(libc::PTRACE_DETACH, libc::SIGSTOP as usize)
    }

    fn release(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        match self.ask(libc::PTRACE_DETACH, 0) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn set(
        &self,
        request: libc::c_uint,
        kind: i32,
        place: &mut libc::iovec,
    ) -> io::Result<()> {
        // SAFETY: `place` holds a valid address and its size, which the caller has taken from a
        // local value.
        match unsafe { libc::ptrace(request, self.thread, kind as usize, &raw mut *place) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn ask(&self, request: libc::c_uint, data: usize) -> io::Result<()> {
        // SAFETY: requests that pass a number, and no memory.
        match unsafe { libc::ptrace(request, self.thread, 0_usize, data) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // Detaching needs a stopped thread; one that runs is detached when the tracing thread ends.
        let _ = self.release();
    }
}
