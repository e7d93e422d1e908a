//! The state of a thread's own request to run elsewhere.

use refit_messages::InstanceId;

/// The state of a thread's own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnRequest {
    /// The thread has not asked.
    Nothing,
    /// The thread has asked to run at the first node; before, it was wanted at the second.
    For(InstanceId, InstanceId),
    /// The thread cannot run at this node; it receives that error when it asks again.
    Refused(InstanceId),
}

impl OwnRequest {
    /// Returns the state after the thread asks, perhaps again, to run at `to`.
    pub(super) fn and_for(self, to: InstanceId, wanted: InstanceId) -> Self {
        match self {
            Self::For(before, _) if before == to => self,
            _ => Self::For(to, wanted),
        }
    }

    /// Notes that the thread has arrived at a node.
    pub(super) fn arrived(&mut self, node: InstanceId) {
        if matches!(*self, Self::For(to, _) if to == node) {
            *self = Self::Nothing;
        }
    }

    /// Notes that the thread cannot run where it is wanted. Returns where it is wanted then: where
    /// it asked from if that was its own request, or else at its origin.
    pub(super) fn refuse(&mut self, wanted: InstanceId, origin: InstanceId) -> InstanceId {
        match *self {
            Self::For(to, from) if to == wanted => {
                *self = Self::Refused(to);
                from
            }
            _ => origin,
        }
    }
}
