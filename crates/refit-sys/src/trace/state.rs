//! All of a stopped thread's state beside its general registers: ptrace(2).

use std::fmt;
use std::io;

use super::{Options, Tracee};
use crate::foreign::Memory;

/// The first guess at the size of the extended state: AVX-512 needs 2.4 KiB, AMX 11 KiB.
const FIRST: usize = 4096;
/// What `FXSAVE` keeps, in bytes: the beginning of what `XSAVE` does.
const LEGACY: usize = 512;
/// Where in that software may keep what it likes.
const XSAVE_OWN: usize = 464;
/// Behind that `XSAVE` says which parts are not as they were at the beginning: what they are is told all the same.
const XSAVE_HEADER: usize = 64;
/// The kernel's request for it, by `linux/elf.h`.
const NT_X86_XSTATE: i32 = 0x202;

/// Where a thread stands as to system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCall {
    /// In none.
    None,
    /// It is about to make one.
    Entry {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It has made one.
    Exit {
        /// What it returns, if `error` is not set; else minus the error.
        value: i64,
        /// Whether it has failed.
        error: bool,
    },
    /// A filter has asked to tell the tracer of it ([`crate::seccomp::Action::Trace`]).
    Seccomp {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
        /// What the filter says.
        message: u32,
    },
}

/// Calls of this machine's own convention, as the kernel names conventions (`linux/audit.h`): not of `int $0x80`, nor of 32-bit code.
#[cfg(target_arch = "x86_64")]
const OWN_CONVENTION: u32 = linux_raw_sys::ptrace::AUDIT_ARCH_X86_64;
#[cfg(target_arch = "aarch64")]
const OWN_CONVENTION: u32 = linux_raw_sys::ptrace::AUDIT_ARCH_AARCH64;

/// A signal that is about to be delivered: who sent it, and why.
#[derive(Clone, Copy)]
pub struct Information(libc::siginfo_t);

impl Information {
    /// The signal's number.
    pub fn signal(&self) -> i32 {
        self.0.si_signo
    }

    /// Why it was sent: `SI_USER`, `SEGV_MAPERR`, …
    pub fn code(&self) -> i32 {
        self.0.si_code
    }

    /// The address that was touched; for `SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`, `SIGTRAP` of the kernel (`code` above 0).
    pub fn address(&self) -> Option<u64> {
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
        let fault = self.code() > 0 && faults.contains(&self.signal());
        // SAFETY: the word is there in all of the structure's forms; of faults it is the address.
        fault.then(|| unsafe { self.0.si_addr() } as u64)
    }

