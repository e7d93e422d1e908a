//! Peers on other hosts that are lost, and how they become peers again without a restart.
//!
//! The instance that joined a peer dials the same address again until the peer answers, or has
//! come by itself, or another instance answers there. The instance that was joined waits. Each
//! side keeps what it knows of the loss until the peer is back, for `refit instances` and for
//! those who want to move a program there; and says both, the loss and its end, in its log.
//!
//! A peer that is back begins anew: each side has given up at the loss what it had of the other's
//! programs, so nothing of before is left that could disagree.
//!
//! One lock, that of the losses; it is held for no call of another module.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use refit_messages::{InstanceId, Layer, MessageError, Peer, Refusal, Security, Transport};

/// The pause after the first attempt to join a lost peer again; each is twice as long as the last.
const FIRST_REJOIN_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause: a partition that ends is noticed within this time.
const LONGEST_REJOIN_PAUSE: Duration = Duration::from_secs(10);

/// A lost peer that has not come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// Its number.
    pub number: u16,
    /// What told of the loss.
    pub why: String,
    /// When it was lost. No two losses of one peer have the same.
    pub since: Instant,
    /// The address at which this instance tries to join it again; `None`: it waits to be joined.
    pub dials: Option<String>,
}

/// The peers on other hosts that this instance has, and those that it has lost.
pub(crate) struct Absent {
    security: Security,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The addresses by which this instance has joined peers, `None` where it was joined.
    peers: BTreeMap<InstanceId, Option<String>>,
    absences: BTreeMap<InstanceId, Absence>,
}

impl Absent {
    /// None so far; lost peers are joined again with this.
    pub(crate) fn new(security: Security) -> Self {
        Self { security, known: Mutex::default() }
    }

    /// A peer is there. Says so if it had been lost.
    pub(crate) fn found(&self, own: InstanceId, peer: &Peer) {
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

    /// A peer is lost. Has it joined again if this instance has joined it before.
    pub(crate) fn lost(self: &Arc<Self>, layer: &Weak<Layer>, peer: InstanceId, why: &str) {
        let mut known = self.known();
        // Instances of the same host come back with a new process only.
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

    /// Lost peers that have not come back, in the order of their numbers.
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
                        // If it has been lost again meanwhile, another thread sees to that.
                        _ => return,
                    }
                }
                Err(MessageError::Refused { why: Refusal::Taken(other), .. }) if other != peer => {
                    return self.finds_another(layer.own(), peer, since, other, address);
                }
                Err(MessageError::Refused { why, .. }) if !is_passing(&why) => {
                    // Each reason once: it is the same until somebody changes something.
                    if refused.as_ref() != Some(&why) {
                        let own = layer.own();
                        refit_log::say(&format!(
                            "{own} tries to join {peer} at {address} again: {why}"
                        ));
                        refused = Some(why);
                    }
                }
                // Nobody answers there, as was to be expected.
                Err(_) => {}
            }
            drop(layer);
            // Nothing tells when a host can be reached again, so it is dialed now and then.
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_REJOIN_PAUSE);
        }
    }

    /// At the address of a lost peer is another one: it is dialed no more.
    fn finds_another(
        &self,
        own: InstanceId,
        peer: InstanceId,
        since: Instant,
        other: InstanceId,
        address: &str,
    ) {
        refit_log::say(&format!("{own} does not join {peer} again: {other} is at {address} now"));
        self.give_up(peer, since);
    }

    /// From now on this instance waits to be joined.
    fn give_up(&self, peer: InstanceId, since: Instant) {
        let mut known = self.known();
        let absence = known.absences.get_mut(&peer).filter(|one| one.since == since);
        if let Some(absence) = absence {
            absence.dials = None;
        }
    }

    /// Whether a peer is still absent since then.
    fn is_absent(&self, peer: InstanceId, since: Instant) -> bool {
        self.known().absences.get(&peer).is_some_and(|one| one.since == since)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a refusal ends by itself: one side has not noticed the loss yet, has just ended, or
/// has joined the other meanwhile.
fn is_passing(why: &Refusal) -> bool {
    match why {
        Refusal::Taken(_) | Refusal::Silent | Refusal::HungUp | Refusal::Half => true,
        Refusal::ByPeer(theirs) => is_passing(theirs),
        _ => false,
    }
}
