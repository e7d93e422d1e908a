//! What the thread that follows keeps to itself: who stands, what for, and how they go on.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use refit_sys::trace::Tracee;

use crate::resume::{Resume, StopReason};
use crate::supervisor::ignored::Ignored;
use crate::supervisor::short_writes::ShortWrites;
use crate::supervisor::{Tell, Work};

/// What the thread that follows keeps to itself.
pub(super) struct EventLoop {
    /// The process that the tree begins with.
    pub(super) first: u32,
    /// What is to be done with tasks that were interrupted for it.
    pub(super) expected: BTreeMap<u32, Vec<Work>>,
    /// Tasks that stand until somebody comes with more work.
    pub(super) kept: BTreeSet<u32>,
    /// Threads that stand in their ends until they are [let](crate::supervisor::Supervisor::let_end) go. Nothing else is done with them any more.
    pub(super) ending: BTreeSet<u32>,
    /// Processes that were found to be other programs before that was told, and the numbers that
    /// the threads had which called `execve`.
    pub(super) executed: Vec<(u32, u32)>,
    /// Those of the tree.
    pub(super) rests: Arc<ShortWrites>,
    /// Those of the tree.
    pub(super) ignored: Arc<Ignored>,
}

impl EventLoop {
    pub(super) fn of(first: u32, rests: Arc<ShortWrites>, ignored: Arc<Ignored>) -> Self {
        let (expected, kept, ending) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { first, expected, kept, ending, executed: Vec::new(), rests, ignored }
    }

    /// Whether a thread stands that nothing has to stop.
    pub(super) fn stands(&self, task: u32) -> bool {
        self.kept.contains(&task) || self.ending.contains(&task)
    }

    /// Does what was to be done with a thread that stands; how it goes on, as whoever said it last wants.
    pub(super) fn do_all(
        held: &mut Tracee,
        stands: StopReason,
        works: Vec<Work>,
    ) -> (Resume, Vec<Tell>) {
        works.into_iter().fold((Resume::GoOn, Vec::new()), |(_, mut all), work| {
            let (after, tell) = work(held, stands);
            all.push(tell);
            (after, all)
        })
    }

    /// Does it, and lets it go on.
    pub(super) fn run(
        &mut self,
        held: &mut Tracee,
        stands: StopReason,
        works: Vec<Work>,
    ) -> io::Result<()> {
        if self.has_executed(held) {
            // What was to be done was for a thread of the former program.
            return Ok(());
        }
        let (after, tells) = Self::do_all(held, stands, works);
        let goes_on = if self.has_executed(held) { Ok(()) } else { self.go_on(held, after) };
        // Before anything else that it does is seen here.
        tells.into_iter().flatten().for_each(|tell| tell());
        goes_on
    }

    /// Whether the process of a thread that stands has become another program, which is noted.
    fn has_executed(&mut self, held: &Tracee) -> bool {
        let former = held.executed();
        self.executed.extend(former.map(|former| (held.thread(), former)));
        former.is_some()
    }

    /// Does what a thread was interrupted for, if it was; not before it has been given what its last instruction has led to: a call that it is
    /// made to make in between would cost what that signal says.
    pub(super) fn does_expected(&mut self, held: &mut Tracee) -> Option<io::Result<()>> {
        let task = held.thread();
        if self.expected.contains_key(&task) && held.has_faulted().is_ok_and(|faulted| faulted) {
            // It stops for us behind that.
            return Some(held.resume(0));
        }
        let works = self.expected.remove(&task)?;
        Some(self.run(held, StopReason::ForUs, works))
    }

    /// A thread that was interrupted, and has stopped for something else first, would go on as if it had not been: any stop ends an interruption
    /// that is to come.
    pub(super) fn interrupt_again(&self, held: &Tracee) -> io::Result<()> {
        if self.expected.contains_key(&held.thread()) { held.interrupt() } else { Ok(()) }
    }

    pub(super) fn go_on(&mut self, held: &Tracee, after: Resume) -> io::Result<()> {
        if after != Resume::Stay {
            self.interrupt_again(held)?;
        }
        let after = self.ignored.goes_on(held, self.rests.goes_on(held, after));
        match after {
            Resume::GoOn => held.resume(0),
            Resume::ToSystemCall(signal) => held.resume_to_system_call(signal),
            Resume::Once(signal) => {
                held.interrupt()?;
                held.resume(signal)
            }
            Resume::Stay => {
                let task = held.thread();
                self.kept.insert(task);
                // Somebody may have interrupted it meanwhile, and it tells nothing more as long as it stays.
                let Some(works) = self.expected.remove(&task) else { return Ok(()) };
                self.kept.remove(&task);
                let mut again = Tracee::of(task);
                let done = self.run(&mut again, StopReason::Kept, works);
                again.leave();
                done
            }
        }
    }

    pub(super) fn forget(&mut self, task: u32) {
        self.expected.remove(&task);
        self.kept.remove(&task);
        self.ending.remove(&task);
    }
}
