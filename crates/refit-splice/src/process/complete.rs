//! Completes system calls that a stop has cut short or ended. The thread itself completes its call,
//! even if refit is killed.
//!
//! A thread whose call has done only a part of its work is sent to code in a slack of the program
//! ([`super::slots`]). That code makes a call for the rest, and returns to the program with the sum
//! as the result and with the thread's own registers. A call with a time limit that is restarted
//! runs in such a slot, too, with the remaining time: the limit counts from the moment at which the
//! call was first stopped.
//!
//! The thread's program counter is set to the end of the `syscall` instruction of that code, and
//! its `rax` to `ERESTARTNOHAND`. So the kernel makes the call, unless a signal handler runs first;
//! in that case the program's own call appears to have ended with the partial result, or with
//! `EINTR`.
//!
//! A slot is free when no thread's program counter is in it. To finish, the thread needs neither
//! refit nor an area that could be unmapped. Whenever all tasks are stopped, threads in such a call
//! are moved back to the end of the program's own `syscall` ([`Still::take_out`]), so that code
//! which changes bytes sees where they will continue. If a signal handler has interrupted a thread
//! in a slot, the word of the slot that holds the return address is treated as a saved program
//! counter ([`super::find_slots::backs`]).

use std::ops::Range;
use std::time::Duration;

use refit_sys::restart::{self, Behind, Call, ERESTARTNOHAND, Left, LimitedCall, RESTARTS};
use refit_sys::slack;
use refit_sys::trace::Registers;

use super::contexts;
use super::find_slots::slots;
use super::refusal::Refusal;
use super::slots::{SLOTS, SYSCALL, Shape, Slot};
use super::still::{Limited, Still};

/// Space for slots.
struct Places {
    slacks: Vec<Range<u64>>,
    /// Slots that a thread's program counter is in.
    used: Vec<Range<u64>>,
}

impl Places {
    fn of(still: &Still<'_>) -> Result<Self, Refusal> {
        let slacks: Vec<_> = slack::all(&still.program.memory, still.mappings()?).collect();
        let slots = slots(still.program, &slacks);
        let mut used: Vec<_> =
            slots.into_iter().map(|(at, slot)| at..at + slot.shape.size()).collect();
        if let Some(counters) = contexts::counters(still, &used)? {
            used.retain(|range| counters.iter().any(|counter| range.contains(counter)));
        }
        Ok(Self { slacks, used })
    }

    /// Reserves space for a slot; returns its address and that of its slack.
    fn take(&mut self, shape: Shape) -> Option<(u64, u64)> {
        for slack in &self.slacks {
            let mut at = slack.start + SLOTS;
            while at + shape.size() <= slack.end {
                let place = at..at + shape.size();
                let taken = |one: &&Range<u64>| one.start < place.end && place.start < one.end;
                let Some(end) = self.used.iter().filter(taken).map(|one| one.end).max() else {
                    self.used.push(place);
                    return Some((at, slack.start));
                };
                at = end;
            }
        }
        None
    }
}

