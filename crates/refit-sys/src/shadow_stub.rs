//! The shadow stub: code in which a thread of a program waits while its instructions run elsewhere,
//! and makes the system calls that are forwarded to it.
//!
//! ```text
//!   thread's executor                             the thread, in this code
//!     call: number, arguments ──► slot (CALL) ──► makes the call with its descriptors and signals
//!     result ◄─────────────────── slot (DONE) ◄── stores the result there
//! ```
//!
//! The code uses no stack, and no memory of the program except a [`Slot`] of [`SLOT`] bytes, which
//! both sides map shared. A thread that is stopped in the code is in one of three places
//! ([`Place`]), so refit knows the state of the call when it takes the thread out again. Once
//! `DONE` is stored, the executor may have read the result and requested the next call while the
//! thread is still on its way back to the beginning; from that store on, the thread counts as
//! before a call. A call that began outside continues here ([`enter_in_call`]), with the state that
//! the kernel keeps of it: the remaining time of a `nanosleep` is not lost.
//!
//! Memory orderings: the code's loads and stores are the processor's own (total store order), and
//! on both sides the store of the state follows the stores that it announces. The Release store in
//! [`Slot::ask`] pairs with the code's load of the state, and the code's store of `DONE` with the
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
/// Incremented at each event that a waiter for an answer has to look at.
const WAKEUP: usize = 10;

const IDLE: u64 = 0;
const CALL: u64 = 1;
const DONE: u64 = 2;

// `syscall` preserves all registers but rax, rcx and r11.
std::arch::global_asm!(
    ".pushsection .rodata.refit_shadow_stub, \"a\", @progbits",
    ".globl refit_shadow_stub_code",
    ".hidden refit_shadow_stub_code",
    ".globl refit_shadow_stub_call",
    ".hidden refit_shadow_stub_call",
    ".globl refit_shadow_stub_told",
    ".hidden refit_shadow_stub_told",
    ".globl refit_shadow_stub_rest",
    ".hidden refit_shadow_stub_rest",
    ".globl refit_shadow_stub_end",
    ".hidden refit_shadow_stub_end",
    "refit_shadow_stub_code:",
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
    "refit_shadow_stub_call:",
    "    mov [r12 + 64], rax",
    "    mov qword ptr [r12], 2", // DONE
    "refit_shadow_stub_told:",
    "    lock inc dword ptr [r12 + 80]",
    "    lea rdi, [r12 + 80]", // futex(wakeup, FUTEX_WAKE, all)
    "    mov esi, 1",
    "    mov edx, 0x7fffffff",
    "    mov eax, 202",
    "    syscall",
    "    jmp 2b",
    // A thread without an executor waits here, in pause(2).
    "refit_shadow_stub_rest:",
    "4:  mov eax, 34",
    "    syscall",
    "    jmp 4b",
    "refit_shadow_stub_end:",
    ".popsection",
);

/// Bytes of a `syscall` instruction.
const INSTRUCTION: u64 = 2;
/// Bytes of the instruction before it at the place of rest.
const LOAD: u64 = 5;

fn marks() -> [*const u8; 5] {
    unsafe extern "C" {
        static refit_shadow_stub_code: u8;
        static refit_shadow_stub_call: u8;
        static refit_shadow_stub_told: u8;
        static refit_shadow_stub_rest: u8;
        static refit_shadow_stub_end: u8;
    }
    [
        &raw const refit_shadow_stub_code,
        &raw const refit_shadow_stub_call,
        &raw const refit_shadow_stub_told,
        &raw const refit_shadow_stub_rest,
        &raw const refit_shadow_stub_end,
    ]
}

/// Returns the machine code, which is position-independent.
pub fn code() -> &'static [u8] {
    let [begin, .., end] = marks();
    // SAFETY: the bytes between the two marks are constants of this program.
    unsafe { std::slice::from_raw_parts(begin, end.addr() - begin.addr()) }
}

/// Returns the offset in the code right after the call.
fn after_call() -> u64 {
    let [begin, call, ..] = marks();
    (call.addr() - begin.addr()) as u64
}

/// Returns the offset in the code right after the store of `DONE`.
fn after_told() -> u64 {
    let [begin, _, told, ..] = marks();
    (told.addr() - begin.addr()) as u64
}

/// Returns the offset in the code at which a thread without an executor begins to wait.
pub fn rest() -> u64 {
    let [begin, _, _, rest, _] = marks();
    (rest.addr() - begin.addr()) as u64
}

/// Returns the offset of a `syscall` instruction in the code, for [`crate::trace::Tracee::call`].
pub fn instruction() -> u64 {
    rest() + LOAD
}

