//! Answers lookups of other nodes, or passes them on.

use refit_messages::{InstanceId, Layer};

use crate::protocol::messages::{Mapping, Seek, SeekAnswer};

/// Answers a node's lookup with what is mapped here, or passes it on to the next node.
pub(crate) fn pass_on(layer: &Layer, mut seek: Seek, mapping: Option<Mapping>) {
    let (group, number) = (seek.group, seek.number);
    seek.messages = seek.messages.saturating_add(1);
    while mapping.is_none() && !seek.left.is_empty() {
        let next = InstanceId(seek.left.remove(0));
        // A node that is lost is passed over.
        if layer.send(next, &seek, &[]).is_ok() {
            return;
        }
    }
    let found = SeekAnswer { group, number, mapping, messages: seek.messages };
    // An asker that is lost needs no answer.
    let _ = layer.send(InstanceId(seek.asker), &found, &[]);
}
