//! Slots: code in which a thread continues a call that a stop has interrupted, without refit, and
//! from which it returns to the program ([`super::complete`]).
//!
//! ```text
//! syscall                        the rest of the call
//! all done? ──► second           only where the rest is of two calls
//! errors become 0                what was done before counts; flags stay, as in a system call
//! rax += done
//! rdi … r9, rcx                  as after the call
//! jmp                            after the program's own `syscall`
//! second: rsi, rdx, rax          what is after the first piece
//! syscall, errors become 0, rax += done, as above
//! ```
//!
//! The words after the code record the program's own call and its registers. From these, the next
//! process that stops the thread can move it back to the end of the program's own `syscall`.

use std::ops::Range;

use refit_sys::restart::{Call, HEADER};
use refit_sys::slack;
use refit_sys::trace::RETURNING_BYTES;

/// Offset in a slack of the code by which refit makes a call ([`super::call`]).
pub(super) const CODE: u64 = slack::MARK.len() as u64;
/// Offset of the text that such a call reads.
pub(super) const TEXT: u64 = CODE + RETURNING_BYTES;
/// Bytes of the longest text.
pub(super) const LONGEST_TEXT: usize = 32;
/// Offset of the first slot.
pub(super) const SLOTS: u64 = TEXT + LONGEST_TEXT as u64;

/// The kinds of code in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One call; its result is added to the amount done before.
    Rest,
    /// One call, restarted: its result is the result of the program's call, even if it is an error.
    Again,
    /// Two calls, the second only if the first does all of its part.
    Two,
}

pub(super) const SHAPES: [Shape; 3] = [Shape::Rest, Shape::Again, Shape::Two];

const REST: [u8; 88] = [
    0x0f, 0x05, // syscall
    0x48, 0x89, 0xc1, // mov rcx, rax
    0x48, 0x0f, 0xc9, // bswap rcx
    0x0f, 0xb6, 0xc9, // movzx ecx, cl: 0 but for errors
    0xe3, 5, // jrcxz behind the next one
    0xb8, 0, 0, 0, 0, // mov eax, 0
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [done]
    0x48, 0x8d, 0x04, 0x08, // lea rax, [rax + rcx]
    0x48, 0x8b, 0x3d, 0, 0, 0, 0, // mov rdi, …
    0x48, 0x8b, 0x35, 0, 0, 0, 0, // mov rsi, …
    0x48, 0x8b, 0x15, 0, 0, 0, 0, // mov rdx, …
    0x4c, 0x8b, 0x15, 0, 0, 0, 0, // mov r10, …
    0x4c, 0x8b, 0x05, 0, 0, 0, 0, // mov r8, …
    0x4c, 0x8b, 0x0d, 0, 0, 0, 0, // mov r9, …
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [back]
    0xff, 0x25, 0, 0, 0, 0, // jmp [back]
    0xcc, 0xcc, 0xcc, 0xcc,
];
/// Range of the instruction that turns an error into 0. Where errors are results, `KEEPS`, a `nop`,
/// replaces it.
const CLEARS: Range<usize> = 13..18;
const KEEPS: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
/// Ends of instructions that read a word, and the index of the word.
const REST_READS: [(usize, usize); 9] = [
    (25, DONE),
    (36, ARGUMENTS),
    (43, ARGUMENTS + 1),
    (50, ARGUMENTS + 2),
    (57, ARGUMENTS + 3),
    (64, ARGUMENTS + 4),
    (71, ARGUMENTS + 5),
    (78, BACK),
    (84, BACK),
];

