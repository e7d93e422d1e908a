//! Where a thread of a program stays while its instructions are run elsewhere: it makes the system calls that are left for it.
//!
//! ```text
//!   whoever runs the thread's instructions          the thread, in the code here
//!     call: number, arguments ──► slot (CALL) ──────► makes the call, with its own descriptors, signals and number
//!     result ◄─────────────────── slot (DONE) ◄────── puts what it returns there
//! ```
//!
//! The code uses no stack and none of the program's memory but a [`Slot`] of [`SLOT`] bytes, which both sides have mapped shared. A
//! thread that is stopped there stands in one of three places ([`Place`]), so that whoever takes it out again knows what has become of the
//! call. Once `DONE` is stored the call may have been answered, and the next one asked for, while the thread is still on its way back to
//! the beginning: from there on it stands before a call. One that was begun outside goes on here ([`enter_in_call`]), with what the
//! kernel keeps of it: the time that is left of a `nanosleep` is not lost.
//!
//! Orderings: the code's loads and stores are the processor's own (total store order), and a store of the state follows what it
//! speaks of, on both sides; [`Slot::ask`]'s Release store pairs with the code's load of the state, the code's store of `DONE` with the
//! Acquire load in [`Slot::answer`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::futex;
use crate::trace::Registers;

/// Bytes of a slot.
pub const SLOT: usize = WORDS * 8;
/// Words of a slot.
pub const WORDS: usize = 16;

const STATE: usize = 0;
const NUMBER: usize = 1;
const ARGUMENTS: usize = 2;
const RESULT: usize = 8;
const STACK: usize = 9;
/// Counts what whoever waits for an answer has to look at.
const BELL: usize = 10;

const IDLE: u64 = 0;
const CALL: u64 = 1;
const DONE: u64 = 2;

// `syscall` leaves all registers as they are but rax, rcx and r11.
std::arch::global_asm!(
    ".pushsection .rodata.refit_park, \"a\", @progbits",
    ".globl refit_park_code",
    ".hidden refit_park_code",
    ".globl refit_park_call",
    ".hidden refit_park_call",
    ".globl refit_park_told",
    ".hidden refit_park_told",
    ".globl refit_park_rest",
    ".hidden refit_park_rest",
    ".globl refit_park_end",
    ".hidden refit_park_end",
    "refit_park_code:",
    "2:  mov edx, [r12]",
    "    cmp edx, 1", // CALL
    "    je 3f",
    "    mov rdi, r12", // futex(state, FUTEX_WAIT, what it was, for ever)
    "    xor esi, esi",
    "    xor r10d, r10d",
    "    mov eax, 202",
    "    syscall",
    "    jmp 2b",
    "3:  mov rsp, [r12 + 72]",
    "    mov rdi, [r12 + 16]",
    "    mov rsi, [r12 + 24]",
    "    mov rdx, [r12 + 32]",
    "    mov r10, [r12 + 40]",
    "    mov r8, [r12 + 48]",
    "    mov r9, [r12 + 56]",
    "    mov rax, [r12 + 8]",
    "    syscall",
    "refit_park_call:",
    "    mov [r12 + 64], rax",
    "    mov qword ptr [r12], 2", // DONE
    "refit_park_told:",
    "    lock inc dword ptr [r12 + 80]",
    "    lea rdi, [r12 + 80]", // futex(wakeup, FUTEX_WAKE, all)
    "    mov esi, 1",
    "    mov edx, 0x7fffffff",
    "    mov eax, 202",
    "    syscall",
    "    jmp 2b",
    // Where a thread that is nobody's waits: pause(2).
    "refit_park_rest:",
    "4:  mov eax, 34",
    "    syscall",
    "    jmp 4b",
    "refit_park_end:",
    ".popsection",
);

/// Bytes of a `syscall` instruction.
const INSTRUCTION: u64 = 2;
/// Bytes of the instruction before it at the place of rest.
const LOAD: u64 = 5;

fn marks() -> [*const u8; 5] {
    unsafe extern "C" {
        static refit_park_code: u8;
        static refit_park_call: u8;
        static refit_park_told: u8;
        static refit_park_rest: u8;
        static refit_park_end: u8;
    }
    [
        &raw const refit_park_code,
        &raw const refit_park_call,
        &raw const refit_park_told,
        &raw const refit_park_rest,
        &raw const refit_park_end,
    ]
}

/// The machine code, to be put anywhere.
pub fn code() -> &'static [u8] {
    let [begin, .., end] = marks();
    // SAFETY: the bytes between the two marks are constants of this program.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// Where in the code a call has just been made.
fn after_call() -> u64 {
    let [begin, call, ..] = marks();
    (call.addr() - begin.addr()) as u64
}

/// Where in the code it has just been said that the call was made.
fn after_told() -> u64 {
    let [begin, _, told, ..] = marks();
    (told.addr() - begin.addr()) as u64
}

/// Where in the code a thread that waits for nothing begins.
pub fn rest() -> u64 {
    let [begin, _, _, rest, _] = marks();
    (rest.addr() - begin.addr()) as u64
}

/// A `syscall` instruction in the code, for [`crate::trace::Tracee::call`].
pub fn instruction() -> u64 {
    rest() + LOAD
}

/// Has a thread wait for calls in a slot that is at `slot` in its memory; the code is at `code`.
pub fn enter(registers: &mut Registers, code: u64, slot: u64) {
    registers.rip = code;
    registers.r12 = slot;
    registers.orig_rax = u64::MAX;
    // A string instruction may be half done.
    registers.eflags &= !(1 << 10);
}

