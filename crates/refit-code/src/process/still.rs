//! All threads of a program held still at once, for a time that is measured.
//!
//! Threads are made by threads: once every listed one is held and the list has not grown, nobody is left who could make
//! another. The list is read anew until that is so.
//!
//! The work is done on a thread of its own, whose end lets everything go that it has traced, whatever state it is in:
//! there is no other way to let go of a thread that does not stop.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use refit_sys::process::threads;
use refit_sys::trace::{Held, Registers, Stop};

use super::{Program, Refusal};

/// A program none of whose threads runs.
#[derive(Debug)]
pub struct Still<'p> {
    pub(super) program: &'p Program,
    pub(super) threads: BTreeMap<u32, Held>,
    began: Instant,
}

impl Program {
    /// Holds all threads still, does `work`, and lets them go on. Returns what `work` says, and for how long nobody ran.
    ///
    /// A thread that does not stop holds the others up, so it is waited for in turns, each twice as long as the one before, with as long a
    /// pause between them in which all run; `within` is the time for all turns together.
    ///
    /// A call that waits (`epoll_wait`, a read with a time limit) is made again where the kernel would have
    /// ended it with `EINTR`, so that the program sees nothing of the stop; its time limit begins anew.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended, is not ours, or a thread has not stopped `within` the time given.
    pub fn stand_still<R: Send, E: From<Refusal> + Send>(
        &self,
        within: Duration,
        work: impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send,
    ) -> Result<(R, Duration), E> {
        let mut work = Some(work);
        let mut turn = within / (1 << TURNS);
        for _ in 1..TURNS {
            match self.hold_and(turn, &mut work) {
                Err(Ended::Restless(_)) => std::thread::sleep(turn),
                Err(Ended::Otherwise(error)) => return Err(error),
                Ok(done) => return Ok(done),
            }
            turn *= 2;
        }
        self.hold_and(turn, &mut work).map_err(|ended| match ended {
            Ended::Restless(refusal) => refusal.into(),
            Ended::Otherwise(error) => error,
        })
    }

    /// One turn, on a thread of its own. The work is done at most once: only when all stand still.
    fn hold_and<R: Send, E: From<Refusal> + Send>(
        &self,
        within: Duration,
        work: &mut Option<impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send>,
    ) -> Result<(R, Duration), Ended<E>> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut still = Still::hold(self, within).map_err(Ended::holding)?;
                let Some(work) = work.take() else { unreachable!("it is done once") };
                let result = work(&mut still);
                let took = still.began.elapsed();
                still.let_go().map_err(|refusal| Ended::Otherwise(refusal.into()))?;
                Ok((result.map_err(Ended::Otherwise)?, took))
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// How many turns there are.
const TURNS: u32 = 6;

/// Why a turn did not end well.
enum Ended<E> {
    /// A thread did not stop in time; nothing has been done.
    Restless(Refusal),
    Otherwise(E),
}

impl<E: From<Refusal>> Ended<E> {
    fn holding(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Restless { .. } => Self::Restless(refusal),
            _ => Self::Otherwise(refusal.into()),
        }
    }
}

impl<'p> Still<'p> {
    fn hold(program: &'p Program, within: Duration) -> Result<Self, Refusal> {
        let began = Instant::now();
        let mut still = Self { program, threads: BTreeMap::new(), began };
        // The first to be asked to stop wait for the last: so all are asked before any is waited for.
        while let fresh @ [_, ..] = &still.unheld()[..] {
            for &thread in fresh {
                still.seize(thread)?;
            }
            for &thread in fresh {
                still.settle(thread, began + within)?;
            }
        }
        if still.threads.is_empty() { Err(Refusal::NoSuch { id: program.id }) } else { Ok(still) }
    }

    fn unheld(&self) -> Vec<u32> {
        let mut found = threads(self.program.id);
        found.retain(|thread| !self.threads.contains_key(thread) && !ended(*thread));
        found
    }

