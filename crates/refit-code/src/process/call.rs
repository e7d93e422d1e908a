//! System calls made in a program that stands still, by one of its threads ([`refit_sys::trace::Held::call`]).

use refit_sys::trace::{CallError, find_syscall};

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
        let found = find_syscall(&still.program.memory, &still.program.mappings()?);
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
        held.call(self.instruction, number, arguments).map_err(|error| match error {
            CallError::Call(source) => Refusal::Call { id, call: name, source },
            CallError::Lost(error) => Refusal::of_tracing(id, "make a call in it", error),
        })
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