    /// The process that sent it, as the receiver counts; for `kill`, `tgkill` and `sigqueue` (`code` 0 and below).
    pub fn sender(&self) -> Option<u32> {
        let sent = matches!(self.code(), libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        // SAFETY: the word is there in all of the structure's forms; of these it is the sender.
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
    /// Says anew what is told of it. It must be stopped.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed meanwhile. `EINVAL`: the kernel lacks one.
    pub fn set_options(&self, options: Options) -> io::Result<()> {
        self.ask(libc::PTRACE_SETOPTIONS, options.number())
    }

    /// Its floating-point and vector registers, and whatever else `XSAVE` keeps of a thread on this processor, as long as that is, in
    /// the layout of the instruction (Intel's manual, volume 1, chapter 13). Fits another thread on the same processor.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed meanwhile. `ENODEV`, `EINVAL`: a processor without `XSAVE`.
    pub fn extended_state(&self) -> io::Result<Vec<u8>> {
        let mut state = vec![0_u8; FIRST];
        loop {
            let mut place =
                libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
            self.set(libc::PTRACE_GETREGSET, NT_X86_XSTATE, &mut place)?;
            if place.iov_len < state.len() {
                state.truncate(place.iov_len);
                return Ok(state);
            }
            // The kernel has filled what there was: there may be more.
            state.resize(2 * state.len(), 0);
        }
    }

    /// Sets what [`extended_state`](Self::extended_state) tells.
    ///
    /// # Errors
    /// As there; `EFAULT`, `EINVAL`: not such a state, or one of a processor with other features.
    pub fn set_extended_state(&self, state: &[u8]) -> io::Result<()> {
        let mut copy = state.to_vec();
        let mut place = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
        self.set(libc::PTRACE_SETREGSET, NT_X86_XSTATE, &mut place)
    }

    /// Sets what [`extended_state`](Self::extended_state) tells, of which the thread `has` some already. Mostly the rest is of the oldest
    /// registers only (x87, SSE): to set those takes a twentieth of what all do, for which the kernel maps a buffer each time.
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
        // These are the kernel's own.
        state[XSAVE_OWN..].fill(0);
        let request = libc::PTRACE_SETFPREGS;
        // SAFETY: the kernel reads as many bytes as there are, in the layout of `FXSAVE`.
        match unsafe { libc::ptrace(request, self.thread, 0_usize, state.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The signal it is about to be given.
    ///
    /// # Errors
    /// `EINVAL`: it stands in a stop of another kind. `ESRCH`: it is not stopped, or was killed meanwhile.
    pub fn information(&self) -> io::Result<Information> {
        // SAFETY: all zeros are a value of this plain structure.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is a valid place of the size the kernel writes.
        match unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.thread, 0_usize, &raw mut found) }
        {
            0 => Ok(Information(found)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether it has stopped since its process has just become another program; returns the number
    /// that the thread which called `execve` had before. `None`: it stands for something else, or
    /// was killed.
    ///
    /// A first thread that stands can be replaced without being let go, and before `next` tells of
    /// it: the kernel kills it when another thread calls `execve`, and gives that one its number
    /// (ptrace(2), "execve(2) under ptrace").
    pub fn executed(&self) -> Option<u32> {
        let stop = libc::PTRACE_EVENT_EXEC << 8 | libc::SIGTRAP;
        let stands = self.information().is_ok_and(|information| information.code() == stop);
        stands.then(|| self.message()).and_then(Result::ok).map(|former| former as u32)
    }

    /// Whether signals wait for it, or for its process, that it may be blocking; it has to be stopped. Those are not seen that were sent
    /// when as many waited already as may (`RLIMIT_SIGPENDING`).
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed meanwhile.
    pub fn has_signals(&self) -> io::Result<bool> {
        /// `PTRACE_PEEKSIGINFO_SHARED` of `linux/ptrace.h`.
        const OF_PROCESS: u32 = 1;
        Ok(self.signal_at(0, 0)?.is_some() || self.signal_at(0, OF_PROCESS)?.is_some())
    }

    /// Whether it is about to be given a signal for what its last instruction did, which it does not block; it has to be stopped. What is done
    /// with it in between can cost what that signal says (signal(7) calls it synchronous).
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

    /// The signal at this place of a queue.
    fn signal_at(&self, off: u64, flags: u32) -> io::Result<Option<Information>> {
        let asked = libc::ptrace_peeksiginfo_args { off, flags, nr: 1 };
        // SAFETY: all zeros are a value of this plain structure.
        let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let (asked, place) = (&raw const asked, &raw mut found);
        // SAFETY: the kernel reads the one, and writes as many of the other as are asked for: one.
        match unsafe { libc::ptrace(libc::PTRACE_PEEKSIGINFO, self.thread, asked, place) } {
            0 => Ok(None),
            1.. => Ok(Some(Information(found))),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Changes the signal it is about to be given to one that was seen elsewhere, or before.
    ///
    /// # Errors
    /// As [`information`](Self::information).
    pub fn set_information(&self, information: &Information) -> io::Result<()> {
        let from = &raw const information.0;
        // SAFETY: the kernel reads the structure, which lives over the call.
        match unsafe { libc::ptrace(libc::PTRACE_SETSIGINFO, self.thread, 0_usize, from) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where it stands as to system calls (5.3).
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed meanwhile. `EIO`: an earlier kernel.
    pub fn system_call(&self) -> io::Result<SystemCall> {
        Ok(self.system_call_by()?.0)
    }

    /// Whether it stands at the end of a system call.
    pub fn has_returned(&self) -> bool {
        matches!(self.system_call(), Ok(SystemCall::Exit { .. }))
    }

    /// As [`system_call`](Self::system_call), and whether it stands in one of this machine's own convention, or in none.
    ///
    /// # Errors
    /// As there.
    pub fn system_call_by(&self) -> io::Result<(SystemCall, bool)> {
        // SAFETY: all zeros are a value of this plain structure.
        let mut told: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let (request, place) = (libc::PTRACE_GET_SYSCALL_INFO, &raw mut told);
        let size = size_of::<libc::ptrace_syscall_info>();
        // SAFETY: `told` is a valid place of the size that is told.
        if unsafe { libc::ptrace(request, self.thread, size, place) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let own = told.arch == OWN_CONVENTION || told.op == libc::PTRACE_SYSCALL_INFO_NONE;
        let call = match told.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => {
                // SAFETY: `op` says that this form was written; the others are zeros, or integers.
                let entry = unsafe { told.u.entry };
                SystemCall::Entry { number: entry.nr, arguments: entry.args }
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => {
                // SAFETY: as above.
                let exit = unsafe { told.u.exit };
                SystemCall::Exit { value: exit.sval, error: exit.is_error != 0 }
            }
            libc::PTRACE_SYSCALL_INFO_SECCOMP => {
                // SAFETY: as above.
                let one = unsafe { told.u.seccomp };
                let (number, arguments) = (one.nr, one.args);
                SystemCall::Seccomp { number, arguments, message: one.ret_data }
            }
            _ => SystemCall::None,
        };
        Ok((call, own))
    }

    /// In a stop of [`super::Event::Clone`] or [`super::Event::Fork`]: the address of the word that the kernel clears, in the new one's memory, when
    /// it ends and others have that memory; `None`: there is none.
    ///
    /// # Errors
    /// `ESRCH`: it is not stopped, or was killed meanwhile; what it asked for cannot be read.
    pub fn clears_at_end(&self) -> io::Result<Option<u64>> {
        let wanted = u64::from(libc::CLONE_CHILD_CLEARTID.cast_unsigned());
        let registers = self.registers()?;
        let (flags, word) = match registers.orig_rax.cast_signed() {
            libc::SYS_clone => (registers.rdi, registers.r10),
            libc::SYS_clone3 => {
                // `struct clone_args`: its flags, a place for a pidfd, and the word.
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

    /// Lets it run on to the next system call's entry or exit, with a signal if `signal` is not 0.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn resume_to_system_call(&self, signal: i32) -> io::Result<()> {
        self.ask(libc::PTRACE_SYSCALL, signal as usize)
    }

    /// Lets it run on until it is about to make a system call, which it does not make: it is told as [`super::Event::SystemCall`],
    /// and goes on behind it. With a signal if `signal` is not 0.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `EIO`: a machine without.
    pub fn resume_emulated(&self, signal: i32) -> io::Result<()> {
        self.ask(libc::PTRACE_SYSEMU, signal as usize)
    }

    /// Leaves it stopped with its process, and has its next event told: that of `SIGCONT`, for one.
    ///
    /// # Errors
    /// `EIO`: it stands in a stop of another kind. `ESRCH`: it has ended.
    pub fn leave_stopped(&self) -> io::Result<()> {
        self.ask(libc::PTRACE_LISTEN, 0)
    }

    /// What an event is about ([`super::Event`] has taken it apart).
    pub(crate) fn message(&self) -> io::Result<u64> {
        let mut message = 0_u64;
        let place = &raw mut message;
        // SAFETY: `message` is a valid place for a word.
        match unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, self.thread, 0_usize, place) } {
            0 => Ok(message),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
