//! Restartable sequences (rseq(2)) of threads that are sent elsewhere and come back.
//!
//! The kernel aborts the sequence that a thread was stopped in by the address at which it resumes
//! the thread. A thread that runs other code meanwhile is elsewhere: the kernel forgets the
//! sequence, and the thread would come back to the middle of it, perhaps on another processor. So
//! it comes back to where the kernel would have sent it, which may happen at any moment of a
//! sequence.

use std::io;

use super::{Registers, Tracee};
use crate::foreign::Memory;

/// Offset of the address of the descriptor in a thread's area (`rseq_cs`).
pub const ANNOUNCED: u64 = 8;
/// Bytes of a descriptor (`struct rseq_cs`): version and flags, begin, length, and the address to
/// which the sequence is aborted. Its address is a multiple of them.
pub const DESCRIPTOR: usize = 32;

impl Tracee {
    /// Returns the registers with which the thread can go on after it has run other code.
    ///
    /// # Errors
    /// `ESRCH`: it was killed.
    pub(super) fn registers_to_return_to(&self) -> io::Result<Registers> {
        let mut registers = self.registers()?;
        // Sequences make no calls.
        let in_call = registers.orig_rax.cast_signed() >= 0;
        if !in_call && let Some(abort) = self.aborted_to(registers.rip) {
            registers.rip = abort;
        }
        Ok(registers)
    }

    /// Returns where the kernel sends the thread if it was stopped in a sequence. `None` also where
    /// the kernel does not tell (before 5.13), or where there is no descriptor.
    fn aborted_to(&self, counter: u64) -> Option<u64> {
        let (area, _) = self.rseq().ok()??;
        let memory = Memory::of(self.thread()).ok()?;
        let descriptor = memory.word(area.checked_add(ANNOUNCED)?).ok().filter(|&at| at != 0)?;
        let mut bytes = [0; DESCRIPTOR];
        memory.read(descriptor, &mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let [_, begin, length, abort] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]));
        (counter.wrapping_sub(begin) < length).then_some(abort)
    }
}
