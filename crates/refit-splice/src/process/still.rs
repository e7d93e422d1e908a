//! A program whose tasks are all stopped, or stop before they run: their registers and positions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use refit_sys::maps::Mapping;
use refit_sys::process::Waits;
use refit_sys::restart::Call;
use refit_sys::trace::Registers;

use super::held::HeldTask;
use super::own_memory::{self, Wanted};
use super::program::Program;
use super::refusal::Refusal;
use super::searched::Searched;

/// A call with a time limit that an earlier stop has interrupted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited {
    /// End of the limit, in nanoseconds of the monotonic clock.
    pub(super) deadline: u64,
    /// The call, and the address that it returns to.
    pub(super) call: (Call, u64),
}

/// A program none of whose tasks runs its code.
#[derive(Debug)]
pub struct Still<'p> {
    pub(super) program: &'p Program,
    /// Tasks that are stopped, of all processes.
    pub(super) threads: BTreeMap<u32, HeldTask>,
    /// Tasks that wait in the kernel, and stop before they run any code of the program.
    pub(super) asleep: BTreeMap<u32, (HeldTask, Waits)>,
    /// Tasks that are threads of the program itself.
    pub(super) own: BTreeSet<u32>,
    /// Tasks that have ended, or have other memory, since they were found.
    pub(super) ended: BTreeSet<u32>,
    /// Calls with a time limit that an earlier stop has interrupted, by task.
    pub(super) limited: BTreeMap<u32, Limited>,
    pub(super) began: Instant,
    /// Whether a thread runs in a handler that may have the context of another one in registers.
    pub(super) is_switching: bool,
    /// Its mappings, once they have been read; a call may change them.
    pub(super) mappings: OnceLock<Vec<Mapping>>,
    /// Where the program counters to which signal handlers return are saved, once that has been
    /// searched for.
    pub(super) frames: OnceLock<Vec<u64>>,
    /// The result of a search before the stop.
    pub(super) searched: Option<Arc<Searched>>,
    /// All that was found by it and since, once it has been completed.
    pub(super) found: OnceLock<Option<Vec<(u64, u64)>>>,
}

impl<'p> Still<'p> {
    /// Returns a program of which no task has been stopped yet.
    pub(super) fn empty(program: &'p Program, began: Instant) -> Self {
        Self {
            program,
            threads: BTreeMap::new(),
            asleep: BTreeMap::new(),
            own: BTreeSet::new(),
            ended: BTreeSet::new(),
            limited: BTreeMap::new(),
            began,
            is_switching: false,
            mappings: OnceLock::new(),
            frames: OnceLock::new(),
            searched: None,
            found: OnceLock::new(),
        }
    }

    /// Returns the program.
    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// Whether a thread runs in a signal handler in which the program may be switching threads, so
    /// that a program counter may be where no search finds it ([`contexts`](super::contexts)).
    pub(crate) fn is_switching(&self) -> bool {
        self.is_switching
    }

    /// Returns the threads that are stopped.
    pub fn threads(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads.keys().copied()
    }

    /// Returns the stopped threads that belong to the program itself.
    pub(super) fn own(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads().filter(|thread| self.own.contains(thread))
    }

