//! Membership: nodes of several hosts find each other. A node that joins a node of another host
//! receives the addresses of all nodes that this one knows, and joins them, too.
//!
//! ```text
//!   new node ── Others ──► a node that it has joined ── Address ──► each of its peers
//!            ◄── numbers and addresses ──            ◄── where it listens ──
//!            ── joins each ──►
//! ```
//!
//! **Of two nodes that join at the same time, one joins the other.** Each node listens before it
//! joins any other, and asks a node for addresses only once it is that node's peer. Of two new
//! nodes, one becomes the peer first, so the other one, which asks later, receives the address of
//! the first. If each receives the address of the other, both may dial at once, and both may be
//! refused. Then the node with the lower number waits, and the one with the higher number dials
//! again until they are connected.
//!
//! **A lost node is joined again** by the node that had joined it:
//! [`absent`](crate::membership::absent).
//!
//! No node can join a node that does not listen. Such a node knows the nodes that were there before
//! it, and those of its own host.

pub(crate) mod absent;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use refit_messages::{
    Builder, InstanceId, Layer, Message, MessageError, Peer, Refusal, Reply, Request, Security,
    Transport, Way,
};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::membership::absent::{Absence, Absent};

/// The time that two nodes may take which meet half-way.
const MUTUAL_JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which they look whether they are connected.
const MUTUAL_JOIN_POLL: Duration = Duration::from_millis(10);

/// Asks a node for the peers that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Others;

/// Asks a node where it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Address;

/// A node that can be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Other {
    number: u16,
    /// A name or address; `None`: the one by which the sender of this was joined.
    host: Option<String>,
    port: u16,
}

impl Message for Others {
    const KIND: u16 = 200;
    const WAY: Way = Way::Bulk;
}

impl Request for Others {
    type Answer = Vec<Other>;
}

impl Message for Address {
    const KIND: u16 = 201;
    const WAY: Way = Way::Bulk;
}

impl Request for Address {
    type Answer = Option<SocketAddr>;
}

/// Where this node listens, and which peers it has and has lost.
pub(crate) struct Meeting {
    layer: OnceLock<Weak<Layer>>,
    listens: OnceLock<SocketAddr>,
    absent: Arc<Absent>,
}

impl Meeting {
    /// Returns the membership of a node that listens nowhere yet, and joins lost nodes again with
    /// `security`.
    pub(crate) fn new(security: Security) -> Self {
        let absent = Arc::new(Absent::new(security));
        Self { layer: OnceLock::new(), listens: OnceLock::new(), absent }
    }

    /// Registers the handlers of other nodes' messages.
    pub(crate) fn answer(self: &Arc<Self>, builder: Builder) -> Builder {
        let (this, own) = (Arc::clone(self), Arc::clone(self));
        let others =
            builder.answer::<Others>(move |from, Others, _, reply| this.reply_others(from, reply));
        others.answer::<Address>(move |_, Address, _, reply| {
            reply.say(&own.address(), &[]);
        })
    }

    /// Sets the layer by which messages go, once.
    pub(crate) fn over(&self, layer: &Arc<Layer>) {
        // Only the first call has an effect.
        let _ = self.layer.set(Arc::downgrade(layer));
    }

    /// Notes a peer that was found.
    pub(crate) fn on_peer_found(&self, own: InstanceId, peer: &Peer) {
        info!(peer = %peer.id, transport = ?peer.transport, place = peer.place, "a peer is there");
        self.absent.on_peer_found(own, peer);
    }

    /// Handles the loss of a peer.
    pub(crate) fn on_peer_lost(&self, other: InstanceId, why: &str) {
        // It is set: the peer was found over it.
        let Some(layer) = self.layer.get() else { return };
        self.absent.on_peer_lost(layer, other, why);
    }

    /// Returns the peers of other hosts that are lost and have not come back.
    pub(crate) fn absences(&self) -> Vec<Absence> {
        self.absent.all()
    }

    /// Returns where other nodes can join this one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listens.get().copied()
    }

    /// Begins to listen for other nodes.
    ///
    /// # Errors
    /// As [`Layer::listen`].
    pub(crate) fn listen(
        &self,
        layer: &Arc<Layer>,
        address: SocketAddr,
        security: &Security,
    ) -> Result<(), MessageError> {
        let bound = layer.listen(address, security)?;
        // Only the first call has an effect.
        let _ = self.listens.set(bound);
        Ok(())
    }

    /// Replies to a peer with the addresses of all others.
    fn reply_others(self: &Arc<Self>, from: InstanceId, reply: Reply<Others>) {
        let Some(layer) = self.layer.get().and_then(Weak::upgrade) else { return };
        let answer = move || {
            let peers = layer.peers().into_iter().filter(|peer| peer.id != from);
            let others: Vec<Other> = peers.filter_map(|peer| where_is(&layer, &peer)).collect();
            reply.say(&others, &[]);
        };
        // The others are asked, for which a handler must not wait. Without a thread the reply is
        // dropped, which is an answer.
        let _ = thread::Builder::new().name("refit-others".to_owned()).spawn(answer);
    }
}

