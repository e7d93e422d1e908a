//! The state of a stopped thread beyond its general registers: ptrace(2).

use std::fmt;
use std::io;

use super::{Options, Tracee};
use crate::foreign::Memory;

/// The initial size of the buffer for the extended state: AVX-512 needs 2.4 KiB, AMX 11 KiB.
const INITIAL_SIZE: usize = 4096;
/// Bytes of the `FXSAVE` area, with which the `XSAVE` area begins.
const LEGACY: usize = 512;
/// Offset of the bytes of that area which are reserved for software.
const XSAVE_OWN: usize = 464;
/// Bytes of the `XSAVE` header after it, which says which components are not in their initial
/// state; all are stored nevertheless.
const XSAVE_HEADER: usize = 64;
/// The register set of the extended state, from `linux/elf.h`.
const NT_X86_XSTATE: i32 = 0x202;

/// The state of a thread with respect to system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCall {
    /// The thread is in no system call.
    None,
    /// The thread is about to make a system call.
    Entry {
        /// The number of the call.
        number: u64,
        /// The arguments of the call.
        arguments: [u64; 6],
    },
    /// The thread has made a system call.
    Exit {
        /// The result if `error` is not set, else the negative error number.
        value: i64,
        /// Whether the call has failed.
        error: bool,
    },
    /// A filter has reported the call to the tracer ([`crate::seccomp::Action::Trace`]).
    Seccomp {
        /// The number of the call.
        number: u64,
        /// The arguments of the call.
        arguments: [u64; 6],
        /// The filter's message.
        message: u32,
    },
}

/// The kernel's name for calls of this machine's own convention (`linux/audit.h`), as opposed to
/// those of `int $0x80` and of 32-bit code.
#[cfg(target_arch = "x86_64")]
const OWN_CONVENTION: u32 = linux_raw_sys::ptrace::AUDIT_ARCH_X86_64;
#[cfg(target_arch = "aarch64")]
const OWN_CONVENTION: u32 = linux_raw_sys::ptrace::AUDIT_ARCH_AARCH64;

/// The information about a signal that is about to be delivered: its sender and its cause.
#[derive(Clone, Copy)]
pub struct Information(libc::siginfo_t);

impl Information {
    /// Returns the signal's number.
    pub fn signal(&self) -> i32 {
        self.0.si_signo
    }

    /// Returns its cause: `SI_USER`, `SEGV_MAPERR`, …
    pub fn code(&self) -> i32 {
        self.0.si_code
    }

    /// Returns the address that was accessed; for `SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE` and
    /// `SIGTRAP` from the kernel (`code` above 0).
    pub fn address(&self) -> Option<u64> {
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        let fault = self.code() > 0 && faults.contains(&self.signal());
        // SAFETY: all forms of the structure have this word; for faults it is the address.
        fault.then(|| unsafe { self.0.si_addr() } as u64)
    }

    /// Returns the sending process, as numbered in the receiver's namespace; for `kill`, `tgkill`
    /// and `sigqueue` (`code` 0 and below).
    pub fn sender(&self) -> Option<u32> {
        let sent = matches!(self.code(), libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        // SAFETY: all forms of the structure have this word; for these signals it is the sender.
        sent.then(|| unsafe { self.0.si_pid() }.cast_unsigned())
    }
}

impl fmt::Debug for Information {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Information")
            .field("signal", &self.signal())
            .field("code", &self.code())
            .field("address", &self.address())
            .field("sender", &self.sender())
            .finish()
    }
}

impl Tracee {
    /// Replaces the options of the thread, which must be stopped.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed. `EINVAL`: the kernel lacks an option.
    pub fn set_options(&self, options: Options) -> io::Result<()> {
        self.ask(libc::PTRACE_SETOPTIONS, options.number())
    }

    /// Returns the thread's floating-point and vector registers, and whatever else `XSAVE` stores
    /// of a thread on this processor, in the layout of that instruction (Intel's manual, volume 1,
    /// chapter 13). Another thread on the same processor can be given this state.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed. `ENODEV`, `EINVAL`: the processor lacks `XSAVE`.
    pub fn extended_state(&self) -> io::Result<Vec<u8>> {
        let mut state = vec![0_u8; INITIAL_SIZE];
        loop {
            let mut place =
                libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
            self.set(libc::PTRACE_GETREGSET, NT_X86_XSTATE, &mut place)?;
            if place.iov_len < state.len() {
                state.truncate(place.iov_len);
                return Ok(state);
            }
            // The kernel has filled the whole buffer: there may be more.
            state.resize(2 * state.len(), 0);
        }
    }

