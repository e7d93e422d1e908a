//! System calls made in a program that stands still, by one of its threads, at a `syscall` instruction of its own.
//!
//! The thread's registers and blocked signals are as before afterwards, the interrupted call it may have been in
//! included: the kernel decides whether to make it again by the registers that it finds when the thread goes on.

use std::io;

use super::still::{STEPPING, step_once};
use super::{Refusal, Still};

/// Makes system calls in a program that stands still.
#[derive(Debug)]
pub struct Call {
    thread: u32,
    instruction: u64,
}

impl Call {
    /// A way to make calls: a thread and an instruction for it.
    ///
    /// # Errors
    /// [`Refusal::NoSyscall`] where the program's code holds none.
    pub fn new(still: &Still<'_>) -> Result<Self, Refusal> {
        let id = still.program.id();
        let thread = still.threads().next().ok_or(Refusal::NoSuch { id })?;
        let mut code = still.program.mappings()?;
        code.retain(|mapping| mapping.executable && mapping.readable);
        // The vDSO is small and has one always.
        code.sort_by_key(|mapping| mapping.name.as_os_str() != "[vdso]");
        let found = code.iter().find_map(|mapping| {
            let length = usize::try_from(mapping.range.end - mapping.range.start).ok()?;
            let mut bytes = vec![0; length.min(1 << 22)];
            still.program.read(mapping.range.start, &mut bytes).ok()?;
            let at = bytes.windows(2).position(|pair| pair == [0x0f, 0x05])?;
            Some(mapping.range.start + at as u64)
        });
        let instruction = found.ok_or(Refusal::NoSyscall { id })?;
        Ok(Self { thread, instruction })
    }

    /// Makes one call: `name` for reports, its number and arguments. Returns what it returns.
    ///
    /// # Errors
    /// [`Refusal::Call`]: what the call itself says. Others: the program was killed.
    pub fn make(
        &self,
        still: &mut Still<'_>,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, Refusal> {
        let id = still.program.id();
        let held = still.threads.get_mut(&self.thread).ok_or(Refusal::NoSuch { id })?;
        let lost = |error| Refusal::of_tracing(id, "make a call in it", error);
        let before = held.registers().map_err(lost)?;
        let mask = held.signal_mask().map_err(lost)?;
        held.set_signal_mask(STEPPING).map_err(lost)?;
        let mut registers = before;
        registers.rip = self.instruction;
        registers.rax = number.cast_unsigned();
        // None was interrupted: the kernel must not step back to make it again.
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
            arguments;
        held.set_registers(&registers).map_err(lost)?;
        let stepped = step_once(held);
        let answer = held.registers();
        held.set_registers(&before).map_err(lost)?;
        held.set_signal_mask(mask).map_err(lost)?;
        stepped.map_err(lost)?;
        let answer = answer.map_err(lost)?.rax.cast_signed();
        match answer {
            -4095..=-1 => {
                let source = io::Error::from_raw_os_error(-(answer as i32));
                Err(Refusal::Call { id, call: name, source })
            }
            _ => Ok(answer.cast_unsigned()),
        }
    }

    /// Makes a call whose first or second argument is a text: the text stands below the thread's stack for as long.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_with_text(
        &self,
        still: &mut Still<'_>,
        name: &'static str,
        number: i64,
        text: &std::ffi::CStr,
        arguments: impl FnOnce(u64) -> [u64; 6],
    ) -> Result<u64, Refusal> {
        let mut bytes = text.to_bytes_with_nul().to_vec();
        self.make_with(still, name, number, |_| {}, &mut bytes, arguments)
    }

    /// Makes a call that reads or writes `bytes`, which stand below the thread's stack for as long; `place` is told where, before
    /// they are put there, and so are the arguments.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub(super) fn make_with(
        &self,
        still: &mut Still<'_>,
        name: &'static str,
        number: i64,
        fill: impl FnOnce((u64, &mut [u8])),
        bytes: &mut [u8],
        arguments: impl FnOnce(u64) -> [u64; 6],
    ) -> Result<u64, Refusal> {
        let program = still.program;
        let failed =
            |source| Refusal::System { id: program.id(), what: "write below its stack", source };
        // Clear of the red zone, and of what a leaf without one may have in mind.
        let place = (still.registers(self.thread)?.rsp - 1024 - bytes.len() as u64) & !15;
        fill((place, bytes));
        let mut before = vec![0; bytes.len()];
        program.read(place, &mut before).map_err(failed)?;
        program.write(place, bytes).map_err(failed)?;
        let answer = self.make(still, name, number, arguments(place));
        let read = program.read(place, bytes).map_err(failed);
        program.write(place, &before).map_err(failed)?;
        read?;
        answer
    }
}
