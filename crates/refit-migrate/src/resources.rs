//! The resources that a node's two parts share: the origin of its own programs, and the part for
//! programs of others.

use std::io;
use std::sync::{Arc, OnceLock};

use refit_messages::{InstanceId, Layer};
use refit_sys::cpu_latency::{Awake, Watch};

use crate::error::MoveError;
use crate::quota::Quota;

/// A node's number, its messages and its memory.
pub(crate) struct NodeResources {
    pub(crate) own: InstanceId,
    layer: OnceLock<Arc<Layer>>,
    pub(crate) quota: Arc<Quota>,
    /// Keeps processors awake while a program is away; `None`: they sleep.
    watch: Option<Watch>,
}

impl NodeResources {
    /// Returns the resources of a node that owns `memory` bytes for programs that move, and has no
    /// messages yet.
    pub(crate) fn new(own: InstanceId, memory: Option<u64>, awake: bool) -> Arc<Self> {
        let quota = Arc::new(Quota::new(own, memory));
        Arc::new(Self { own, layer: OnceLock::new(), quota, watch: awake.then(Watch::default) })
    }

    /// Sets the message layer, once; a second one is ignored.
    pub(crate) fn connect(&self, layer: Arc<Layer>) {
        let _ = self.layer.set(layer);
    }

    /// Returns the message layer, if the node has started.
    pub(crate) fn layer(&self) -> Option<&Arc<Layer>> {
        self.layer.get()
    }

    /// Returns the numbers of the nodes that this one has messages with.
    pub(crate) fn peers(&self) -> Vec<InstanceId> {
        let peers = self.layer().map(|layer| layer.peers()).unwrap_or_default();
        peers.iter().map(|peer| peer.id).collect()
    }

    /// Checks that a node is this one, or has messages with it.
    ///
    /// # Errors
    /// [`MoveError::NoInstance`].
    pub(crate) fn check_reachable(&self, node: InstanceId) -> Result<(), MoveError> {
        let known = node == self.own || self.peers().contains(&node);
        if known { Ok(()) } else { Err(MoveError::NoInstance(node.0)) }
    }

    /// Keeps processors awake as long as the guard lives, if that is wanted and permitted.
    pub(crate) fn awake(&self) -> Option<Arc<Awake>> {
        self.watch.as_ref()?.keep().ok()
    }

    /// Returns the message layer.
    ///
    /// # Errors
    /// `NotConnected`: the node has not started.
    pub(crate) fn connected(&self) -> io::Result<&Arc<Layer>> {
        self.layer().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}
