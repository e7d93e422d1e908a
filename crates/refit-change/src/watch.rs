//! Steps of changes in progress, reported to a listener, for example to instruments.
//!
//! The mechanisms know nothing of instruments; they report here, which costs a load and a branch
//! without a listener.

use std::cell::Cell;
use std::sync::OnceLock;

use crate::report::{ChangeId, Phase};

/// A step that happens in the reporting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A change goes from one phase to the next; `None` before the first and after the last.
    Phase {
        /// The phase that it leaves.
        left: Option<Phase>,
        /// The phase that it enters.
        entered: Option<Phase>,
    },
    /// A call begins to wait for this change.
    Waits(ChangeId),
    /// The call continues.
    GoesOn(ChangeId),
}

static LISTENER: OnceLock<fn(Step)> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<ChangeId> = const { Cell::new(0) };
}

/// Reports every step to `listener` from now on. Returns whether it is the first: there can be only
/// one.
pub fn listen(listener: fn(Step)) -> bool {
    LISTENER.set(listener).is_ok()
}

/// Reports a step.
pub fn tell(step: Step) {
    if let Some(listener) = LISTENER.get() {
        listener(step);
    }
}

/// Runs `work`, which carries out a change in this thread.
pub fn during<T>(change: ChangeId, work: impl FnOnce() -> T) -> T {
    /// Restores the former change, also when `work` panics.
    struct Back(ChangeId);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _back = Back(CURRENT.replace(change));
    work()
}

/// Returns the change that this thread carries out; 0 if none is known.
pub fn current() -> ChangeId {
    CURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_within_changes_end_where_they_began() {
        during(7, || {
            assert_eq!(current(), 7);
            let inner = std::panic::catch_unwind(|| during(8, || panic!("{}", current())));
            assert!(inner.is_err());
            assert_eq!(current(), 7);
        });
        assert_eq!(current(), 0);
    }
}
