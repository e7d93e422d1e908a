//! A node's part in all moves: the coordinators of programs that began here, and the replicas of
//! other nodes' programs.

use std::sync::Arc;

use refit_messages::{ENDED, InstanceId, Layer};
use tracing::warn;

use crate::origin::command::{Command, QueuedCommand};
use crate::origin::coordinator::PagePolicy;
use crate::origin::{Origin, Policies};
use crate::remote::Remote;
use crate::resources::NodeResources;
use crate::setting::Setting;

/// The two parts of a node.
pub(crate) struct Migration {
    pub(crate) resources: Arc<NodeResources>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) remote: Arc<Remote>,
}

impl Migration {
    /// Returns the parts of a node with this number.
    pub(crate) fn new(own: InstanceId, setting: &Setting) -> Arc<Self> {
        let Setting { always_move, window, retrieval, lock, memory, awake, .. } = *setting;
        let resources = NodeResources::new(own, memory, awake);
        let pages = PagePolicy { always_move, window };
        let policies = Policies { pages, protocol: retrieval, lock };
        Arc::new(Self {
            origin: Origin::new(Arc::clone(&resources), policies),
            remote: Remote::new(Arc::clone(&resources)),
            resources,
        })
    }

    /// Sets the layer by which messages go, once.
    pub(crate) fn over(&self, layer: Arc<Layer>) {
        self.resources.connect(layer);
        self.remote.fill_spares();
    }

    /// Handles the loss of a peer: ends the replicas of its programs here, and notifies the
    /// coordinators of programs that have threads there.
    pub(crate) fn on_peer_lost(&self, peer: InstanceId, why: &str) {
        warn!(%peer, why, "a peer is lost");
        let theirs = self.remote.take_those_of(peer);
        let coordinators = self.origin.all_coordinators();
        let concerns = self.origin.is_concerned(&coordinators);
        if why != ENDED || !theirs.is_empty() || concerns {
            // Otherwise it is the end of both nodes.
            refit_log::say(&format!("{} has lost {peer}: {why}", self.resources.own));
        }
        self.remote.end_lost(peer, theirs);
        let lost = || QueuedCommand::now(Command::NodeLost(peer, why.to_owned()));
        coordinators.iter().for_each(|one| drop(one.commands.send(lost())));
    }
}