/// As [`enter`], of a thread that stands in a system call, whose result comes to the slot.
pub fn enter_in_call(registers: &mut Registers, code: u64, slot: u64) {
    registers.rip = code + after_call();
    registers.r12 = slot;
    registers.eflags &= !(1 << 10);
}

/// What has become of the call that a slot asks for, by where the thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has not been begun, unless the slot says that it was made.
    Before,
    /// The thread is back from it, or was interrupted in it: its registers say how.
    At,
    /// Its result is in the slot, which does not say so yet.
    Behind,
    /// The thread is somewhere else.
    Outside,
}

/// Where a thread stands that has entered the code at `code`.
pub fn place(registers: &Registers, code: u64) -> Place {
    let Some(offset) = registers.rip.checked_sub(code) else { return Place::Outside };
    let call = after_call();
    match offset {
        _ if offset == call => Place::At,
        _ if offset > call && offset < after_told() => Place::Behind,
        _ if offset < rest() => Place::Before,
        _ => Place::Outside,
    }
}

/// Steps back to the `syscall` instruction that the registers stand behind.
pub fn step_back(registers: &mut Registers, number: u64) {
    registers.rip -= INSTRUCTION;
    registers.rax = number;
    registers.orig_rax = u64::MAX;
}

/// Steps over the `syscall` instruction that the registers stand before, as if the call had returned this.
pub fn step_over(registers: &mut Registers, value: i64) {
    registers.rip += INSTRUCTION;
    registers.rax = value.cast_unsigned();
    registers.orig_rax = u64::MAX;
}

/// What two sides speak over, one of which is a thread in the code here.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    words: &'static [AtomicU64],
}

impl Slot {
    /// The slot with this number in memory that both have; `None`: there are not so many.
    pub fn at(words: &'static [AtomicU64], number: usize) -> Option<Self> {
        words.get(number * WORDS..(number + 1) * WORDS).map(|words| Self { words })
    }

    /// Nothing is asked for.
    pub fn clear(&self) {
        // Whoever clears it has stopped the thread, or has not let it in yet.
        self.words[STATE].store(IDLE, Ordering::Release);
    }

    /// A call is under way already that the thread has brought with it.
    pub fn under_way(&self, number: u64) {
        self.words[NUMBER].store(number, Ordering::Relaxed);
        self.words[STATE].store(CALL, Ordering::Release);
    }

    /// Asks for a call; `stack` is the stack pointer it is made with.
    pub fn ask(&self, number: u64, arguments: [u64; 6], stack: u64) {
        // Relaxed: published by the state.
        self.words[NUMBER].store(number, Ordering::Relaxed);
        for (word, argument) in self.words[ARGUMENTS..].iter().zip(arguments) {
            word.store(argument, Ordering::Relaxed);
        }
        self.words[STACK].store(stack, Ordering::Relaxed);
        // Pairs with the code's load of the state.
        self.words[STATE].store(CALL, Ordering::Release);
        futex::wake(&self.words[STATE]);
    }

    /// What the call has returned, once it has; nothing is asked for then.
    pub fn answer(&self) -> Option<u64> {
        // Pairs with the code's store of `DONE`.
        if self.words[STATE].load(Ordering::Acquire) != DONE {
            return None;
        }
        let result = self.result();
        self.clear();
        Some(result)
    }

    /// What the last call has returned.
    pub fn result(&self) -> u64 {
        self.words[RESULT].load(Ordering::Relaxed)
    }

    /// How often something has happened that whoever waits for an answer has to look at.
    pub fn wakeup(&self) -> u32 {
        // Pairs with the code's increment, which follows its store of `DONE`, and with that of `ring`.
        self.words[BELL].load(Ordering::Acquire) as u32
    }

    /// Waits until something has happened since the wakeup word was at `heard`, or for so long; or for no reason.
    pub fn wait(&self, heard: u32, limit: Duration) {
        futex::wait(&self.words[BELL], heard, limit);
    }

    /// Has who waits look again.
    pub fn ring(&self) {
        // Its low half only, as the code does: a carry would not be seen.
        self.words[BELL].fetch_add(1, Ordering::Release);
        futex::wake(&self.words[BELL]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        // SAFETY: all zeros are a value of this plain structure of integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        enter(&mut registers, 0x1000, 0x9000);
        assert_eq!(place(&registers, 0x1000), Place::Before);
        enter_in_call(&mut registers, 0x1000, 0x9000);
        assert_eq!(place(&registers, 0x1000), Place::At);
        registers.rip += 5;
        assert_eq!(place(&registers, 0x1000), Place::Behind);
        // That call may have been answered, and the next one be there.
        registers.rip = 0x1000 + after_told();
        assert_eq!(place(&registers, 0x1000), Place::Before);
        registers.rip = 0x1000 + rest();
        assert_eq!(place(&registers, 0x1000), Place::Outside);
    }

    #[test]
    fn system_calls_are_where_they_are_said_to_be() {
        let pair = |at: u64| &code()[at as usize..at as usize + 2];
        assert_eq!(pair(instruction()), [0x0f, 0x05]);
        assert_eq!(pair(after_call() - INSTRUCTION), [0x0f, 0x05]);
        assert_eq!(&code()[code().len() - 2..][..1], [0xeb]);
    }
}
