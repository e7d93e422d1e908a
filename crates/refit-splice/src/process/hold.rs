//! All tasks that run a program's code held still at once, for a time that is measured: its threads, and processes that share its memory.
//!
//! Tasks are made by tasks: once every one that is found is held, and no more are found, nobody is left who could make another. So they are
//! looked for anew until that is so.
//!
//! The work is done on a thread of its own, whose end lets everything go that it has traced, whatever state it is in:
//! there is no other way to let go of a task that does not stop.
//!
//! *Whenever refit is killed*, each task goes on as the kernel has it go on when nobody traces it any more, with the registers that it has at
//! that moment; none ever has others than its own ([`super::Call`] makes calls such that this holds). A call that the stop has ended with `EINTR`
//! is to be made again from the moment at which its thread is seen to have stopped; for what refit is killed before that, the program sees `EINTR`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use refit_sys::process::living;
use refit_sys::sharers::Sharers;
use refit_sys::trace::Tracee;

use super::program::Program;
use super::refusal::Refusal;
use super::still::Still;
use super::tasks::{self, Patience, Stood};

impl Program {
    /// Holds all threads still, does `work`, and lets them go on. Returns what `work` says, and for how long nobody ran.
    ///
    /// A thread that waits where nothing reaches it stays there. One that can neither be stopped nor be seen to wait holds the others up: it
    /// is waited for in turns, each twice as long as the one before, with as long a pause between them in which all run; all turns together
    /// take `HELD_UP` at most. For threads that only need a processor the time is `within`.
    ///
    /// A call that waits is made again where the kernel has ended it for the stop, and what a stop
    /// has cut short is completed ([`refit_sys::restart`]). A time limit among its arguments counts
    /// from the first stop that has interrupted the call; one that is a property of a socket begins
    /// anew with each.
    ///
    /// # Errors
    /// [`Refusal`]: the program has ended, is not ours, or a thread has not stopped.
    pub fn stand_still<R: Send, E: From<Refusal> + Send>(
        &self,
        within: Duration,
        work: impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send,
    ) -> Result<(R, Duration), E> {
        let mut work = Some(work);
        let mut turn = HELD_UP / (1 << TURNS);
        for _ in 1..TURNS {
            match self.hold_and(turn, within, &mut work) {
                Err(Ended::Restless(_)) => std::thread::sleep(turn),
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

    /// One turn, on a thread of its own. The work is done at most once: only when all stand still.
    fn hold_and<R: Send, E: From<Refusal> + Send>(
        &self,
        turn: Duration,
        within: Duration,
        work: &mut Option<impl FnOnce(&mut Still<'_>) -> Result<R, E> + Send>,
    ) -> Result<(R, Duration), Ended<E>> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut still = Still::hold(self, turn, within).map_err(Ended::holding)?;
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

/// For how long threads are held up by one that does not stop, in all.
const HELD_UP: Duration = Duration::from_millis(100);
/// How many turns there are.
const TURNS: u32 = 6;
/// How long those are waited for that may be told of the stop.
const SEEN: Duration = Duration::from_secs(1);
/// How long those are waited for that were asked to stop when another one does not.
const UNSEEN: Duration = Duration::from_millis(20);

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
    fn hold(program: &'p Program, turn: Duration, within: Duration) -> Result<Self, Refusal> {
        // Nobody stands yet.
        let mut sharers = Sharers::default();
        sharers.of(program.face(), program.id());
        let began = Instant::now();
        let patience = Patience { waiting: began + turn, running: began + within.max(turn) };
        let (threads, asleep) = (BTreeMap::new(), BTreeMap::new());
        let (own, gone) = (BTreeSet::new(), BTreeSet::new());
        let limited = BTreeMap::new();
        let mut still = Self { program, threads, asleep, own, gone, limited, began };
        let mut others = Vec::new();
        loop {
            while let fresh @ [_, ..] = &still.unheld(&others)[..] {
                still.bring(fresh, patience)?;
            }
            let found = living(program.id()).map(|face| sharers.of(face, program.id()));
            let found = found.unwrap_or_default();
            let known = others.len();
            others.extend(found.into_iter().filter(|id| !still.gone.contains(id)));
            others.sort_unstable();
            others.dedup();
            if others.len() == known {
                break;
            }
        }
        if still.own.is_empty() {
            return Err(Refusal::NoSuch { id: program.id() });
        }
        still.take_out()?;
        Ok(still)
    }

    /// Brings these to a stand: the first to be asked to stop wait for the last, so all are asked before any is waited for.
    fn bring(&mut self, fresh: &[(u32, bool)], patience: Patience) -> Result<(), Refusal> {
        let id = self.program.id();
        let mut asked = Vec::new();
        for &(thread, own) in fresh {
            match tasks::seize(id, thread) {
                Ok(Some(held)) => asked.push((held, own)),
                Ok(None) => drop(self.gone.insert(thread)),
                Err(refusal) => return Err(Self::give_up(asked, refusal)),
            }
        }
        let mut asked = asked.into_iter();
        while let Some((held, own)) = asked.next() {
            let thread = held.thread();
            match tasks::settle(id, own, held, patience) {
                Ok(Stood::Stopped(held)) => drop(self.threads.insert(thread, held)),
                Ok(Stood::Asleep(held, waits)) => {
                    self.asleep.insert(thread, (held, waits));
                }
                Ok(Stood::Gone) => {
                    self.gone.insert(thread);
                    continue;
                }
                Err((held, refusal)) => {
                    held.leave();
                    return Err(Self::give_up(asked.collect(), refusal));
                }
            }
            if own {
                self.own.insert(thread);
            }
        }
        Ok(())
    }

    fn give_up(asked: Vec<(Tracee, bool)>, refusal: Refusal) -> Refusal {
        let until = Instant::now() + UNSEEN;
        asked.into_iter().for_each(|(held, _)| tasks::let_go_unseen(held, until));
        refusal
    }

    /// Tasks of the program and of these processes that are not held yet, and whether they are the program's own.
    fn unheld(&self, others: &[u32]) -> Vec<(u32, bool)> {
        let own = self.program.threads().into_iter().map(|thread| (thread, true));
        let others = others.iter().flat_map(|&id| refit_sys::process::threads(id));
        let mut found: Vec<_> = own.chain(others.map(|thread| (thread, false))).collect();
        let known = |thread: &u32| {
            self.threads.contains_key(thread)
                || self.asleep.contains_key(thread)
                || self.gone.contains(thread)
        };
        found.retain(|(thread, _)| !known(thread));
        found
    }

    fn let_go(mut self) -> Result<(), Refusal> {
        let id = self.program.id();
        self.complete();
        for (_, held) in std::mem::take(&mut self.threads) {
            held.let_go().map_err(|error| Refusal::of_tracing(id, "let a thread go", error))?;
        }
        // The others run: those that wait in a call that the stop may end are seen to before they are let go.
        let now = Instant::now();
        for (_, (held, waits)) in std::mem::take(&mut self.asleep) {
            let ends = waits.call.is_some_and(tasks::ends_for_a_stop);
            tasks::let_go_unseen(held, if ends { now + SEEN } else { now });
        }
        Ok(())
    }
}