    /// Returns the words of that state. It holds all values that are in vector registers.
    ///
    /// # Errors
    /// As [`extended_state`](Self::extended_state).
    pub fn extended_words(&self) -> io::Result<Vec<u64>> {
        let state = self.extended_state()?;
        let (words, _) = state.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Sets the state that [`extended_state`](Self::extended_state) returns.
    ///
    /// # Errors
    /// As there; `EFAULT`, `EINVAL`: not such a state, or that of a processor with other features.
    pub fn set_extended_state(&self, state: &[u8]) -> io::Result<()> {
        let mut copy = state.to_vec();
        let mut place = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
        self.set(libc::PTRACE_SETREGSET, NT_X86_XSTATE, &mut place)
    }

    /// Sets the state that [`extended_state`](Self::extended_state) returns for a thread whose
    /// current state is `has`. Usually the two differ in the oldest registers only (x87, SSE).
    /// Setting those takes a twentieth of the time for all, for which the kernel maps a buffer each
    /// time.
    ///
    /// # Errors
    /// As [`set_extended_state`](Self::set_extended_state).
    pub fn set_extended_state_but(&self, state: &[u8], has: &[u8]) -> io::Result<()> {
        if state == has {
            return Ok(());
        }
        const LATER: usize = LEGACY + XSAVE_HEADER;
        match state.first_chunk() {
            Some(legacy) if state.len() >= LATER && state.get(LATER..) == has.get(LATER..) => {
                self.set_legacy_state(legacy)
            }
            _ => self.set_extended_state(state),
        }
    }

    fn set_legacy_state(&self, state: &[u8; LEGACY]) -> io::Result<()> {
        let mut state = *state;
        // These bytes belong to the kernel.
        state[XSAVE_OWN..].fill(0);
        let request = libc::PTRACE_SETFPREGS;
        // SAFETY: the kernel reads as many bytes as there are, in the layout of `FXSAVE`.
        match unsafe { libc::ptrace(request, self.thread, 0_usize, state.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the information about the signal that the thread is about to receive.
    ///
    /// # Errors
    /// `EINVAL`: it is in a stop of another kind. `ESRCH`: it is not stopped, or was killed.
    pub fn information(&self) -> io::Result<Information> {
        // SAFETY: all zeros are a valid value of this plain structure.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is valid for the size that the kernel writes.
        match unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.thread, 0_usize, &raw mut found) }
        {
            0 => Ok(Information(found)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the former number of the thread that called `execve`, if this thread has stopped
    /// because its process has just executed another program. `None`: the thread has stopped for
    /// another reason, or was killed.
    ///
    /// A first thread that is stopped can be replaced without having been resumed, and before
    /// `next` reports it: the kernel kills it when another thread calls `execve`, and gives that
    /// one its number (ptrace(2), "execve(2) under ptrace").
    pub fn executed(&self) -> Option<u32> {
        let stop = libc::PTRACE_EVENT_EXEC << 8 | libc::SIGTRAP;
        let stands = self.information().is_ok_and(|information| information.code() == stop);
        stands.then(|| self.message()).and_then(Result::ok).map(|former| former as u32)
    }

    /// Returns whether signals are pending for the thread or for its process, blocked ones
    /// included; the thread has to be stopped. Signals that were sent when the maximum number was
    /// already queued (`RLIMIT_SIGPENDING`) are not seen.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed.
    pub fn has_signals(&self) -> io::Result<bool> {
        /// `PTRACE_PEEKSIGINFO_SHARED` from `linux/ptrace.h`.
        const OF_PROCESS: u32 = 1;
        Ok(self.signal_at(0, 0)?.is_some() || self.signal_at(0, OF_PROCESS)?.is_some())
    }

    /// Returns whether the thread is about to receive a signal that its last instruction has caused
    /// (a synchronous one in the terms of signal(7)), and that it does not block; the thread has to
    /// be stopped. Changes to the thread before the delivery can lose the information of that
    /// signal.
    ///
    /// # Errors
    /// As [`has_signals`](Self::has_signals).
    pub fn has_faulted(&self) -> io::Result<bool> {
        const FAULTS: [i32; 6] =
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE, libc::SIGSYS];
        for at in 0.. {
            let Some(Information(signal)) = self.signal_at(at, 0)? else { break };
            if signal.si_code > 0 && FAULTS.contains(&signal.si_signo) {
                return Ok(self.signal_mask()? & (1 << (signal.si_signo - 1)) == 0);
            }
        }
        Ok(false)
    }

    /// Returns the signal at this index of a queue.
    fn signal_at(&self, off: u64, flags: u32) -> io::Result<Option<Information>> {
        let arguments = libc::ptrace_peeksiginfo_args { off, flags, nr: 1 };
        // SAFETY: all zeros are a valid value of this plain structure.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let (arguments, place) = (&raw const arguments, &raw mut found);
        // SAFETY: the kernel reads the one, and writes as many of the other as are asked for: one.
        match unsafe { libc::ptrace(libc::PTRACE_PEEKSIGINFO, self.thread, arguments, place) } {
            0 => Ok(None),
            1.. => Ok(Some(Information(found))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces the signal that the thread is about to receive by one that was received before, by
    /// this thread or another one.
    ///
    /// # Errors
    /// As [`information`](Self::information).
    pub fn set_information(&self, information: &Information) -> io::Result<()> {
        let from = &raw const information.0;
        // SAFETY: the kernel reads the structure, which outlives the call.
        match unsafe { libc::ptrace(libc::PTRACE_SETSIGINFO, self.thread, 0_usize, from) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the thread's state with respect to system calls (5.3).
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed. `EIO`: the kernel is too old.
    pub fn system_call(&self) -> io::Result<SystemCall> {
        Ok(self.system_call_by()?.0)
    }

    /// Returns whether the thread is at the end of a system call.
    pub fn has_returned(&self) -> bool {
        matches!(self.system_call(), Ok(SystemCall::Exit { .. }))
    }

    /// As [`system_call`](Self::system_call); returns also whether the call is of this machine's
    /// own convention, which is true as well if it is in none.
    ///
    /// # Errors
    /// As there.
    pub fn system_call_by(&self) -> io::Result<(SystemCall, bool)> {
        // SAFETY: all zeros are a valid value of this plain structure.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let (request, place) = (libc::PTRACE_GET_SYSCALL_INFO, &raw mut info);
        let size = size_of::<libc::ptrace_syscall_info>();
        // SAFETY: `told` is valid for the size that is passed.
        if unsafe { libc::ptrace(request, self.thread, size, place) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let own = info.arch == OWN_CONVENTION || info.op == libc::PTRACE_SYSCALL_INFO_NONE;
        let call = match info.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => {
                // SAFETY: `op` says that this form was written; the others are zeros, or integers.
                let entry = unsafe { info.u.entry };
                SystemCall::Entry { number: entry.nr, arguments: entry.args }
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                // SAFETY: as above.
                let exit = unsafe { info.u.exit };
                SystemCall::Exit { value: exit.sval, error: exit.is_error != 0 }
            }
            libc::PTRACE_SYSCALL_INFO_SECCOMP => {
                // SAFETY: as above.
                let one = unsafe { info.u.seccomp };
                let (number, arguments) = (one.nr, one.args);
                SystemCall::Seccomp { number, arguments, message: one.ret_data }
            }
            _ => SystemCall::None,
        };
        Ok((call, own))
    }

    /// In a stop of [`super::Event::Clone`] or [`super::Event::Fork`]: returns the address of the
    /// word that the kernel clears in the new task's memory when the task ends and others share
    /// that memory; `None` if there is none.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed. `EFAULT`: the arguments of its call cannot be
    /// read.
    pub fn clears_at_end(&self) -> io::Result<Option<u64>> {
        let wanted = u64::from(libc::CLONE_CHILD_CLEARTID.cast_unsigned());
        let registers = self.registers()?;
        let (flags, word) = match registers.orig_rax.cast_signed() {
            libc::SYS_clone => (registers.rdi, registers.r10),
            libc::SYS_clone3 => {
                // `struct clone_args`: its flags, the address for a pidfd, and that of the word.
                let memory = Memory::of(self.thread())?;
                let at = |offset: u64| {
                    let word = memory.word(registers.rdi.wrapping_add(offset));
                    word.map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))
                };
                (at(0)?, at(16)?)
            }
            _ => return Ok(None),
        };
        Ok((flags & wanted == wanted && word != 0).then_some(word))
    }

    /// Lets the thread run to the next entry or exit of a system call, with a signal if `signal` is
    /// not 0.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn resume_to_system_call(&self, signal: i32) -> io::Result<()> {
        self.ask(libc::PTRACE_SYSCALL, signal as usize)
    }

    /// Lets the thread run until it is about to make a system call, which it does not make: it
    /// reports [`super::Event::SystemCall`], and continues after the call. Passes it a signal if
    /// `signal` is not 0.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `EIO`: the machine lacks the request.
    pub fn resume_emulated(&self, signal: i32) -> io::Result<()> {
        self.ask(libc::PTRACE_SYSEMU, signal as usize)
    }

    /// Leaves the thread stopped with its process, but able to report its next event, for example
    /// that of `SIGCONT`.
    ///
    /// # Errors
    /// `EIO`: it is in a stop of another kind. `ESRCH`: it has ended.
    pub fn leave_stopped(&self) -> io::Result<()> {
        self.ask(libc::PTRACE_LISTEN, 0)
    }

    /// Returns the message of an event, which [`super::Event`] interprets.
    pub(crate) fn message(&self) -> io::Result<u64> {
        let mut message = 0_u64;
        let place = &raw mut message;
        // SAFETY: `message` is valid for a word.
        match unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, self.thread, 0_usize, place) } {
            0 => Ok(message),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
