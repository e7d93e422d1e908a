//! Calls that a stop has cut short, completed by the thread itself, whatever becomes of refit.
//!
//! A thread that has written a part of what it was to write is sent to code in a slack of the program that asks for the rest, and
//! returns to the program with the sum and with its own registers:
//!
//! ```text
//! syscall                        the rest
//! errors become 0                what was done before counts; without touching flags, which a system call leaves alone
//! rax += done
//! rdi … r9, rcx                  as after the call
//! jmp                            behind the program's own `syscall`
//! ```
//!
//! The thread stands behind the `syscall` of that code, and the kernel finds `ERESTARTNOHAND` there: it makes the call, unless the handler
//! of a signal is to run, in which case it is as if the program's own call had ended with the part.
//!
//! A slot is free when nobody stands in it. The thread never needs refit for it, and it never needs an area that could be given back.

use std::ops::Range;

use refit_sys::restart;
use refit_sys::slack;
use refit_sys::trace::Registers;

use super::Still;
use super::call::{BEHIND, first_slack};
use crate::splice::counters_in;

const CODE: [u8; 88] = [
    0x0f, 0x05, // syscall
    0x48, 0x89, 0xc1, // mov rcx, rax
    0x48, 0x0f, 0xc9, // bswap rcx
    0x0f, 0xb6, 0xc9, // movzx ecx, cl: 0 but for errors
    0xe3, 5, // jrcxz behind the next one
    0xb8, 0, 0, 0, 0, // mov eax, 0
    0x48, 0x8b, 0x0d, 0x3f, 0, 0, 0, // mov rcx, [done]
    0x48, 0x8d, 0x04, 0x08, // lea rax, [rax + rcx]
    0x48, 0x8b, 0x3d, 0x3c, 0, 0, 0, // mov rdi, …
    0x48, 0x8b, 0x35, 0x3d, 0, 0, 0, // mov rsi, …
    0x48, 0x8b, 0x15, 0x3e, 0, 0, 0, // mov rdx, …
    0x4c, 0x8b, 0x15, 0x3f, 0, 0, 0, // mov r10, …
    0x4c, 0x8b, 0x05, 0x40, 0, 0, 0, // mov r8, …
    0x4c, 0x8b, 0x0d, 0x41, 0, 0, 0, // mov r9, …
    0x48, 0x8b, 0x0d, 0x42, 0, 0, 0, // mov rcx, [back]
    0xff, 0x25, 0x3c, 0, 0, 0, // jmp [back]
    0xcc, 0xcc, 0xcc, 0xcc,
];
/// Words behind the code: what was done, the six arguments, where the thread goes back to.
const WORDS: usize = 8;
const SLOT: u64 = (CODE.len() + 8 * WORDS) as u64;
const SYSCALL: u64 = 2;

/// What a call that goes on came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    done: u64,
    arguments: [u64; 6],
    back: u64,
}

impl Origin {
    fn bytes(&self) -> [u8; SLOT as usize] {
        let mut bytes = [0; SLOT as usize];
        bytes[..CODE.len()].copy_from_slice(&CODE);
        let words = [self.done].into_iter().chain(self.arguments).chain([self.back]);
        for (place, word) in bytes[CODE.len()..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; SLOT as usize]) -> Option<Self> {
        let words = bytes.strip_prefix(&CODE)?;
        let mut all = [0; WORDS];
        for (word, place) in all.iter_mut().zip(words.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let [done, rdi, rsi, rdx, r10, r8, r9, back] = all;
        Some(Self { done, arguments: [rdi, rsi, rdx, r10, r8, r9], back })
    }
}

impl Still<'_> {
    /// Has every thread whose call the stop has cut short ask for the rest when it goes on. Where there is no place for that, it sees
    /// the part, as after a signal.
    pub(super) fn complete(&mut self) {
        let short: Vec<(u32, Registers)> = self
            .threads()
            .filter_map(|thread| Some((thread, self.registers(thread).ok()?)))
            .filter(|(_, registers)| restart::left(registers).is_some())
            .filter(|(_, registers)| self.has_returned(registers))
            .collect();
        if short.is_empty() {
            return;
        }
        let Some(slack) = first_slack(self) else { return };
        for (thread, registers) in short {
            // What cannot be had leaves the thread as it is.
            let _ = self.complete_one(&slack, thread, &registers);
        }
    }

    /// Whether a thread stands behind a system call, and not before one that is about to be made again: then what would be its answer is its
    /// number.
    fn has_returned(&self, registers: &Registers) -> bool {
        let call = |at: u64| {
            let mut code = [0; SYSCALL as usize];
            self.program.read(at, &mut code).is_ok() && code == CODE[..SYSCALL as usize]
        };
        let again = registers.rax == registers.orig_rax && call(registers.rip);
        !again && call(registers.rip.wrapping_sub(SYSCALL))
    }

    fn complete_one(&self, slack: &Range<u64>, thread: u32, registers: &Registers) -> Option<()> {
        let (arguments, done) = restart::left(registers)?;
        let mut origin =
            Origin { done, arguments: restart::arguments(registers), back: registers.rip };
        if let Some(before) = self.slot_of(slack, registers.rip) {
            origin = Origin { done: before.done.wrapping_add(done), ..before };
        }
        let slots = (slack.start + BEHIND..=slack.end - SLOT).step_by(SLOT as usize);
        let free = |at: &u64| counters_in(self, &(*at..at + SLOT)).is_ok_and(|there| !there);
        let at = { slots }.find(free)?;
        self.program.write(slack.start, &slack::MARK).ok()?;
        self.program.write(at, &origin.bytes()).ok()?;
        let mut after = *registers;
        after.rip = at + SYSCALL;
        after.rax = restart::NO_HANDLER.cast_unsigned();
        [after.rdi, after.rsi, after.rdx, after.r10, after.r8, after.r9] = arguments;
        self.set_registers(thread, &after).ok()
    }

    /// What the call in the slot that a thread stands in came from.
    fn slot_of(&self, slack: &Range<u64>, counter: u64) -> Option<Origin> {
        let at = counter.checked_sub(SYSCALL).filter(|at| slack.contains(at))?;
        let mut bytes = [0; SLOT as usize];
        self.program.read(at, &mut bytes).ok()?;
        Origin::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_tells_what_it_came_from() {
        let origin = Origin { done: 7, arguments: [1, 2, 3, 4, 5, 6], back: 0x1000 };
        assert_eq!(Origin::from_bytes(&origin.bytes()), Some(origin));
        assert_eq!(Origin::from_bytes(&[0; SLOT as usize]), None);
    }

    #[test]
    fn the_code_reads_its_own_words() {
        use iced_x86::{Decoder, DecoderOptions, Register};
        let decoder = Decoder::with_ip(64, &CODE, 0, DecoderOptions::NONE);
        let reads = decoder.into_iter().filter(|one| one.is_ip_rel_memory_operand());
        let reads: Vec<_> =
            reads.map(|one| (one.op0_register(), one.memory_displacement64())).collect();
        let word = |number: usize| (CODE.len() + 8 * number) as u64;
        let expected = [
            (Register::RCX, word(0)),
            (Register::RDI, word(1)),
            (Register::RSI, word(2)),
            (Register::RDX, word(3)),
            (Register::R10, word(4)),
            (Register::R8, word(5)),
            (Register::R9, word(6)),
            (Register::RCX, word(7)),
            (Register::None, word(7)),
        ];
        assert_eq!(reads, expected);
    }
}
