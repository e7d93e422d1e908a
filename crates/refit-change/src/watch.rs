//! What changes tell while they go on, to one who listens, e.g. to instruments.
//!
//! The mechanisms know nothing of instruments; they tell here, which costs a load and a branch where nobody listens.

use std::cell::Cell;
use std::sync::OnceLock;

use crate::report::{ChangeId, Phase};

/// What happens in the thread that tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A change goes from one phase to the next; `None`: before the first, after the last.
    Phase {
        /// Which it leaves.
        left: Option<Phase>,
        /// Which it enters.
        entered: Option<Phase>,
    },
    /// A call waits for this change.
    Waits(ChangeId),
    /// It goes on.
    GoesOn(ChangeId),
}

static LISTENER: OnceLock<fn(Step)> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<ChangeId> = const { Cell::new(0) };
}

/// Has every step told to `listener` from now on; whether it is the first: there is only one.
pub fn listen(listener: fn(Step)) -> bool {
    LISTENER.set(listener).is_ok()
}

/// Tells a step.
pub fn tell(step: Step) {
    if let Some(listener) = LISTENER.get() {
        listener(step);
    }
}

/// Does `work`, which carries a change out in this thread.
pub fn during<T>(change: ChangeId, work: impl FnOnce() -> T) -> T {
    /// Also when `work` panics.
    struct Back(ChangeId);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _back = Back(CURRENT.replace(change));
    work()
}

/// The change that this thread carries out; 0: none that is known.
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
