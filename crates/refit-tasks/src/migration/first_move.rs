//! Threads that ask to run elsewhere, in programs of which nothing has moved yet, and what any of them is told (`include/refit_move.h`).

use std::sync::Arc;
use std::thread;

use refit_messages::InstanceId;

use super::{Migration, MoveError};
use crate::process;
use crate::supervisor::asking::Wish;
use crate::supervisor::{Resume, Supervisor};

/// There is no such instance.
pub(super) const NO_INSTANCE: i64 = libc::ENOENT as i64;
/// Its program cannot be moved.
pub(super) const NOT_MOVABLE: i64 = libc::EPERM as i64;
/// Something stands in the way now.
pub(super) const NOT_NOW: i64 = libc::EBUSY as i64;

impl Migration {
    /// Threads of `tree` may ask to run elsewhere.
    pub(crate) fn answer_wishes(self: &Arc<Self>, tree: &Arc<Supervisor>) {
        let (this, of) = (Arc::downgrade(self), Arc::downgrade(tree));
        tree.answer_wishes(self.own.0, move |wish| {
            let (Some(this), Some(tree)) = (this.upgrade(), of.upgrade()) else { return };
            let asked = Arc::clone(&tree);
            // Who follows, and tells this, has a part in what is to be done.
            let begin = move || {
                match this.begin_for(&asked, wish) {
                    // Its coordinator is told, from a stop in which nothing was done with it.
                    Ok(()) => asked.ask_again(wish),
                    Err(error) => asked.answer(wish, -number(&error), Resume::GoOn),
                }
            };
            if thread::Builder::new().name("refit-asked".to_owned()).spawn(begin).is_err() {
                tree.answer(wish, -NOT_NOW, Resume::GoOn);
            }
        });
    }

    fn begin_for(&self, tree: &Arc<Supervisor>, wish: Wish) -> Result<(), MoveError> {
        // What is no number is what no instance has, as a rule; if one does, its coordinator says so.
        let to = u16::try_from(wish.to).unwrap_or(u16::MAX);
        self.known(InstanceId(to))?;
        let process = process::process_of(wish.thread).ok_or(MoveError::Ended)?;
        self.coordinator(tree, process).map(drop)
    }
}

/// What a thread is told.
fn number(error: &MoveError) -> i64 {
    match error {
        MoveError::NoInstance(_) => NO_INSTANCE,
        MoveError::NotMovable(_) => NOT_MOVABLE,
        _ => NOT_NOW,
    }
}
