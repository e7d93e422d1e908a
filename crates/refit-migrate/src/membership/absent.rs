//! Peers on other hosts that are lost, and how they become peers again without a restart.
//!
//! The node that joined a peer dials the same address again until the peer answers, or has come by
//! itself, or another node answers there. The node that was joined waits. Each side keeps what it
//! knows of the loss until the peer is back, for `refit instances` and for users who want to move a
//! program there; and logs both the loss and its end.
//!
//! A peer that is back begins anew: at the loss, each side has given up what it had of the other's
//! programs, so nothing of before is left that could disagree.
//!
//! # Locks
//! One, which protects the peers and losses; it is held during no call of another module.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use refit_messages::{InstanceId, Layer, MessageError, Peer, Refusal, Security, Transport};

/// The pause after the first attempt to join a lost peer again; each pause is twice as long as the
/// last.
const FIRST_REJOIN_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: a partition that ends is noticed within this time.
const LONGEST_REJOIN_PAUSE: Duration = Duration::from_secs(10);

/// A lost peer that has not come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The peer's number.
    pub number: u16,
    /// The report of the loss.
    pub why: String,
    /// The time of the loss. No two losses of one peer have the same.
    pub since: Instant,
    /// The address at which this node tries to join the peer again; `None`: it waits to be joined.
    pub dials: Option<String>,
}

/// The peers on other hosts that this node has, and those that it has lost.
pub(crate) struct Absent {
    security: Security,
    known: Mutex<KnownPeers>,
}

#[derive(Default)]
struct KnownPeers {
    /// The addresses by which this node has joined peers; `None` if it was joined.
    peers: BTreeMap<InstanceId, Option<String>>,
    absences: BTreeMap<InstanceId, Absence>,
}

impl Absent {
    /// Returns the state of a node that has no peers yet, and joins lost peers again with
    /// `security`.
    pub(crate) fn new(security: Security) -> Self {
        Self { security, known: Mutex::default() }
    }

    /// Notes a peer that was found. Reports that if it had been lost.
    pub(crate) fn on_peer_found(&self, own: InstanceId, peer: &Peer) {
        if peer.transport != Transport::Tcp {
            return;
        }
        let mut known = self.known();
        known.peers.insert(peer.id, peer.dialed.then(|| peer.place.clone()));
        let absence = known.absences.remove(&peer.id);
        drop(known);
        if let Some(absence) = absence {
            let seconds = absence.since.elapsed().as_secs_f64();
            refit_log::say(&format!("{own} has {} again, after {seconds:.1} s", peer.id));
        }
    }

    /// Notes the loss of a peer. Has it joined again if this node has joined it before.
    pub(crate) fn on_peer_lost(self: &Arc<Self>, layer: &Weak<Layer>, peer: InstanceId, why: &str) {
        let mut known = self.known();
        // Nodes of the same host come back only as new processes.
        let Some(dials) = known.peers.remove(&peer) else { return };
        let (number, why, since) = (peer.0, why.to_owned(), Instant::now());
        let absence = Absence { number, why, since, dials: dials.clone() };
        known.absences.insert(peer, absence);
        drop(known);
        let Some(address) = dials else { return };
        let (this, layer) = (Arc::clone(self), Weak::clone(layer));
        let rejoin = move || this.rejoin(&layer, peer, since, &address);
        if thread::Builder::new().name("refit-rejoin".to_owned()).spawn(rejoin).is_err() {
            self.give_up(peer, since);
        }
    }

    /// Returns the lost peers that have not come back, by number.
    pub(crate) fn all(&self) -> Vec<Absence> {
        self.known().absences.values().cloned().collect()
    }

    /// Dials until this loss is over.
    fn rejoin(&self, layer: &Weak<Layer>, peer: InstanceId, since: Instant, address: &str) {
        let mut pause = FIRST_REJOIN_PAUSE;
        let mut refused = None;
        while let Some(layer) = layer.upgrade().filter(|layer| !layer.closed()) {
            if !self.is_absent(peer, since) {
                return;
            }
            match layer.join(address, &self.security) {
                Ok(()) => {
                    let there = layer.peers().into_iter().find(|one| one.place == address);
                    match there {
                        Some(other) if other.id != peer => {
                            return self.finds_another(layer.own(), peer, since, other.id, address);
                        }
                        // If the peer has been lost again meanwhile, another thread dials.
                        _ => return,
                    }
                }
                Err(MessageError::Refused { why: Refusal::Taken(other), .. }) if other != peer => {
                    return self.finds_another(layer.own(), peer, since, other, address);
                }
                Err(MessageError::Refused { why, .. }) if !is_passing(&why) => {
                    // Each reason once: it stays the same until a user changes something.
                    if refused.as_ref() != Some(&why) {
                        let own = layer.own();
                        refit_log::say(&format!(
                            "{own} will retry to join {peer} at {address}: {why}"
                        ));
                        refused = Some(why);
                    }
                }
                // Nobody answers there, as expected.
                Err(_) => {}
            }
            drop(layer);
            // Nothing reports when a host can be reached again, so it is dialed now and then.
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_REJOIN_PAUSE);
        }
    }

    /// Stops to dial a lost peer at whose address another node is.
    fn finds_another(
        &self,
        own: InstanceId,
        peer: InstanceId,
        since: Instant,
        other: InstanceId,
        address: &str,
    ) {
        refit_log::say(&format!("{own} will not rejoin {peer}: {other} is at {address} now"));
        self.give_up(peer, since);
    }

    /// Has this node wait to be joined from now on.
    fn give_up(&self, peer: InstanceId, since: Instant) {
        let mut known = self.known();
        let absence = known.absences.get_mut(&peer).filter(|one| one.since == since);
        if let Some(absence) = absence {
            absence.dials = None;
        }
    }

    /// Returns whether this loss of a peer still lasts.
    fn is_absent(&self, peer: InstanceId, since: Instant) -> bool {
        self.known().absences.get(&peer).is_some_and(|one| one.since == since)
    }

    fn known(&self) -> MutexGuard<'_, KnownPeers> {
        self.known.lock()
    }
}

/// Returns whether a refusal ends by itself: one side has not noticed the loss yet, has just ended,
/// or has joined the other meanwhile.
fn is_passing(why: &Refusal) -> bool {
    match why {
        Refusal::Taken(_) | Refusal::Silent | Refusal::HungUp | Refusal::Half => true,
        Refusal::ByPeer(theirs) => is_passing(theirs),
        _ => false,
    }
}
