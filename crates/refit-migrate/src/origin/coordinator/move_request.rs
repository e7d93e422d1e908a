//! Threads that ask to run elsewhere themselves ([`refit_tracer::move_request`]).

use refit_messages::InstanceId;
use refit_tracer::{Resume, ThreadMoveRequest};

use crate::origin::coordinator::{Coordinator, Next};
use crate::origin::first_move;
use crate::origin::thread_table::Standing;

/// How far a thread's own wish is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnRequest {
    /// It has none.
    Nothing,
    /// It is to be there; it was here.
    For(InstanceId, InstanceId),
    /// It cannot be there, which it is told when it asks again.
    Refused(InstanceId),
}

impl OwnRequest {
    /// It asks, perhaps again.
    fn and_for(self, to: InstanceId, wanted: InstanceId) -> Self {
        match self {
            Self::For(before, _) if before == to => self,
            _ => Self::For(to, wanted),
        }
    }

    /// It has arrived somewhere.
    pub(super) fn is_at(&mut self, place: InstanceId) {
        if matches!(*self, Self::For(to, _) if to == place) {
            *self = Self::Nothing;
        }
    }

    /// It cannot be where it is wanted; where it is wanted then: where it has asked from, or at home.
    pub(super) fn refuse(&mut self, wanted: InstanceId, home: InstanceId) -> InstanceId {
        match *self {
            Self::For(to, from) if to == wanted => {
                *self = Self::Refused(to);
                from
            }
            _ => home,
        }
    }
}

impl Coordinator {
    /// A thread asks; it stands before the call that it asks by, if it has not left meanwhile.
    pub(super) fn asks(&mut self, request: ThreadMoveRequest) -> Next {
        let (id, own) = (request.thread, self.own);
        if !self.tree.supervisor.still_asks(request) {
            return Ok(());
        }
        let known = |to: &InstanceId| self.layer.peers().iter().any(|peer| peer.id == *to);
        let to = u16::try_from(request.to).ok().map(InstanceId);
        let to = to.filter(|to| *to == own || known(to));
        let Some(thread) = self.threads.get_mut(&id) else {
            self.tree.supervisor.answer(request, -first_move::NOT_NOW, Resume::GoOn);
            return Ok(());
        };
        if self.tree.supervisor.limits_itself(self.group.process) {
            self.tree.supervisor.answer(request, -first_move::NOT_MOVABLE, Resume::GoOn);
            return Ok(());
        }
        let here = thread.away_at().is_none();
        if here {
            // It is out of the call that it may have come for.
            thread.call_returned();
            self.tree.threads.place(self.coordinator_id, id, Standing::Home);
        }
        let Some(to) = to else {
            self.tree.supervisor.answer(request, -first_move::NO_INSTANCE, Resume::Stay);
            return self.settle(id);
        };
        if thread.own_request == OwnRequest::Refused(to) {
            thread.own_request = OwnRequest::Nothing;
            self.tree.supervisor.answer(request, -first_move::NOT_NOW, Resume::Stay);
            return self.settle(id);
        }
        thread.own_request = thread.own_request.and_for(to, thread.wanted);
        thread.want(to);
        if here && to == own {
            thread.own_request.is_at(own);
            self.tree.supervisor.answer(request, 0, Resume::Stay);
        }
        self.settle(id)
    }
}