    /// Returns the threads that wait in the kernel where no signal reaches them, and the positions
    /// at which they will continue.
    pub fn asleep(&self) -> impl Iterator<Item = (u32, Waits)> + '_ {
        self.asleep.iter().map(|(&thread, &(_, waits))| (thread, waits))
    }

    /// Returns its present mappings, by address, which are read once between two calls.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub(crate) fn mappings(&self) -> Result<&[Mapping], Refusal> {
        match self.mappings.get() {
            Some(mappings) => Ok(mappings),
            None => {
                let mappings = self.program.mappings()?;
                Ok(self.mappings.get_or_init(|| mappings))
            }
        }
    }

    /// Returns the wanted words of the program's memory, with their addresses; `None` if there is
    /// too much memory to search. What was searched before the stop is not searched again.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended.
    pub(crate) fn words(&self, wanted: Wanted<'_>) -> Result<Option<Vec<(u64, u64)>>, Refusal> {
        let mappings = self.mappings()?;
        let searched = self.searched.as_ref().filter(|searched| searched.covers(wanted));
        let found = searched.and_then(|searched| {
            self.found.get_or_init(|| searched.complete(self.program, mappings)).as_ref()
        });
        if let Some(found) = found {
            let found = found.iter().filter(|(_, word)| wanted.has(*word));
            // They may have changed since they were found.
            let is_there = |&&(at, word): &&(u64, u64)| self.program.word(at).ok() == Some(word);
            return Ok(Some(found.filter(is_there).copied().collect()));
        }
        let pages = own_memory::written(self.program.face(), mappings);
        Ok(pages.map(|pages| own_memory::search(self.program, &pages, wanted)))
    }

    /// Returns program counters and stack pointers of all tasks.
    ///
    /// # Errors
    /// [`Refusal`]: a task was killed.
    pub fn positions(&self) -> Result<Vec<(u64, u64)>, Refusal> {
        let asleep = self.asleep.values().map(|(_, waits)| Ok((waits.counter, waits.stack)));
        let held = self.threads().map(|thread| {
            let registers = self.registers(thread)?;
            Ok((registers.rip, registers.rsp))
        });
        held.chain(asleep).collect()
    }

    /// Returns tasks whose thread areas are laid out like those of all others: not those that
    /// borrow the memory of a thread that waits for them.
    fn settled(&self) -> impl Iterator<Item = (u32, &HeldTask)> {
        let lent = !self.asleep.is_empty();
        let all = self.threads.iter().map(|(&thread, held)| (thread, held));
        all.filter(move |(thread, _)| !lent || self.own.contains(thread))
    }

    /// Returns the general registers of a thread.
    ///
    /// # Errors
    /// [`Refusal`]: the thread was killed.
    pub fn registers(&self, thread: u32) -> Result<Registers, Refusal> {
        self.held(thread)?.registers().map_err(|error| self.lost("read registers", error))
    }

    /// Returns the words in the vector registers of a thread; `None` if they are not known.
    pub(crate) fn vectors(&self, thread: u32) -> Option<Vec<u64>> {
        self.threads.get(&thread)?.vectors().ok()
    }

    /// Sets the general registers of a thread.
    ///
    /// # Errors
    /// [`Refusal`]: the thread was killed.
    pub fn set_registers(&self, thread: u32, registers: &Registers) -> Result<(), Refusal> {
        let held = self.held(thread)?;
        held.set_registers(registers).map_err(|error| self.lost("set registers", error))
    }

    /// Returns the offset of the restartable-sequence area from the thread pointer, and the
    /// signature of sequences; `None` if threads have none, or different ones.
    pub fn rseq(&self) -> Option<(i32, u32)> {
        let areas = self.settled().map(|(_, held)| {
            let (area, signature) = held.rseq().ok().flatten()?;
            let registers = held.registers().ok()?;
            let offset = area.cast_signed().wrapping_sub(registers.fs_base.cast_signed());
            Some((i32::try_from(offset).ok()?, signature))
        });
        let mut areas: Vec<_> = areas.collect();
        areas.dedup();
        if let [area] = areas[..] { area } else { None }
    }

    /// Returns the offset, from the thread pointer, at which the C library keeps the id of each
    /// thread; `None` if it is unknown: another library, or a program that has just started.
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

    pub(super) fn held(&self, thread: u32) -> Result<&HeldTask, Refusal> {
        self.threads.get(&thread).ok_or(Refusal::NoSuch { id: self.program.id() })
    }

    fn lost(&self, what: &'static str, error: io::Error) -> Refusal {
        Refusal::of_tracing(self.program.id(), what, error)
    }
}

/// Offset of `tid` in glibc's `struct pthread` (after `tcbhead_t` and a list's node), and in
/// musl's.
const KEPT_AT: [i32; 2] = [0x2d0, 0x30];

/// Returns the general registers, but for the stack pointer.
pub(crate) fn general(registers: &Registers) -> [u64; 15] {
    let r = registers;
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ]
}