const TWO: [u8; 152] = [
    0x0f, 0x05, // syscall
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [-first]
    0x48, 0x8d, 0x0c, 0x08, // lea rcx, [rax + rcx]
    0xe3, 82, // jrcxz second
    0x48, 0x89, 0xc1, // mov rcx, rax
    0x48, 0x0f, 0xc9, // bswap rcx
    0x0f, 0xb6, 0xc9, // movzx ecx, cl
    0xe3, 5, // jrcxz behind the next one
    0xb8, 0, 0, 0, 0, // mov eax, 0
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [done]
    0x48, 0x8d, 0x04, 0x08, // sum: lea rax, [rax + rcx]
    0x48, 0x8b, 0x3d, 0, 0, 0, 0, // mov rdi, …
    0x48, 0x8b, 0x35, 0, 0, 0, 0, // mov rsi, …
    0x48, 0x8b, 0x15, 0, 0, 0, 0, // mov rdx, …
    0x4c, 0x8b, 0x15, 0, 0, 0, 0, // mov r10, …
    0x4c, 0x8b, 0x05, 0, 0, 0, 0, // mov r8, …
    0x4c, 0x8b, 0x0d, 0, 0, 0, 0, // mov r9, …
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [back]
    0xff, 0x25, 0, 0, 0, 0, // jmp [back]
    0x48, 0x8b, 0x35, 0, 0, 0, 0, // second: mov rsi, …
    0x48, 0x8b, 0x15, 0, 0, 0, 0, // mov rdx, …
    0x48, 0x8b, 0x05, 0, 0, 0, 0, // mov rax, …
    0x0f, 0x05, // syscall
    0x48, 0x89, 0xc1, // mov rcx, rax
    0x48, 0x0f, 0xc9, // bswap rcx
    0x0f, 0xb6, 0xc9, // movzx ecx, cl
    0xe3, 5, // jrcxz behind the next one
    0xb8, 0, 0, 0, 0, // mov eax, 0
    0x48, 0x8b, 0x0d, 0, 0, 0, 0, // mov rcx, [done before the second]
    0xeb, 0x95, // jmp sum
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
];
const TWO_READS: [(usize, usize); 14] = [
    (9, FIRST),
    (38, DONE),
    (49, ARGUMENTS),
    (56, ARGUMENTS + 1),
    (63, ARGUMENTS + 2),
    (70, ARGUMENTS + 3),
    (77, ARGUMENTS + 4),
    (84, ARGUMENTS + 5),
    (91, BACK),
    (97, BACK),
    (104, SECOND),
    (111, SECOND + 1),
    (118, SECOND + 2),
    (143, SECOND_DONE),
];

/// Indices of the words after the code: the amount done before, the six arguments, the address to
/// return to, the number of the program's call,
const DONE: usize = 0;
const ARGUMENTS: usize = 1;
const BACK: usize = 7;
const NUMBER: usize = 8;
/// the end of the call's time limit (nanoseconds of the monotonic clock), the remaining time (a
/// `struct timespec`);
const DEADLINE: usize = 9;
const TIME: usize = 10;
const WORDS: usize = 12;
/// and for [`Shape::Two`]: the bytes that the first call has to transfer, negated; the second and
/// third argument and the number of the second call; the amount done before the second call; and
/// its `struct msghdr`.
const FIRST: usize = 12;
const SECOND: usize = 13;
const SECOND_DONE: usize = 16;
const HEADER_AT: usize = 17;
const WORDS_OF_TWO: usize = HEADER_AT + HEADER;

/// Length of `syscall`.
pub(super) const SYSCALL: u64 = 2;
/// Offset after the `syscall` of the second call.
const BEHIND_SECOND: u64 = 120;

impl Shape {
    /// Returns the code, with the displacements of its words filled in.
    fn code(self) -> Vec<u8> {
        let (mut code, reads) = match self {
            Self::Rest | Self::Again => (REST.to_vec(), &REST_READS[..]),
            Self::Two => (TWO.to_vec(), &TWO_READS[..]),
        };
        if self == Self::Again {
            code[CLEARS].copy_from_slice(&KEEPS);
        }
        for (end, word) in reads {
            let distance = code.len() + 8 * word - end;
            code[end - 4..*end].copy_from_slice(&(distance as u32).to_le_bytes());
        }
        code
    }

