//! Checks after each command, if that is configured, whether the memory is the same at all nodes.

use std::collections::BTreeMap;

use refit_messages::{InstanceId, Transport};

use crate::origin::consistency;
use crate::origin::coordinator::Coordinator;

impl Coordinator {
    /// Kills the program if its memory is inconsistent.
    pub(super) fn check(&self) {
        if !consistency::is_checked() {
            return;
        }
        if let Some(why) = self.space.violation(&self.replicas_here()) {
            self.kill(&why);
        }
    }

    /// Returns the replicas on this host, whose mappings can be read.
    fn replicas_here(&self) -> BTreeMap<InstanceId, u32> {
        let peers = self.layer.peers();
        let here = peers.iter().filter(|peer| peer.transport == Transport::Shared);
        here.filter_map(|peer| Some((peer.id, *self.ready.get(&peer.id)?))).collect()
    }
}
