//! State in transit, without its type.

use std::any::{Any, type_name};

use super::protocol::Protocol;
use crate::interface::TransferError;

/// State that has left one root and has not reached the other.
#[derive(Debug)]
pub struct Exported {
    pub(crate) protocol: Protocol,
    state: Box<dyn Any + Send>,
    type_name: &'static str,
    /// The number of items in it, as counted by the exporter.
    pub(crate) items: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) complete: bool,
}

impl Exported {
    /// Packs `state` in `protocol`.
    pub(crate) fn new<T: Send + 'static>(protocol: Protocol, state: T) -> Self {
        Exported {
            protocol,
            state: Box::new(state),
            type_name: type_name::<T>(),
            items: None,
            bytes: None,
            complete: true,
        }
    }

    /// Records the number of items in it. The root's [count](crate::Root::count) must be the same,
    /// or the change is rolled back.
    #[must_use]
    pub fn items(mut self, items: u64) -> Self {
        self.items = Some(items);
        self
    }

    /// Records the number of bytes of state in it, for reports.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Records that something is missing, although nothing failed; the change is rolled back.
    #[must_use]
    pub fn incomplete(mut self) -> Self {
        self.complete = false;
        self
    }

    /// Returns the protocol it is packed in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the state, if it is packed in `protocol`.
    pub(crate) fn into_state<T: Send + 'static>(
        self,
        protocol: Protocol,
    ) -> Result<T, TransferError> {
        let Exported { protocol: packed, state, type_name: found, .. } = self;
        if packed != protocol {
            let (packed, protocol) = (packed.0, protocol.0);
            let what = format!("state came in protocol {packed}, where {protocol} was expected");
            return Err(TransferError(what));
        }
        state.downcast().map(|state| *state).map_err(|_| {
            let expected = type_name::<T>();
            let what = "rebuild both implementations with the same version of the interface";
            TransferError(format!("state came as {found}, where {expected} was expected; {what}"))
        })
    }
}