/// Sets the registers of a thread so that it waits for calls in the slot at `slot` in its memory;
/// the code is at `code`.
pub fn enter(registers: &mut Registers, code: u64, slot: u64) {
    registers.rip = code;
    registers.r12 = slot;
    registers.orig_rax = u64::MAX;
    // The direction flag may be set if a string instruction was interrupted.
    registers.eflags &= !(1 << 10);
}

/// As [`enter`], for a thread that is in a system call, whose result is stored in the slot.
pub fn enter_in_call(registers: &mut Registers, code: u64, slot: u64) {
    registers.rip = code + after_call();
    registers.r12 = slot;
    registers.eflags &= !(1 << 10);
}

/// The state of the call that a slot asks for, by the place of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The call has not begun, unless the slot says that it is done.
    Before,
    /// The thread has returned from the call, or was interrupted in it, as its registers show.
    At,
    /// The result is in the slot, whose state does not show that yet.
    Behind,
    /// The thread is not in this code.
    Outside,
}

/// Returns the place of a thread that has entered the code at `code`.
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

/// Moves the registers from the end of a `syscall` instruction back to its beginning.
pub fn step_back(registers: &mut Registers, number: u64) {
    registers.rip -= INSTRUCTION;
    registers.rax = number;
    registers.orig_rax = u64::MAX;
}

/// Moves the registers over the `syscall` instruction that they are at, as if the call had returned
/// `value`.
pub fn step_over(registers: &mut Registers, value: i64) {
    registers.rip += INSTRUCTION;
    registers.rax = value.cast_unsigned();
    registers.orig_rax = u64::MAX;
}

/// The memory by which two sides communicate, one of which is a thread in this code.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    words: &'static [AtomicU64],
}

impl Slot {
    /// Returns the slot with this number in shared memory; `None` if there are fewer slots.
    pub fn at(words: &'static [AtomicU64], number: usize) -> Option<Self> {
        words.get(number * WORDS..(number + 1) * WORDS).map(|words| Self { words })
    }

    /// Resets the slot: no call is asked for.
    pub fn clear(&self) {
        // The caller has stopped the thread, or has not let it in yet.
        self.words[STATE].store(IDLE, Ordering::Release);
    }

    /// Marks a call as in progress that the thread was in when it entered.
    pub fn under_way(&self, number: u64) {
        self.words[NUMBER].store(number, Ordering::Relaxed);
        self.words[STATE].store(CALL, Ordering::Release);
    }

    /// Asks for a call, which is made with `stack` as the stack pointer.
    pub fn ask(&self, number: u64, arguments: [u64; 6], stack: u64) {
        // Relaxed: published by the store of the state.
        self.words[NUMBER].store(number, Ordering::Relaxed);
        for (word, argument) in self.words[ARGUMENTS..].iter().zip(arguments) {
            word.store(argument, Ordering::Relaxed);
        }
        self.words[STACK].store(stack, Ordering::Relaxed);
        // Pairs with the code's load of the state.
        self.words[STATE].store(CALL, Ordering::Release);
        futex::wake(&self.words[STATE]);
    }

    /// Returns the result of the call once it is done, and resets the slot.
    pub fn answer(&self) -> Option<u64> {
        // Pairs with the code's store of `DONE`.
        if self.words[STATE].load(Ordering::Acquire) != DONE {
            return None;
        }
        let result = self.result();
        self.clear();
        Some(result)
    }

    /// Returns the result of the last call.
    pub fn result(&self) -> u64 {
        self.words[RESULT].load(Ordering::Relaxed)
    }

    /// Returns the count of events that a waiter for an answer has to look at.
    pub fn wakeup(&self) -> u32 {
        // Pairs with the code's increment, which follows its store of `DONE`, and with the one in
        // `ring`.
        self.words[WAKEUP].load(Ordering::Acquire) as u32
    }

    /// Waits until an event has happened since the wakeup word was `heard`, but no longer than
    /// `limit`. May return spuriously.
    pub fn wait(&self, heard: u32, limit: Duration) {
        futex::wait(&self.words[WAKEUP], heard, limit);
    }

    /// Makes a waiter look again.
    pub fn ring(&self) {
        // The low half only, as in the code: a carry would not be seen.
        self.words[WAKEUP].fetch_add(1, Ordering::Release);
        futex::wake(&self.words[WAKEUP]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        // SAFETY: all zeros are a valid value of this plain structure of integers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        enter(&mut registers, 0x1000, 0x9000);
        assert_eq!(place(&registers, 0x1000), Place::Before);
        enter_in_call(&mut registers, 0x1000, 0x9000);
        assert_eq!(place(&registers, 0x1000), Place::At);
        registers.rip += 5;
        assert_eq!(place(&registers, 0x1000), Place::Behind);
        // That call may have been answered, and the next one requested.
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
