//! Threads that ask to run elsewhere, in programs of which nothing has moved yet, and what any of them is told (`include/refit_move.h`).

use std::sync::Arc;
use std::thread;

use refit_messages::InstanceId;

use super::{Migration, MoveError};
use crate::process;
use crate::supervisor::move_request::ThreadMoveRequest;
use crate::supervisor::{Resume, Supervisor};

/// There is no such instance.
pub(super) const NO_INSTANCE: i64 = libc::ENOENT as i64;
/// Its program cannot be moved.
pub(super) const NOT_MOVABLE: i64 = libc::EPERM as i64;
/// Something stands in the way now.
pub(super) const NOT_NOW: i64 = libc::EBUSY as i64;

impl Migration {
    /// Threads of `supervisor` may ask to run elsewhere.
    pub(crate) fn answer_requests(self: &Arc<Self>, supervisor: &Arc<Supervisor>) {
        let (this, of) = (Arc::downgrade(self), Arc::downgrade(supervisor));
        supervisor.answer_requests(self.own.0, move |request| {
            let (Some(this), Some(supervisor)) = (this.upgrade(), of.upgrade()) else { return };
            let asked = Arc::clone(&supervisor);
            // Who follows, and tells this, has a part in what is to be done.
            let begin = move || {
                match this.begin_for(&asked, request) {
                    // Its coordinator is told, from a stop in which nothing was done with it.
                    Ok(()) => asked.ask_again(request),
                    Err(error) => asked.answer(request, -number(&error), Resume::GoOn),
                }
            };
            if thread::Builder::new().name("refit-asked".to_owned()).spawn(begin).is_err() {
                supervisor.answer(request, -NOT_NOW, Resume::GoOn);
            }
        });
    }

    fn begin_for(
        &self,
        supervisor: &Arc<Supervisor>,
        request: ThreadMoveRequest,
    ) -> Result<(), MoveError> {
        // What is no number is what no instance has, as a rule; if one does, its coordinator says so.
        let to = u16::try_from(request.to).unwrap_or(u16::MAX);
        self.known(InstanceId(to))?;
        let process = process::process_of(request.thread).ok_or(MoveError::Ended)?;
        self.coordinator(supervisor, process).map(drop)
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