impl Still<'_> {
    /// Moves every thread that makes the rest of a call in a slot of these slacks back to the end
    /// of the program's own `syscall`.
    pub(super) fn take_out(&mut self, slacks: &[Range<u64>]) -> Result<(), Refusal> {
        let slots = slots(self.program, slacks);
        if slots.is_empty() {
            return Ok(());
        }
        for thread in self.threads().collect::<Vec<_>>() {
            let registers = self.registers(thread)?;
            let within =
                |(at, slot): &&(u64, Slot)| (*at..*at + slot.shape.size()).contains(&registers.rip);
            let Some((at, slot)) = slots.iter().find(within) else { continue };
            let Some(before) = taken_out(&registers, slot, registers.rip - at) else { continue };
            self.set_registers(thread, &before)?;
            if let Some(deadline) = slot.deadline() {
                let limited = Limited { deadline, call: (slot.call(), slot.back()) };
                self.limited.insert(thread, limited);
            }
        }
        Ok(())
    }

    /// Sends every thread whose call the stop has cut short, or ended before its time, to a slot
    /// that continues the call. If there is no space, the thread sees the partial result, as after
    /// a signal, and a time limit starts over.
    pub(super) fn complete(&mut self) {
        let program = self.program;
        let word = |at: u64| program.word(at).ok();
        let all: Vec<_> = self
            .threads()
            .filter_map(|thread| Some((thread, self.registers(thread).ok()?)))
            .filter_map(|(thread, registers)| {
                let rest = restart::left(&registers, word).map(Ok);
                let rest = rest.or_else(|| restart::limit(&registers, word).map(Err))?;
                self.has_returned(&registers).then_some((thread, registers, rest))
            })
            .collect();
        if all.is_empty() {
            return;
        }
        let Ok(mut places) = Places::of(self) else { return };
        for (thread, registers, rest) in all {
            // A thread for which this fails stays as it is.
            let _ = match rest {
                Ok(left) => self.complete_one(&mut places, thread, &registers, left),
                Err(limited) => self.make_again(&mut places, thread, &registers, limited),
            };
        }
    }

    /// Whether a thread is at the end of a system call that has returned, and not at one that is
    /// about to be restarted: before a restart, rax holds the number of the call.
    fn has_returned(&self, registers: &Registers) -> bool {
        let call = |at: u64| {
            let mut code = [0; SYSCALL as usize];
            self.program.read(at, &mut code).is_ok() && code == [0x0f, 0x05]
        };
        let again = registers.rax == registers.orig_rax && call(registers.rip);
        !again && call(registers.rip.wrapping_sub(SYSCALL))
    }

    fn complete_one(
        &self,
        places: &mut Places,
        thread: u32,
        registers: &Registers,
        left: Left,
    ) -> Option<()> {
        let shape = if left.behind.is_some() { Shape::Two } else { Shape::Rest };
        let (at, slack) = places.take(shape)?;
        let mut slot = Slot::new(shape, call_of(registers), left.done, registers.rip);
        if let Some(Behind { after, call, header }) = left.behind {
            slot.set_second(after, call, header, at);
        }
        self.enter(thread, registers, (at, slack), &slot, left.next)
    }

    fn make_again(
        &self,
        places: &mut Places,
        thread: u32,
        registers: &Registers,
        limited: LimitedCall,
    ) -> Option<()> {
        let now = now();
        let call = call_of(registers);
        let known = self.limited.get(&thread).filter(|known| known.call == (call, registers.rip));
        let whole = u64::try_from(limited.whole.as_nanos()).unwrap_or(u64::MAX);
        let deadline = known.map_or(now.saturating_add(whole), |known| known.deadline);
        let remains = Duration::from_nanos(deadline.saturating_sub(now));
        let (at, slack) = places.take(Shape::Again)?;
        let mut slot = Slot::new(Shape::Again, call, 0, registers.rip);
        slot.set_limit(deadline, LimitedCall::timespec(remains));
        let arguments = limited.shortened(&call.arguments, remains, slot.time(at));
        self.enter(thread, registers, (at, slack), &slot, Call { arguments, ..call })
    }

    /// Sends a thread to a slot of a slack, where it makes `call`.
    fn enter(
        &self,
        thread: u32,
        registers: &Registers,
        (at, slack): (u64, u64),
        slot: &Slot,
        call: Call,
    ) -> Option<()> {
        self.program.write(slack, &slack::MARK).ok()?;
        self.program.write(at, &slot.bytes()).ok()?;
        let mut after = *registers;
        after.rip = at + SYSCALL;
        after.orig_rax = call.number;
        after.rax = (-ERESTARTNOHAND).cast_unsigned();
        restart::set_arguments(&mut after, call.arguments);
        self.set_registers(thread, &after).ok()
    }
}

/// Returns the call that precedes the program counter of a thread.
fn call_of(registers: &Registers) -> Call {
    Call { number: registers.orig_rax, arguments: restart::arguments(registers) }
}

/// Returns the registers of a thread at `offset` in a slot, moved back to the end of the program's
/// own call. `None` if its call is over: the thread returns by itself.
fn taken_out(registers: &Registers, slot: &Slot, offset: u64) -> Option<Registers> {
    let rax = answer(registers.rax, slot, offset)?;
    let Call { number, arguments: [rdi, rsi, rdx, r10, r8, r9] } = slot.call();
    let (rip, rcx) = (slot.back(), slot.back());
    Some(Registers { rax, orig_rax: number, rdi, rsi, rdx, r10, r8, r9, rip, rcx, ..*registers })
}

/// Returns the result so far of the program's own call.
fn answer(rax: u64, slot: &Slot, offset: u64) -> Option<u64> {
    let before = slot.done_at(offset)?;
    // At the beginning of the slot the call is about to be restarted.
    let interrupted = offset == 0 || RESTARTS.contains(&rax.cast_signed());
    match (slot.shape, interrupted) {
        (Shape::Again, true) => Some((-ERESTARTNOHAND).cast_unsigned()),
        (Shape::Again, false) => Some(rax),
        (_, true) => Some(before),
        // An error or the end of a file: asking once more could report it to the program twice.
        (_, false) if rax.cast_signed() <= 0 => None,
        (_, false) => Some(before.wrapping_add(rax)),
    }
}

/// Returns the time of the monotonic clock, which all processes of a host share, in nanoseconds.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_stopped_in_a_slot_has_done_what_its_own_call_would_have() {
        let call = Call { number: 20, arguments: [1, 2, 3, 4, 5, 6] };
        let slot = |shape| Slot::new(shape, call, 7, 0x1000);
        let found = |rax: i64, shape, offset| {
            answer(rax.cast_unsigned(), &slot(shape), offset).map(u64::cast_signed)
        };
        assert_eq!(found(30, Shape::Rest, SYSCALL), Some(37));
        assert_eq!(found(-514, Shape::Two, SYSCALL), Some(7));
        assert_eq!(found(20, Shape::Two, 0), Some(7), "its number: it is about to begin");
        assert_eq!(found(-32, Shape::Rest, SYSCALL), None);
        assert_eq!(found(30, Shape::Rest, 25), None, "it is on its way");
        assert_eq!(found(-514, Shape::Again, SYSCALL), Some(-ERESTARTNOHAND));
        assert_eq!(found(-11, Shape::Again, SYSCALL), Some(-11), "that is its result");
    }
}