    fn code_size(self) -> u64 {
        match self {
            Self::Rest | Self::Again => REST.len() as u64,
            Self::Two => TWO.len() as u64,
        }
    }

    fn words(self) -> usize {
        if self == Self::Two { WORDS_OF_TWO } else { WORDS }
    }

    /// Returns the size of a slot in bytes.
    pub(super) fn size(self) -> u64 {
        self.code_size() + 8 * self.words() as u64
    }
}

/// The call that a slot continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) shape: Shape,
    words: Vec<u64>,
}

impl Slot {
    /// Returns a slot for the rest of a call that has done `done` so far and that returns to
    /// `back`.
    pub(super) fn new(shape: Shape, call: Call, done: u64, back: u64) -> Self {
        let mut words = vec![0; shape.words()];
        words[DONE] = done;
        words[ARGUMENTS..BACK].copy_from_slice(&call.arguments);
        words[BACK] = back;
        words[NUMBER] = call.number;
        Self { shape, words }
    }

    /// Sets the number of bytes that the first call has to transfer, and the second call. `header`,
    /// if given, is stored in the slot, which is at `at`.
    pub(super) fn set_second(
        &mut self,
        first: u64,
        second: Call,
        header: Option<[u64; HEADER]>,
        at: u64,
    ) {
        let mut address = second.arguments[1];
        if let Some(header) = header {
            self.words[HEADER_AT..].copy_from_slice(&header);
            address = at + self.shape.code_size() + 8 * HEADER_AT as u64;
        }
        self.words[FIRST] = first.wrapping_neg();
        self.words[SECOND..SECOND_DONE].copy_from_slice(&[
            address,
            second.arguments[2],
            second.number,
        ]);
        self.words[SECOND_DONE] = self.done().wrapping_add(first);
    }

    /// Sets the end of the time limit, and the remaining time.
    pub(super) fn set_limit(&mut self, deadline: u64, remains: [u64; 2]) {
        self.words[DEADLINE] = deadline;
        self.words[TIME..WORDS].copy_from_slice(&remains);
    }

    /// Returns the address of the remaining time in a slot at `at`.
    pub(super) fn time(&self, at: u64) -> u64 {
        at + self.shape.code_size() + 8 * TIME as u64
    }

    /// Returns the end of the time limit, if there is one.
    pub(super) fn deadline(&self) -> Option<u64> {
        Some(self.words[DEADLINE]).filter(|deadline| *deadline != 0)
    }

    pub(super) fn done(&self) -> u64 {
        self.words[DONE]
    }

    /// Returns the program's own call.
    pub(super) fn call(&self) -> Call {
        let mut arguments = [0; 6];
        arguments.copy_from_slice(&self.words[ARGUMENTS..BACK]);
        Call { number: self.words[NUMBER], arguments }
    }

    pub(super) fn back(&self) -> u64 {
        self.words[BACK]
    }

    /// Returns the address of the word that holds the return address in a slot at `at`.
    pub(super) fn back_at(shape: Shape, at: u64) -> u64 {
        at + shape.code_size() + 8 * BACK as u64
    }

