//! Stops all tasks that run a program's code at once: its threads, and those of processes that
//! share its memory. Measures for how long they are stopped.
//!
//! Only tasks create tasks: once every task found is stopped and no further one is found, no task
//! is left that could create another. So the search is repeated until it finds no new task.
//!
//! The work is done on a separate thread. Its end releases every task that it has traced, whatever
//! state the task is in: there is no other way to release a task that does not stop.
//!
//! *If refit is killed* at any moment, each task continues untraced, with the registers that it has
//! then; no task ever has registers other than its own ([`super::Call`] makes calls without
//! breaking this). A call that the stop ended with `EINTR` is restarted once refit has seen its
//! thread stop; if refit is killed before that, the program sees `EINTR`.

use std::time::{Duration, Instant};

use refit_sys::process::living;
use refit_sys::sharers::Sharers;
use refit_sys::slack;
use refit_sys::trace::Tracee;
use tracing::{Span, debug};

use super::call;
use super::held::HeldTask;
use super::program::Program;
use super::refusal::Refusal;
use super::still::Still;
use super::tasks::{self, Deadlines, StopOutcome};

impl Program {
    /// Stops all threads, does `work`, and lets them continue. Returns the result of `work`, and
    /// for how long no thread ran.
    ///
    /// A thread that waits where no signal reaches it stays there. A thread that can neither be
    /// stopped nor be seen to wait delays the others: refit waits for it in turns, each twice as
    /// long as the one before, with equally long pauses in which all threads run. All turns
    /// together take `HELD_UP` at most. Threads that only need a processor have the time `within`.
    ///
    /// A waiting call that the kernel ended for the stop is restarted, and one that the stop cut
    /// short is completed ([`refit_sys::restart`]). A time limit among its arguments counts from
    /// the first stop that interrupted the call; one that is a property of a socket starts anew
    /// with each stop.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended, may not be changed, or a thread has not stopped.
    pub fn stand_still<R: Send, E: From<Refusal> + Send>(
        &self,
        within: Duration,
        work: impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send,
    ) -> Result<(R, Duration), E> {
        let mut work = Some(work);
        let mut turn = HELD_UP / (1 << TURNS);
        for _ in 1..TURNS {
            match self.hold_and(turn, within, &mut work) {
                Err(Ended::Restless(refusal)) => {
                    debug!(process = self.id(), ?turn, %refusal, "not all threads have stopped");
                    std::thread::sleep(turn);
                }
                Err(Ended::Otherwise(error)) => return Err(error),
                Ok(done) => return Ok(done),
            }
            turn *= 2;
        }
        self.hold_and(turn, within, &mut work).map_err(|ended| match ended {
            Ended::Restless(refusal) => refusal.into(),
            Ended::Otherwise(error) => error,
        })
    }

