//! Lets a stopped thread make several system calls before it stops again, so that the cost of a
//! stop is paid once, and not for each call as with [`Tracee::call`].
//!
//! The calls are in a table in the thread's memory. Code that refit has put into that memory makes
//! them; it uses no stack.

use std::io;

use super::call::CallError;
use super::{Registers, Tracee};
use crate::foreign::Memory;

// r12: the entry of the next call; r13: the number of calls left. `syscall` preserves all registers
// but rax, rcx and r11.
std::arch::global_asm!(
    ".pushsection .rodata.refit_batch, \"a\", @progbits",
    ".globl refit_batch_code",
    ".hidden refit_batch_code",
    ".globl refit_batch_end",
    ".hidden refit_batch_end",
    "refit_batch_code:",
    "2:  mov rax, [r12]",
    "    mov rdi, [r12 + 8]",
    "    mov rsi, [r12 + 16]",
    "    mov rdx, [r12 + 24]",
    "    mov r10, [r12 + 32]",
    "    mov r8, [r12 + 40]",
    "    mov r9, [r12 + 48]",
    "    syscall",
    "    cmp rax, -4095", // an error
    "    jae 3f",
    "    add r12, 56",
    "    dec r13",
    "    jnz 2b",
    "3:  int3",
    "refit_batch_end:",
    ".popsection",
);

/// Words of an entry: number and arguments.
const WORDS: usize = 7;
/// Bytes of an entry.
pub const ENTRY: usize = WORDS * 8;

/// Returns the machine code, which is position-independent.
pub fn code() -> &'static [u8] {
    unsafe extern "C" {
        static refit_batch_code: u8;
        static refit_batch_end: u8;
    }
    let (begin, end) = (&raw const refit_batch_code, &raw const refit_batch_end);
    // SAFETY: the bytes between the two marks are constants of this program.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// A system call: its number and its arguments.
pub type Entry = (i64, [u64; 6]);

impl Tracee {
    /// Makes these calls by the [`code`] at `code`. Their table is written to `table`, which has
    /// room for [`ENTRY`] bytes for each call, and which nobody else may write to in the meantime.
    /// Stops at the first call that fails. Returns the number of calls that succeeded, and the
    /// error of the one that failed. The thread has to be stopped as for [`call`](Self::call), and
    /// its state is restored afterwards.
    ///
    /// # Errors
    /// The errors of `ptrace`, and of writing the table. `ESRCH`: the thread was killed.
    pub fn calls(
        &mut self,
        memory: &Memory,
        (code, table): (u64, u64),
        calls: &[Entry],
    ) -> io::Result<(usize, Option<CallError>)> {
        if calls.is_empty() {
            return Ok((0, None));
        }
        let words = calls.iter().flat_map(|(number, arguments)| {
            std::iter::once(number.cast_unsigned()).chain(*arguments)
        });
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        memory.write(table, &bytes)?;
        let enter = |registers: &mut Registers| {
            registers.rip = code;
            (registers.r12, registers.r13) = (table, calls.len() as u64);
            // No call was interrupted: the kernel must not step back to repeat one.
            registers.orig_rax = u64::MAX;
        };
        let after = self.detour(&enter, Self::until_trap, &mut |_| Ok(()))?;
        let left = usize::try_from(after.r13).unwrap_or(calls.len()).min(calls.len());
        let error = || io::Error::from_raw_os_error((after.rax as i32).wrapping_neg());
        Ok((calls.len() - left, (left > 0).then(|| CallError::Call(error()))))
    }
}
