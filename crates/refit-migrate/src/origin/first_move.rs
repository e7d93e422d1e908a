//! Threads that ask to run elsewhere, in programs of which nothing has moved yet, and what any of them is told (`include/refit_move.h`).

use std::sync::Arc;
use std::thread;

use refit_messages::InstanceId;
use refit_tracer::{Resume, ThreadMoveRequest, process};

use crate::error::MoveError;
use crate::origin::{Origin, ProgramTree};

/// There is no such instance.
pub(crate) const NO_INSTANCE: i64 = libc::ENOENT as i64;
/// Its program cannot be moved.
pub(crate) const NOT_MOVABLE: i64 = libc::EPERM as i64;
/// Something stands in the way now.
pub(crate) const NOT_NOW: i64 = libc::EBUSY as i64;

impl Origin {
    /// Threads of `tree` may ask to run elsewhere.
    pub(crate) fn answer_requests(self: &Arc<Self>, tree: &Arc<ProgramTree>) {
        let (this, of) = (Arc::downgrade(self), Arc::downgrade(tree));
        tree.supervisor.answer_requests(self.resources.own.0, move |request| {
            let (Some(this), Some(tree)) = (this.upgrade(), of.upgrade()) else { return };
            let asked = Arc::clone(&tree);
            // Who follows, and tells this, has a part in what is to be done.
            let begin = move || {
                match this.begin_for(&asked, request) {
                    // Its coordinator is told, from a stop in which nothing was done with it.
                    Ok(()) => asked.supervisor.ask_again(request),
                    Err(error) => asked.supervisor.answer(request, -number(&error), Resume::GoOn),
                }
            };
            if thread::Builder::new().name("refit-asked".to_owned()).spawn(begin).is_err() {
                tree.supervisor.answer(request, -NOT_NOW, Resume::GoOn);
            }
        });
    }

    fn begin_for(
        &self,
        tree: &Arc<ProgramTree>,
        request: ThreadMoveRequest,
    ) -> Result<(), MoveError> {
        // What is no number is what no instance has, as a rule; if one does, its coordinator says so.
        let to = u16::try_from(request.to).unwrap_or(u16::MAX);
        self.resources.check_reachable(InstanceId(to))?;
        let process = process::process_of(request.thread).ok_or(MoveError::Ended)?;
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
