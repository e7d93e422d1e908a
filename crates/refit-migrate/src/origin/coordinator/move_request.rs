//! Threads that ask to run elsewhere themselves ([`refit_tracer::request`]).

use refit_messages::InstanceId;
use refit_tracer::{Resume, ThreadMoveRequest};

use crate::origin::coordinator::own_request::OwnRequest;
use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::request_errors::{NO_INSTANCE, NOT_MOVABLE, NOT_NOW};
use crate::origin::tracer_event::Standing;

impl Coordinator {
    /// Handles the request of a thread, which stands before the call by which it asks unless it has
    /// departed meanwhile.
    pub(super) fn on_move_request(&mut self, request: ThreadMoveRequest) -> Next {
        let (id, own) = (request.thread, self.own);
        if !self.tree.supervisor.still_asks(request) {
            return Ok(());
        }
        let known = |to: &InstanceId| self.layer.peers().iter().any(|peer| peer.id == *to);
        let to = u16::try_from(request.to).ok().map(InstanceId);
        let to = to.filter(|to| *to == own || known(to));
        let Some(thread) = self.threads.get_mut(&id) else {
            self.tree.supervisor.answer(request, -NOT_NOW, Resume::Continue);
            return Ok(());
        };
        if self.tree.supervisor.limits_itself(self.group.process) {
            self.tree.supervisor.answer(request, -NOT_MOVABLE, Resume::Continue);
            return Ok(());
        }
        let here = thread.away_at().is_none();
        if here {
            // It has left the call that it may have returned for.
            thread.call_returned();
            self.tree.threads.place(self.coordinator_id, id, Standing::Home);
        }
        let Some(to) = to else {
            self.tree.supervisor.answer(request, -NO_INSTANCE, Resume::Stay);
            return self.settle(id);
        };
        if thread.own_request == OwnRequest::Refused(to) {
            thread.own_request = OwnRequest::Nothing;
            self.tree.supervisor.answer(request, -NOT_NOW, Resume::Stay);
            return self.settle(id);
        }
        thread.own_request = thread.own_request.and_for(to, thread.wanted);
        thread.want(to);
        if here && to == own {
            thread.own_request.arrived(own);
            self.tree.supervisor.answer(request, 0, Resume::Stay);
        }
        self.settle(id)
    }
}