    /// Returns the amount done before the call that a thread at `offset` is in; `None` if it is in
    /// no call.
    pub(super) fn done_at(&self, offset: u64) -> Option<u64> {
        match offset {
            0 | SYSCALL => Some(self.done()),
            BEHIND_SECOND if self.shape == Shape::Two => Some(self.words[SECOND_DONE]),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.shape.code();
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Decodes the slot at the beginning of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let shape = SHAPES.into_iter().find(|shape| bytes.starts_with(&shape.code()))?;
        let (words, _) = bytes.get(shape.code_size() as usize..)?.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Some(Self { shape, words: words.get(..shape.words())?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};

    use super::*;

    const CALL: Call = Call { number: 20, arguments: [1, 2, 3, 4, 5, 6] };

    #[test]
    fn a_slot_tells_what_it_came_from() {
        for shape in SHAPES {
            let mut slot = Slot::new(shape, CALL, 7, 0x1000);
            slot.set_limit(9, [8, 7]);
            let bytes = [slot.bytes(), vec![1; 8]].concat();
            assert_eq!(bytes.len() as u64, shape.size() + 8);
            assert_eq!(Slot::read(&bytes), Some(slot.clone()));
            assert_eq!((slot.call(), slot.done(), slot.back()), (CALL, 7, 0x1000));
            assert_eq!(
                (slot.deadline(), slot.done_at(2), slot.done_at(5)),
                (Some(9), Some(7), None)
            );
            let back = Slot::back_at(shape, 0) as usize;
            assert_eq!(bytes[back..back + 8], 0x1000_u64.to_le_bytes());
            let time = slot.time(0) as usize;
            assert_eq!(bytes[time..time + 8], 8_u64.to_le_bytes());
        }
        assert_eq!(Slot::read(&[0; 400]), None);
    }

    #[test]
    fn the_second_call_has_its_own_words() {
        let mut slot = Slot::new(Shape::Two, CALL, 7, 0x1000);
        slot.set_second(30, CALL, Some([9; HEADER]), 0x2000);
        let header = 0x2000 + TWO.len() as u64 + 8 * HEADER_AT as u64;
        assert_eq!(slot.words[SECOND..SECOND + 4], [header, 3, 20, 37]);
        assert_eq!(slot.words[FIRST].wrapping_add(30), 0);
        assert_eq!((slot.done_at(BEHIND_SECOND), slot.words[HEADER_AT]), (Some(37), 9));
    }

    fn instructions(shape: Shape) -> Vec<Instruction> {
        let code = shape.code();
        Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn the_code_reads_its_own_words() {
        for shape in SHAPES {
            let all = instructions(shape);
            let reads = all.iter().filter(|one| one.is_ip_rel_memory_operand());
            let word = |one: &Instruction| {
                let distance = one.memory_displacement64() - shape.code_size();
                assert_eq!(distance % 8, 0);
                (one.op0_register(), distance as usize / 8)
            };
            let found: Vec<_> = reads.map(word).collect();
            let restored = [
                (Register::RCX, DONE),
                (Register::RDI, ARGUMENTS),
                (Register::RSI, ARGUMENTS + 1),
                (Register::RDX, ARGUMENTS + 2),
                (Register::R10, ARGUMENTS + 3),
                (Register::R8, ARGUMENTS + 4),
                (Register::R9, ARGUMENTS + 5),
                (Register::RCX, BACK),
                (Register::None, BACK),
            ];
            let second = [
                (Register::RSI, SECOND),
                (Register::RDX, SECOND + 1),
                (Register::RAX, SECOND + 2),
                (Register::RCX, SECOND_DONE),
            ];
            let expected = match shape {
                Shape::Two => [&[(Register::RCX, FIRST)][..], &restored, &second].concat(),
                _ => restored.to_vec(),
            };
            assert_eq!(found, expected, "{shape:?}");
        }
    }

    #[test]
    fn jumps_lead_to_instructions_and_calls_are_where_they_are_said_to_be() {
        for shape in SHAPES {
            let all = instructions(shape);
            let begins: Vec<u64> = all.iter().map(Instruction::ip).collect();
            let near = all.iter().filter(|one| one.near_branch_target() != 0);
            assert!(
                near.clone().all(|one| begins.contains(&one.near_branch_target())),
                "{shape:?}"
            );
            let calls = all.iter().filter(|one| one.mnemonic() == Mnemonic::Syscall);
            let behind: Vec<u64> = calls.map(Instruction::next_ip).collect();
            let expected = if shape == Shape::Two { &[2, BEHIND_SECOND][..] } else { &[2] };
            assert_eq!(behind, expected);
        }
        let two = instructions(Shape::Two);
        let jump =
            |at: u64| two.iter().find(|one| one.ip() == at).expect("it").near_branch_target();
        assert_eq!((jump(13), jump(143)), (97, 38));
    }
}