    fn seize(&mut self, thread: u32) -> Result<(), Refusal> {
        let held = Held::seize(thread).and_then(|held| held.interrupt().map(|()| held));
        match held {
            Ok(held) => drop(self.threads.insert(thread, held)),
            // It ended since it was listed.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) if ended(thread) => drop(error),
            Err(error) => {
                return Err(Refusal::of_tracing(self.program.id, "trace a thread", error));
            }
        }
        Ok(())
    }

    fn settle(&mut self, thread: u32, deadline: Instant) -> Result<(), Refusal> {
        let id = self.program.id;
        let Some(held) = self.threads.get_mut(&thread) else { return Ok(()) };
        match held.settle(deadline) {
            Ok(Stop::Exec) => Err(Refusal::Replaced { id }),
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => {
                    self.threads.remove(&thread);
                    Ok(())
                }
                Some(libc::ETIMEDOUT) => Err(Refusal::Restless { id, thread }),
                _ => Err(Refusal::of_tracing(id, "wait for a thread", error)),
            },
        }
    }

    /// The program that stands still.
    pub fn program(&self) -> &'p Program {
        self.program
    }

    /// The threads that are held.
    pub fn threads(&self) -> impl Iterator<Item = u32> + '_ {
        self.threads.keys().copied()
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
        let offsets = self.threads.values().map(|held| {
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
            self.threads.iter().all(|(&thread, held)| {
                let base = held.registers().map_or(0, |registers| registers.fs_base);
                let mut number = [0; 4];
                let at = base.wrapping_add(offset as u64);
                base != 0
                    && self.program.read(at, &mut number).is_ok()
                    && u32::from_le_bytes(number) == thread
            })
        })
    }

    /// Lets a thread run one instruction. Signals that come meanwhile wait.
    ///
    /// The flag by which it traps is taken back where the kernel forgets that it is not the program's: `pushf` leaves it on the stack, and
    /// after a `popf` the next step counts as the program's own.
    ///
    /// # Errors
    /// [`Refusal`]: it was killed.
    pub fn step(&mut self, thread: u32) -> Result<(), Refusal> {
        let id = self.program.id;
        let lost = |error| Refusal::of_tracing(id, "let a thread step", error);
        let Some(held) = self.threads.get_mut(&thread) else { return Err(Refusal::NoSuch { id }) };
        let mut code = [0];
        let before = held.registers().map_err(lost)?;
        let pushes = self.program.read(before.rip, &mut code).is_ok() && code == [PUSHF];
        held.step_alone().map_err(lost)?;
        if before.eflags & TRAP_FLAG == 0 {
            let mut after = held.registers().map_err(lost)?;
            if after.eflags & TRAP_FLAG != 0 {
                after.eflags &= !TRAP_FLAG;
                held.set_registers(&after).map_err(lost)?;
            }
            if pushes {
                let flags = self.program.word(after.rsp).map_err(lost)? & !TRAP_FLAG;
                self.program.write(after.rsp, &flags.to_le_bytes()).map_err(lost)?;
            }
        }
        Ok(())
    }

    pub(super) fn held(&self, thread: u32) -> Result<&Held, Refusal> {
        self.threads.get(&thread).ok_or(Refusal::NoSuch { id: self.program.id })
    }

    fn lost(&self, what: &'static str, error: io::Error) -> Refusal {
        Refusal::of_tracing(self.program.id, what, error)
    }

    fn let_go(self) -> Result<(), Refusal> {
        let id = self.program.id;
        for (_, held) in self.threads {
            // One that was killed meanwhile has nothing to go on with.
            let _ = held.make_interrupted_call_again();
            held.let_go().map_err(|error| Refusal::of_tracing(id, "let a thread go", error))?;
        }
        Ok(())
    }
}

/// `pushfq`, and the flag by which a thread traps after an instruction.
const PUSHF: u8 = 0x9c;
const TRAP_FLAG: u64 = 1 << 8;

/// `tid` of glibc's `struct pthread` (behind `tcbhead_t` and a list's node), and of musl's.
const KEPT_AT: [i32; 2] = [0x2d0, 0x30];

fn ended(thread: u32) -> bool {
    refit_sys::process::life(thread).is_none_or(refit_sys::process::Life::ended)
}
