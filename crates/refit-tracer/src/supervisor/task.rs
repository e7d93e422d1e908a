//! A task: whether it is stopped, and for whom, and what is known of its calls.
//!
//! ```text
//!              interrupt                      take_work
//!   Running ─────────────► Interrupted ───────────────────► Running
//!    ▲  │ keep                  ├── keep: the work is done at once ──► Running
//!    │  ├────────────► Kept ────│── take_kept: work has come ──► Running
//!    │  │                └──────┴── drop_work: it exits ──► Running
//!    │  │ exit
//!    │  └────────────► Exiting
//!    └────── let_exit ────┘
//! ```
//!
//! A task that the table has no entry for is running, and nothing is known of its calls: an entry
//! begins with the first event that leaves something to know, and ends with the task, or with the
//! program that it runs. Each transition is a method here, which asserts the state that it begins
//! from and records a `tracing` event. Only the event loop's thread makes them; other threads only
//! read, or drop the rest of a short call while its thread is stopped.

use std::fmt;

use tracing::trace;

use crate::supervisor::records::{ClearWord, MoveRequest, Rest, Restart, StrictMode};
use crate::supervisor::work::Work;

/// Whether a task is stopped, and for whom.
enum State {
    /// The task runs, or the event loop is about to resume it.
    Running,
    /// The task was interrupted for this work, at least one, and has not stopped for it yet.
    Interrupted(Vec<Work>),
    /// The task stays stopped until more work with it comes.
    Kept,
    /// The task is stopped at its exit until
    /// [`let_exit`](crate::supervisor::Supervisor::let_exit). No other work is done with it.
    Exiting,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Interrupted(_) => "interrupted",
            Self::Kept => "kept",
            Self::Exiting => "exiting",
        }
    }
}

/// A task of a supervisor.
pub(super) struct Task {
    id: u32,
    /// Whether it has made its first stop, before which only its maker knows of it.
    pub(super) started: bool,
    state: State,
    /// The word that the kernel clears at its end.
    pub(super) clear_word: Option<ClearWord>,
    /// The rest of a call that a stop has cut short.
    pub(super) short_write: Option<Rest>,
    /// The call that is restarted until its deadline.
    pub(super) restart: Option<Restart>,
    /// The last request to run elsewhere.
    pub(super) move_request: Option<MoveRequest>,
    pub(super) strict_mode: StrictMode,
}

impl Task {
    /// Returns a task that runs, of which nothing else is known.
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            started: false,
            state: State::Running,
            clear_word: None,
            short_write: None,
            restart: None,
            move_request: None,
            strict_mode: StrictMode::Outside,
        }
    }

    /// Returns whether it stays stopped until somebody decides about it.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, State::Kept | State::Exiting)
    }

    /// Returns whether it is stopped at its exit.
    pub(super) fn is_exiting(&self) -> bool {
        matches!(self.state, State::Exiting)
    }

    /// Returns whether there is work that it was interrupted for.
    pub(super) fn is_interrupted(&self) -> bool {
        matches!(self.state, State::Interrupted(_))
    }

    fn enter(&mut self, state: State) -> State {
        trace!(task = self.id, from = self.state.name(), to = state.name(), "task");
        std::mem::replace(&mut self.state, state)
    }

    /// Notes that it was interrupted for this work, too.
    pub(super) fn interrupt(&mut self, work: Work) {
        debug_assert!(!self.is_stopped(), "{}", self.state.name());
        match &mut self.state {
            State::Interrupted(works) => works.push(work),
            _ => drop(self.enter(State::Interrupted(vec![work]))),
        }
    }

    /// Ends its interruption: it is stopped. Returns the work that it was interrupted for.
    pub(super) fn take_work(&mut self) -> Option<Vec<Work>> {
        if !self.is_interrupted() {
            return None;
        }
        match self.enter(State::Running) {
            State::Interrupted(works) => Some(works),
            _ => None,
        }
    }

    /// Keeps it stopped. Returns the work that it was interrupted for meanwhile: it reports nothing
    /// as long as it stays, so the work must be done at once, and decides how the task goes on.
    pub(super) fn keep(&mut self) -> Option<Vec<Work>> {
        debug_assert!(!self.is_stopped(), "{}", self.state.name());
        let works = self.take_work();
        if works.is_none() {
            self.enter(State::Kept);
        }
        works
    }

    /// Ends its time of being kept, since work with it has come. Returns whether it was kept.
    pub(super) fn take_kept(&mut self) -> bool {
        let kept = matches!(self.state, State::Kept);
        if kept {
            self.enter(State::Running);
        }
        kept
    }

    /// Notes that it is about to exit: it is not kept any more. Returns the work that it was
    /// interrupted for, which is not done any more.
    pub(super) fn drop_work(&mut self) -> Option<Vec<Work>> {
        match self.enter(State::Running) {
            State::Interrupted(works) => Some(works),
            _ => None,
        }
    }

    /// Notes that it is stopped at its exit.
    pub(super) fn exit(&mut self) {
        debug_assert!(matches!(self.state, State::Running), "{}", self.state.name());
        self.enter(State::Exiting);
    }

    /// Ends its stop at its exit. Returns whether it was in one.
    pub(super) fn let_exit(&mut self) -> bool {
        let exiting = self.is_exiting();
        if exiting {
            self.enter(State::Running);
        }
        exiting
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("state", &self.state.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resume::Resume;

    fn work() -> Work {
        Box::new(|_, _| (Resume::Continue, None))
    }

    #[test]
    fn work_is_handed_out_once() {
        let mut task = Task::new(7);
        assert!(task.take_work().is_none());
        task.interrupt(work());
        task.interrupt(work());
        assert!(task.is_interrupted() && !task.is_stopped());
        assert_eq!(task.take_work().map(|works| works.len()), Some(2));
        assert!(task.take_work().is_none());
    }

    #[test]
    fn a_task_that_was_interrupted_is_not_kept_before_its_work_is_done() {
        let mut task = Task::new(7);
        task.interrupt(work());
        assert_eq!(task.keep().map(|works| works.len()), Some(1));
        assert!(!task.is_stopped());
        assert!(task.keep().is_none());
        assert!(task.is_stopped() && !task.is_exiting());
        assert!(task.take_kept());
        assert!(!task.take_kept());
    }

    #[test]
    fn a_task_that_exits_has_no_work_any_more() {
        let mut task = Task::new(7);
        task.interrupt(work());
        assert_eq!(task.drop_work().map(|works| works.len()), Some(1));
        task.exit();
        assert!(task.take_work().is_none());
        assert!(task.is_exiting());
        assert!(task.let_exit());
        assert!(!task.let_exit() && !task.is_stopped());
    }

    /// A task that is kept is killed, and reports its exit.
    #[test]
    fn a_task_that_exits_is_not_kept_any_more() {
        let mut task = Task::new(7);
        task.keep();
        assert!(task.drop_work().is_none());
        assert!(!task.is_stopped());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "kept")]
    fn a_task_that_is_kept_is_not_interrupted() {
        let mut task = Task::new(7);
        task.keep();
        task.interrupt(work());
    }
}
