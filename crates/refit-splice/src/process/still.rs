//! A program of which no task runs: where its tasks stand, and their registers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use refit_sys::process::Waits;
use refit_sys::restart::Call;
use refit_sys::trace::{Registers, Tracee};

use super::program::Program;
use super::refusal::Refusal;

/// A call with a time limit that a stop has interrupted before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited {
    /// When it is over, in nanoseconds of the monotonic clock.
    pub(super) deadline: u64,
    /// The call, and where it goes back to.
    pub(super) call: (Call, u64),
}

/// A program of which no task runs.
#[derive(Debug)]
pub struct Still<'p> {
    pub(super) program: &'p Program,
    /// Tasks that are stopped, of all processes.
    pub(super) threads: BTreeMap<u32, Tracee>,
    /// Tasks that wait in the kernel and stop before they run anything.
    pub(super) asleep: BTreeMap<u32, (Tracee, Waits)>,
    /// Which of all are threads of the program itself.
    pub(super) own: BTreeSet<u32>,
    /// Tasks that ran something else, or ended, since they were found.
    pub(super) gone: BTreeSet<u32>,
    /// Calls with a time limit that an earlier stop has interrupted, by task.
    pub(super) limited: BTreeMap<u32, Limited>,
    pub(super) began: Instant,
}

impl<'p> Still<'p> {
    /// The program that stands still.
    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// The threads that are held.
    pub fn threads(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads.keys().copied()
    }

    /// Those of them that are threads of the program itself.
    pub(super) fn own(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads().filter(|thread| self.own.contains(thread))
    }

    /// Threads that wait in the kernel where nothing reaches them, and where they go on.
    pub fn asleep(&self) -> impl Iterator<Item = (u32, Waits)> + '_ {
        self.asleep.iter().map(|(&thread, &(_, waits))| (thread, waits))
    }

    /// Program counters and stack pointers of all tasks.
    ///
    /// # Errors
    /// [`Refusal`]: one was killed.
    pub fn positions(&self) -> Result<Vec<(u64, u64)>, Refusal> {
        let asleep = self.asleep.values().map(|(_, waits)| Ok((waits.counter, waits.stack)));
        let held = self.threads().map(|thread| {
            let registers = self.registers(thread)?;
            Ok((registers.rip, registers.rsp))
        });
        held.chain(asleep).collect()
    }

    /// Tasks whose thread areas tell where things are in all: not those that borrow the memory of a thread that waits for them.
    fn settled(&self) -> impl Iterator<Item = (u32, &Tracee)> {
        let lent = !self.asleep.is_empty();
        let all = self.threads.iter().map(|(&thread, held)| (thread, held));
        all.filter(move |(thread, _)| !lent || self.own.contains(thread))
    }

    /// The general registers of a thread.
    ///
    /// # Errors
    /// [`Refusal`]: it was killed.
    pub fn registers(&self, thread: u32) -> Result<Registers, Refusal> {
        self.held(thread)?.registers().map_err(|error| self.lost("read registers", error))
    }

    /// Sets the general registers of a thread.
    ///
    /// # Errors
    /// [`Refusal`]: it was killed.
    pub fn set_registers(&self, thread: u32, registers: &Registers) -> Result<(), Refusal> {
        let held = self.held(thread)?;
        held.set_registers(registers).map_err(|error| self.lost("set registers", error))
    }

    /// Where the restartable-sequence area of its threads is, relative to their thread pointers; `None` where
    /// they have none, or not all at the same place.
    pub fn rseq_offset(&self) -> Option<i32> {
        let offsets = self.settled().map(|(_, held)| {
            let area = held.rseq().ok().flatten()?;
            let registers = held.registers().ok()?;
            i32::try_from(area.cast_signed().wrapping_sub(registers.fs_base.cast_signed())).ok()
        });
        let mut offsets: Vec<_> = offsets.collect();
        offsets.dedup();
        if let [offset] = offsets[..] { offset } else { None }
    }

    /// Where the C library keeps the number of each thread, relative to its thread pointer; `None` where that cannot be told:
    /// another library, or a program that has only begun.
    pub fn thread_offset(&self) -> Option<i32> {
        KEPT_AT.into_iter().find(|&offset| {
            self.settled().all(|(thread, held)| {
                let base = held.registers().map_or(0, |registers| registers.fs_base);
                let mut number = [0; 4];
                let at = base.wrapping_add(offset as u64);
                base != 0
                    && self.program.read(at, &mut number).is_ok()
                    && u32::from_le_bytes(number) == thread
            })
        })
    }

    pub(super) fn held(&self, thread: u32) -> Result<&Tracee, Refusal> {
        self.threads.get(&thread).ok_or(Refusal::NoSuch { id: self.program.id() })
    }

    fn lost(&self, what: &'static str, error: io::Error) -> Refusal {
        Refusal::of_tracing(self.program.id(), what, error)
    }
}

/// `tid` of glibc's `struct pthread` (behind `tcbhead_t` and a list's node), and of musl's.
const KEPT_AT: [i32; 2] = [0x2d0, 0x30];
