//! Handles requests to run elsewhere by threads of programs that have not moved yet.

use std::sync::Arc;
use std::thread;

use refit_messages::InstanceId;
use refit_tracer::{Resume, ThreadMoveRequest, process};

use crate::error::MoveError;
use crate::origin::request_errors::{NOT_NOW, number};
use crate::origin::{Origin, ProgramTree};

impl Origin {
    /// Begins to answer the requests of threads of `tree` to run elsewhere.
    pub(crate) fn answer_requests(self: &Arc<Self>, tree: &Arc<ProgramTree>) {
        let (this, of) = (Arc::downgrade(self), Arc::downgrade(tree));
        tree.supervisor.answer_requests(self.resources.own.0, move |request| {
            let (Some(this), Some(tree)) = (this.upgrade(), of.upgrade()) else { return };
            let own = Arc::clone(&tree);
            // In a thread of its own: the event loop, which calls this, has a part in the work.
            let begin = move || {
                match this.begin_for(&own, request) {
                    // The thread asks its coordinator then, from a stop in which nothing was done
                    // with it.
                    Ok(()) => own.supervisor.ask_again(request),
                    Err(error) => own.supervisor.answer(request, -number(&error), Resume::Continue),
                }
            };
            if thread::Builder::new().name("refit-asked".to_owned()).spawn(begin).is_err() {
                tree.supervisor.answer(request, -NOT_NOW, Resume::Continue);
            }
        });
    }

    /// Makes the coordinator of the program of which a thread asks.
    fn begin_for(
        &self,
        tree: &Arc<ProgramTree>,
        request: ThreadMoveRequest,
    ) -> Result<(), MoveError> {
        // A number that is out of range becomes one that usually no node has; if one does, the
        // coordinator answers that there is no such node.
        let to = u16::try_from(request.to).unwrap_or(u16::MAX);
        self.resources.check_reachable(InstanceId(to))?;
        let process = process::process_of(request.thread).ok_or(MoveError::Ended)?;
        self.coordinator(tree, process).map(drop)
    }
}
