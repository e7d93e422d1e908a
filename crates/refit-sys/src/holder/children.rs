//! The children of a holder: its server, and, of the first holder, the holder that takes over.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use super::handover::{Handover, PROGRAM_BYTES};
use super::tasks;
use crate::pidfd::Pidfd;

/// The interval at which the holder looks whether the threads of a server that is ending have
/// ended. The kernel reports only the end of all of them.
const ENDING_INTERVAL: Duration = Duration::from_micros(500);

/// The command that a new program is given to take over, before the descriptor of the board.
const TAKE_OVER: &CStr = c"take-over";

/// The environment of the programs that a holder starts, as `execve` takes it. It is made before
/// the first server, since a holder allocates nothing later.
pub(super) struct Environment {
    _variables: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Environment {
    /// Returns the environment of this process with other `values` of some variables.
    pub(super) fn with(values: &[(&str, String)]) -> Self {
        let own = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        let own = own.filter(|(name, _)| values.iter().all(|(other, _)| other.as_bytes() != name));
        let values = values.iter().map(|(name, value)| (Vec::from(*name), value.clone().into()));
        let variables = own.chain(values).filter_map(|(name, value): (Vec<u8>, Vec<u8>)| {
            // None of them contains a zero: they come from such strings, or from arguments.
            CString::new([&name[..], b"=", &value].concat()).ok()
        });
        let variables: Vec<CString> = variables.collect();
        let mut pointers: Vec<_> = variables.iter().map(|one| one.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self { _variables: variables, pointers }
    }
}

/// A child process and the descriptor by which it is watched.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) process: libc::pid_t,
    pub(super) watch: Pidfd,
}

impl Child {
    /// Opens a descriptor that reports the end of the first thread of a server, or, before Linux
    /// 6.9, of all of its threads.
    pub(super) fn server(process: libc::pid_t) -> io::Result<Self> {
        let number = process.cast_unsigned();
        let watch = Pidfd::open_thread(number).or_else(|_| Pidfd::open(number))?;
        Ok(Self { process, watch })
    }

    /// Returns an entry of poll(2).
    pub(super) fn polled(&self) -> libc::pollfd {
        libc::pollfd { fd: self.watch.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Waits until no thread of a server whose first thread has exited executes an instruction any
    /// more. Calls `before` and reaps the process if it can be reaped; returns its status then.
    pub(super) fn ending(&self, before: impl FnOnce()) -> Option<i32> {
        while !self.has_ended() {
            if tasks::stuck(self.process.cast_unsigned()) {
                return None; // It is reaped later, when its last thread has ended (`reap`).
            }
            // Polled; see `ENDING_INTERVAL`. All threads have been killed.
            std::thread::sleep(ENDING_INTERVAL);
        }
        before();
        Some(self.reap())
    }

    /// Returns whether the process has ended and was not reaped, or is no child.
    pub(super) fn has_ended(&self) -> bool {
        ended(libc::P_PID, self.process.cast_unsigned()) != Some(0)
    }

    /// Waits until the process has ended, reaps it, and returns its status.
    pub(super) fn reap(&self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` receives the answer.
        unsafe { libc::waitpid(self.process, &raw mut status, 0) };
        status
    }
}

/// Reaps the children that have ended, but none of `kept`.
pub(super) fn reap(kept: &[libc::pid_t]) {
    while let Some(process) = ended(libc::P_ALL, 0) {
        // The end of a child that is kept is noticed by its descriptor, and the rest after it.
        if process == 0 || kept.contains(&process) {
            return;
        }
        // SAFETY: no status is stored.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Returns a child that has ended and was not reaped, 0 if none has, `None` if there is no such
/// child.
fn ended(which: libc::idtype_t, id: libc::id_t) -> Option<libc::pid_t> {
    let mut ended = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the structure receives the answer, and its process number is zero if there is none.
    unsafe {
        let found = libc::waitid(which, id, ended.as_mut_ptr(), how) == 0;
        found.then(|| ended.assume_init_ref().si_pid())
    }
}

/// Starts the new holder of a hand-over: the program that was asked for, which inherits `board`.
/// Signals are blocked as in `mask`.
pub(super) fn start_successor(
    handover: &Handover,
    board: RawFd,
    mask: &libc::sigset_t,
    environment: &Environment,
) -> io::Result<Child> {
    let mut program = [0; PROGRAM_BYTES + 1];
    handover.program(&mut program);
    let number = decimal(board.cast_unsigned());
    let arguments = [
        program.as_ptr().cast(),
        TAKE_OVER.as_ptr(),
        number.as_ptr().cast::<libc::c_char>(),
        std::ptr::null(),
    ];
    // SAFETY: this process has one thread. The child only makes system calls, with arguments that
    // are terminated by zeros, until it executes a program or ends.
    let process = unsafe {
        let process = libc::fork();
        if process == 0 {
            libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
            libc::fcntl(board, libc::F_SETFD, 0);
            let environment = environment.pointers.as_ptr();
            libc::execve(program.as_ptr().cast(), arguments.as_ptr(), environment);
            handover.not_executed(&io::Error::last_os_error());
            libc::_exit(127);
        }
        process
    };
    if process < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Child { process, watch: Pidfd::open(process.cast_unsigned())? })
}

/// Returns the decimal digits of a number as a C string.
fn decimal(mut number: u32) -> [u8; 11] {
    let mut digits = [0; 11];
    let length = number.checked_ilog10().unwrap_or(0) as usize + 1;
    for digit in digits[..length].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 1234, u32::MAX] {
            let digits = decimal(number);
            let text = CStr::from_bytes_until_nul(&digits).unwrap();
            assert_eq!(text.to_str().unwrap(), number.to_string());
        }
    }
}