    /// Makes one attempt, on a separate thread. The work is done at most once, and only when all
    /// threads are stopped.
    fn hold_and<R: Send, E: From<Refusal> + Send>(
        &self,
        turn: Duration,
        within: Duration,
        work: &mut Option<impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send>,
    ) -> Result<(R, Duration), Ended<E>> {
        let span = Span::current();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _within = span.enter();
                let still = match self.lender() {
                    Some(lender) => Still::borrow(self, lender, within),
                    None => Still::hold(self, turn, within),
                };
                let mut still = still.map_err(Ended::holding)?;
                let held = still.began.elapsed();
                let Some(work) = work.take() else { unreachable!("it is done once") };
                let result = work(&mut still);
                let took = still.began.elapsed();
                debug!(process = self.id(), ?held, ?took, "stood still");
                self.stop_log.add(took);
                still.let_go().map_err(|refusal| Ended::Otherwise(refusal.into()))?;
                Ok((result.map_err(Ended::Otherwise)?, took))
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// The longest time in which the threads of a program stop, unless a caller has less.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for which a thread that does not stop delays the others, in all turns together.
const HELD_UP: Duration = Duration::from_millis(100);
/// Number of turns.
const TURNS: u32 = 6;
/// Longest wait for tasks whose call the stop may end, before they are released.
const SEEN: Duration = Duration::from_secs(1);
/// Longest wait for tasks that were asked to stop, when another task does not stop.
const UNSEEN: Duration = Duration::from_millis(20);

/// Why a turn failed.
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
    fn hold(program: &'p Program, turn: Duration, within: Duration) -> Result<Self, Refusal> {
        // Reads the list of processes before any task is stopped.
        let mut sharers = Sharers::default();
        sharers.of(program.face(), program.id());
        let began = Instant::now();
        let (waiting, running) = (began + turn, began + within.max(turn));
        let deadlines = Deadlines { waiting, running, grace: tasks::GRACE };
        let mut still = Self::empty(program, began);
        let mut others = Vec::new();
        loop {
            while let fresh @ [_, ..] = &still.unheld(&others)[..] {
                still.bring(fresh, deadlines)?;
            }
            let found = living(program.id()).map(|face| sharers.of(face, program.id()));
            let found = found.unwrap_or_default();
            let known = others.len();
            others.extend(found.into_iter().filter(|id| !still.ended.contains(id)));
            others.sort_unstable();
            others.dedup();
            if others.len() == known {
                break;
            }
        }
        if still.own.is_empty() {
            return Err(Refusal::NoSuch { id: program.id() });
        }
        let slacks: Vec<_> = slack::in_use(&program.memory, still.mappings()?).collect();
        call::take_out_contexts(&still, &slacks)?;
        still.take_out(&slacks)?;
        Ok(still)
    }

    /// Stops these tasks. All are asked before refit waits for any, since the tasks that stop first
    /// wait for the last one.
    fn bring(&mut self, fresh: &[(u32, bool)], deadlines: Deadlines) -> Result<(), Refusal> {
        let id = self.program.id();
        let mut stopping = Vec::new();
        for &(thread, own) in fresh {
            match tasks::seize(id, thread) {
                Ok(Some(held)) => stopping.push((held, own)),
                Ok(None) => drop(self.ended.insert(thread)),
                Err(refusal) => return Err(Self::give_up(stopping, refusal)),
            }
        }
        let mut stopping = stopping.into_iter();
        while let Some((held, own)) = stopping.next() {
            let thread = held.thread();
            match tasks::settle(id, own, held, deadlines) {
                Ok(StopOutcome::Stopped(held)) => {
                    self.threads.insert(thread, HeldTask::Own(held));
                }
                Ok(StopOutcome::Asleep(held, waits)) => {
                    self.asleep.insert(thread, (HeldTask::Own(held), waits));
                }
                Ok(StopOutcome::Gone) => {
                    self.ended.insert(thread);
                    continue;
                }
                Err((held, refusal)) => {
                    let unseen = std::iter::once((held, own)).chain(stopping).collect();
                    return Err(Self::give_up(unseen, refusal));
                }
            }
            if own {
                self.own.insert(thread);
            }
        }
        Ok(())
    }

    fn give_up(stopping: Vec<(Tracee, bool)>, refusal: Refusal) -> Refusal {
        let until = Instant::now() + UNSEEN;
        stopping.into_iter().for_each(|(held, _)| tasks::let_go_unseen(held, until));
        refusal
    }

    /// Returns tasks of the program and of these processes that are not stopped yet, and whether
    /// they are the program's own.
    fn unheld(&self, others: &[u32]) -> Vec<(u32, bool)> {
        let own = self.program.threads().into_iter().map(|thread| (thread, true));
        let others = others.iter().flat_map(|&id| refit_sys::process::threads(id));
        let mut found: Vec<_> = own.chain(others.map(|thread| (thread, false))).collect();
        let known = |thread: &u32| {
            self.threads.contains_key(thread)
                || self.asleep.contains_key(thread)
                || self.ended.contains(thread)
        };
        found.retain(|(thread, _)| !known(thread));
        found
    }

    fn let_go(mut self) -> Result<(), Refusal> {
        let id = self.program.id();
        // The tracer of a program that is lent completes its calls.
        if self.program.lender().is_none() {
            self.complete();
        }
        for (_, held) in std::mem::take(&mut self.threads) {
            held.let_go().map_err(|error| Refusal::of_tracing(id, "resume a thread", error))?;
        }
        // The other tasks already run. Those in a call that the stop may end are released only once
        // they have been seen to stop.
        let now = Instant::now();
        for (_, (held, waits)) in std::mem::take(&mut self.asleep) {
            let HeldTask::Own(held) = held else { continue };
            let ends = waits.call.is_some_and(tasks::ends_for_a_stop);
            tasks::let_go_unseen(held, if ends { now + SEEN } else { now });
        }
        Ok(())
    }
}