/// Returns where a peer can be joined, if it listens and is still there.
fn where_is(layer: &Layer, peer: &Peer) -> Option<Other> {
    let (address, _) = layer.ask(peer.id, &Address, &[]).ok()?;
    let address = address?;
    let host = if !address.ip().is_unspecified() {
        Some(address.ip().to_string())
    } else if peer.transport == Transport::Shared {
        None
    } else {
        Some(host_of(&peer.place).to_owned())
    };
    Some(Other { number: peer.id.0, host, port: address.port() })
}

/// Returns the part of an address before the port.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Joins a node that listens at this address, and all those that it knows.
///
/// # Errors
/// One of them does not answer, or refuses.
pub(crate) fn join(
    layer: &Arc<Layer>,
    address: &str,
    security: &Security,
) -> Result<(), MessageError> {
    let before: Vec<InstanceId> = layer.peers().iter().map(|peer| peer.id).collect();
    match layer.join(address, security) {
        // It has joined this node meanwhile, or comes at the same time.
        Err(MessageError::Refused { why: Refusal::Taken(id), .. }) => {
            return join_or_wait(layer, id, address, security);
        }
        joined => joined?,
    }
    let new = |peer: &Peer| peer.place == address && !before.contains(&peer.id);
    let Some(known) = layer.peers().into_iter().find(new) else { return Ok(()) };
    let (others, _) = layer.ask(known.id, &Others, &[])?;
    for Other { number, host, port } in others {
        let host = host.as_deref().unwrap_or_else(|| host_of(address));
        let at =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        join_or_wait(layer, InstanceId(number), &at, security)?;
    }
    Ok(())
}

/// Joins a node, or waits until it has joined this one.
fn join_or_wait(
    layer: &Arc<Layer>,
    other: InstanceId,
    address: &str,
    security: &Security,
) -> Result<(), MessageError> {
    let deadline = Instant::now() + MUTUAL_JOIN_TIMEOUT;
    let (mut tries, mut refused) = (true, None);
    loop {
        let is_there = layer.peers().iter().any(|peer| peer.id == other);
        if other == layer.own() || is_there {
            return Ok(());
        }
        if tries {
            match layer.join(address, security) {
                Err(error) if met_half_way(&error) => refused = Some(error),
                joined => return joined,
            }
            tries = layer.own() > other;
        }
        match refused.take_if(|_| Instant::now() >= deadline) {
            Some(error) => return Err(error),
            // Meanwhile the other node does its part.
            None => thread::sleep(MUTUAL_JOIN_POLL),
        }
    }
}

fn met_half_way(error: &MessageError) -> bool {
    let MessageError::Refused { why, .. } = error else { return false };
    let taken = |why: &Refusal| matches!(why, Refusal::Taken(_));
    taken(why) || matches!(why, Refusal::ByPeer(why) if taken(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_before_the_port_is_the_host() {
        for (address, host) in
            [("10.0.0.1:7383", "10.0.0.1"), ("[::1]:1", "::1"), ("a.example:2", "a.example")]
        {
            assert_eq!(host_of(address), host);
        }
    }

    /// Starts a node that listens, and has joined the node at an address.
    fn start(number: u16, at: Option<&str>) -> Result<(Arc<Layer>, String), MessageError> {
        let open = Security::None { anywhere: false };
        let meeting = Arc::new(Meeting::new(open.clone()));
        let builder = Layer::builder(InstanceId(number)).silence(Duration::from_secs(60));
        let layer = meeting.answer(builder).start()?;
        meeting.over(&layer);
        meeting.listen(&layer, SocketAddr::from(([127, 0, 0, 1], 0)), &open)?;
        if let Some(at) = at {
            join(&layer, at, &open)?;
        }
        let address = meeting.address().expect("it listens").to_string();
        Ok((layer, address))
    }

    fn numbers(layer: &Layer) -> Vec<u16> {
        layer.peers().iter().map(|peer| peer.id.0).collect()
    }

    /// All nodes that come know all others, in any order and at any number at a time.
    #[test]
    fn all_nodes_that_come_at_the_same_time_meet() {
        for turn in 0..20_u16 {
            let (first, at) = start(100, None).expect("it listens");
            let start_one =
                |number: u16| start((number * 7 + turn) % 50, Some(&at)).expect("joined").0;
            let others: Vec<Arc<Layer>> = thread::scope(|scope| {
                let start_one = &start_one;
                let all = (0..5).map(|one| scope.spawn(move || start_one(one)));
                all.collect::<Vec<_>>()
                    .into_iter()
                    .map(|one| one.join().expect("no panic"))
                    .collect()
            });
            let mut all: Vec<u16> = others.iter().map(|layer| layer.own().0).chain([100]).collect();
            all.sort_unstable();
            for layer in others.iter().chain([&first]) {
                let rest: Vec<u16> =
                    all.iter().copied().filter(|&one| one != layer.own().0).collect();
                let deadline = Instant::now() + MUTUAL_JOIN_TIMEOUT;
                // A node that was joined notices it a moment later.
                while numbers(layer) != rest {
                    assert!(
                        Instant::now() < deadline,
                        "{turn}: {}: {:?}",
                        layer.own(),
                        numbers(layer)
                    );
                    // The deadline is above.
                    thread::sleep(MUTUAL_JOIN_POLL);
                }
            }
            others.iter().chain([&first]).for_each(|layer| layer.close());
        }
    }
}
