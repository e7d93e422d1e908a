//! System calls made by a stopped thread. If its tracer is killed in the meantime, the thread
//! returns to its own registers by itself.
//!
//! The tracer sends the thread to code of refit's ([`CODE`]) that makes the call, restores every
//! register that a call changes or takes, and jumps to where the thread was. Nothing else of the
//! thread changes, so the tracer may die at any time:
//!
//! - before it has set the registers, the thread is as it was; afterwards the thread makes the call
//!   and continues where it was;
//! - the stack pointer is the thread's own throughout, and the code uses no stack and changes no
//!   flag, so a signal handler may run at any of its instructions;
//! - the tracer stops the thread by `PTRACE_SYSCALL` and `PTRACE_INTERRUPT`, of which the kernel
//!   leaves nothing when the tracer dies (`__ptrace_unlink` in `kernel/ptrace.c`). A thread that is
//!   stepped, or runs into a breakpoint, would then be killed by the `SIGTRAP`.
//!
//! *A call that the stop has interrupted.* While the tracer lives, it restores the registers as
//! they were at the stop, and the kernel decides by these registers whether to repeat the call when
//! the thread continues. The code itself restores the registers as the kernel would have changed
//! them ([`gone_on`]).

use std::io;
use std::time::{Duration, Instant};

use super::{CallError, Options, Registers, Stop, SystemCall, Tracee};
use crate::foreign::Memory;
use crate::restart::{ERESTART_RESTARTBLOCK, RESTARTS};

/// The options that a thread has to be traced with for [`Tracee::call_returning`].
pub const OPTIONS: Options = Options::EXEC.union(Options::SYSTEM_CALL);
/// Bytes of the code and of the values that it restores.
pub const BYTES: u64 = 152;

/// `syscall`; `mov REGISTER, [rip + …]` for `rax`, `rcx`, `rdx`, `rsi`, `rdi`, `r8` to `r11`; `jmp
/// [rip + …]`. The distances are filled in.
const CODE: [u8; 72] = [
    0x0f, 0x05, //
    0x48, 0x8b, 0x05, 0, 0, 0, 0, //
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, //
    0x48, 0x8b, 0x15, 0, 0, 0, 0, //
    0x48, 0x8b, 0x35, 0, 0, 0, 0, //
    0x48, 0x8b, 0x3d, 0, 0, 0, 0, //
    0x4c, 0x8b, 0x05, 0, 0, 0, 0, //
    0x4c, 0x8b, 0x0d, 0, 0, 0, 0, //
    0x4c, 0x8b, 0x15, 0, 0, 0, 0, //
    0x4c, 0x8b, 0x1d, 0, 0, 0, 0, //
    0xff, 0x25, 0, 0, 0, 0, //
    0xcc,
];

/// The time that a call may take: the calls made in this way wait for nothing but a processor.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of attempts at a call that a signal precedes.
const MAX_ATTEMPTS: usize = 64;

/// Returns the registers as the kernel leaves them when a thread in an event stop continues and no
/// signal handler runs.
pub fn gone_on(registers: &Registers) -> Registers {
    let mut after = *registers;
    let answer = registers.rax.cast_signed();
    if registers.orig_rax.cast_signed() >= 0 && RESTARTS.contains(&answer) {
        let restart = libc::SYS_restart_syscall as u64;
        after.rax = if answer == -ERESTART_RESTARTBLOCK { restart } else { registers.orig_rax };
        after.rip = registers.rip.wrapping_sub(2);
    }
    after.orig_rax = u64::MAX;
    after
}

/// Returns the code, which is position-independent, for a thread that has to continue with these
/// registers.
fn code(after: &Registers) -> [u8; BYTES as usize] {
    let mut bytes = [0; BYTES as usize];
    bytes[..CODE.len()].copy_from_slice(&CODE);
    let words = [
        after.rax, after.rcx, after.rdx, after.rsi, after.rdi, after.r8, after.r9, after.r10,
        after.r11, after.rip,
    ];
    // The distance counts from the end of an instruction, and is stored in its last four bytes.
    let ends = (0..9).map(|number| 2 + 7 * (number + 1)).chain([71]);
    for ((number, word), end) in words.into_iter().enumerate().zip(ends) {
        let at = CODE.len() + 8 * number;
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bytes[end - 4..end].copy_from_slice(&((at - end) as u32).to_le_bytes());
    }
    bytes
}

/// The part of the code that a thread at one of its instructions has still to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Number of registers that are restored already.
    pub restored: usize,
    /// The values of the registers, in the order in which they are restored: `rax`, `rcx`, `rdx`,
    /// `rsi`, `rdi`, `r8` to `r11`.
    pub registers: [u64; 9],
    /// The program counter after that.
    pub counter: u64,
}

/// Returns what a thread has still to do that is at this offset in the code, after the call, or
/// instead of it. `None` if the bytes are not the code, or no instruction is there.
pub fn remaining(code: &[u8; BYTES as usize], offset: u64) -> Option<Remaining> {
    let own = code[..2] == CODE[..2] && code[65..67] == CODE[65..67] && code[71] == CODE[71];
    let restored = match offset {
        0 => 0,
        2..=65 if (offset - 2).is_multiple_of(7) => (offset as usize - 2) / 7,
        _ => return None,
    };
    let (words, _) = code[CODE.len()..].as_chunks::<8>();
    let word = |number: usize| u64::from_le_bytes(words[number]);
    let registers = std::array::from_fn(word);
    own.then_some(Remaining { restored, registers, counter: word(9) })
}

/// The result of an attempt to make a call.
enum Attempt {
    /// The call has returned this.
    Returned(i64),
    /// A signal came before the call was made; the thread is before the first instruction of its
    /// handler.
    Signalled,
}

impl Tracee {
    /// Makes one system call by code that is put at `at`: [`BYTES`] bytes within one page of the
    /// program's code that never run, and whose contents are restored afterwards. Returns the
    /// call's result.
    ///
    /// The thread has to be where [`interrupt`](Self::interrupt) stops it, and to be traced with
    /// [`OPTIONS`]. Its state is restored afterwards, unless a signal came before the call was
    /// made: then it has gone on to the first instruction of the signal's handler.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call_returning(
        &mut self,
        memory: &Memory,
        at: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, CallError> {
        let lost = CallError::Lost;
        let mut found = [0; BYTES as usize];
        memory.read(at, &mut found).map_err(|error| lost(error.into()))?;
        let mut answer = Err(lost(io::Error::from_raw_os_error(libc::EINTR)));
        for _ in 0..MAX_ATTEMPTS {
            match self.attempt(memory, at, number, arguments).map_err(lost)? {
                Attempt::Signalled => {}
                Attempt::Returned(again) if RESTARTS.contains(&again) => {}
                Attempt::Returned(error @ -4095..=-1) => {
                    answer = Err(CallError::Call(io::Error::from_raw_os_error(-(error as i32))));
                    break;
                }
                Attempt::Returned(value) => {
                    answer = Ok(value.cast_unsigned());
                    break;
                }
            }
        }
        memory.write(at, &found).map_err(|error| lost(error.into()))?;
        answer
    }

    fn attempt(
        &mut self,
        memory: &Memory,
        at: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> io::Result<Attempt> {
        let before = self.registers_to_return_to()?;
        memory.write(at, &code(&gone_on(&before)))?;
        let mut registers = before;
        registers.rip = at;
        registers.rax = number.cast_unsigned();
        // No call was interrupted: the kernel must not step back to repeat one.
        registers.orig_rax = u64::MAX;
        crate::restart::set_arguments(&mut registers, arguments);
        self.set_registers(&registers)?;
        loop {
            self.resume_to_system_call(0)?;
            match self.look(Instant::now() + CALL_TIMEOUT)? {
                Stop::Ended => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                // Its process is stopped, or it was asked to stop once more.
                Stop::Event => {}
                // Another thread has called `execve`: this one has ended.
                Stop::Exec => {
                    self.gone = true;
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Stop::Signal(0) => {
                    let SystemCall::Exit { value, .. } = self.system_call()? else { continue };
                    self.interrupt()?;
                    self.resume(0)?;
                    self.settle(Instant::now() + CALL_TIMEOUT)?;
                    self.set_registers(&before)?;
                    return Ok(Attempt::Returned(value));
                }
                Stop::Signal(signal) => {
                    // Its handler finds the thread where it was.
                    self.set_registers(&before)?;
                    self.interrupt()?;
                    self.resume(signal)?;
                    self.settle(Instant::now() + CALL_TIMEOUT)?;
                    return Ok(Attempt::Signalled);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        // SAFETY: all zeros are a valid value of this plain structure of integers.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn every_register_is_restored_from_its_own_word() {
        let mut after = registers();
        (after.rax, after.rcx, after.rdx, after.rsi, after.rdi) = (1, 2, 3, 4, 5);
        (after.r8, after.r9, after.r10, after.r11, after.rip) = (6, 7, 8, 9, 10);
        let code = code(&after);
        for number in 0..9 {
            let end = 2 + 7 * (number + 1);
            let distance = u32::from_le_bytes(code[end - 4..end].try_into().expect("four"));
            assert_eq!(code[end + distance as usize], number as u8 + 1);
        }
        let distance = u32::from_le_bytes(code[67..71].try_into().expect("four"));
        assert_eq!(code[71 + distance as usize], 10);
        let all = Remaining { restored: 0, registers: [1, 2, 3, 4, 5, 6, 7, 8, 9], counter: 10 };
        for (offset, restored) in [(0, 0), (2, 0), (9, 1), (58, 8), (65, 9)] {
            assert_eq!(remaining(&code, offset), Some(Remaining { restored, ..all }));
        }
        for offset in [1, 3, 66, 72] {
            assert_eq!(remaining(&code, offset), None);
        }
        assert_eq!(remaining(&[0; BYTES as usize], 0), None);
    }

    #[test]
    fn an_interrupted_call_is_made_again_as_the_kernel_would() {
        let mut before = registers();
        (before.rip, before.orig_rax, before.rax) = (0x1000, 7, (-512_i64).cast_unsigned());
        assert_eq!((gone_on(&before).rip, gone_on(&before).rax), (0xffe, 7));
        before.rax = (-ERESTART_RESTARTBLOCK).cast_unsigned();
        assert_eq!((gone_on(&before).rip, gone_on(&before).rax), (0xffe, 219));
        before.orig_rax = u64::MAX;
        assert_eq!(gone_on(&before).rip, 0x1000);
        (before.orig_rax, before.rax) = (0, 5);
        assert_eq!((gone_on(&before).rip, gone_on(&before).rax), (0x1000, 5));
    }
}
