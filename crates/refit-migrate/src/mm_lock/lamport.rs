//! Mutual exclusion among nodes without a leader (Lamport 1978; Katz 2014, §5.7.4): what each node
//! knows, sends and receives. This module sends nothing itself.
//!
//! Each node has a clock that is later than all times in the messages it has received. A node that
//! wants the lock sends a request with its time to all other nodes; each of them stores the request
//! and acknowledges it. A node has the lock if its request is the earliest that it knows, and it
//! has received a message with a later time from every other node. That is enough because links
//! keep order: a node with an earlier request would have sent that request before the later
//! message. Of two requests with the same time, the one of the lower node number is earlier.
//!
//! **Nodes come and go.** When a node leaves, all others remove it and its request. A node that
//! joins receives the list of the others before they learn of it. Each of them then sends it its
//! own pending request, if any, and its time. The new node makes no request before it has received
//! this from all of them. So any request of the new node is later than the requests made before it
//! joined, and the new node knows all of these.
//!
//! The model explores all interleavings of three nodes, one of which joins late.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LockMessage {
    /// To a node that has come: the time.
    Hello,
    /// The sender wants the lock, since this time.
    Request,
    /// The sender has noted a request.
    Ack,
    /// The sender does not want the lock any more.
    Release,
}

/// A message, and the time that goes with it.
pub(crate) type TimedMessage = (LockMessage, u64);

/// The knowledge of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lamport {
    own: u16,
    clock: u64,
    /// The other nodes, and the latest time that each has sent.
    heard: BTreeMap<u16, u64>,
    /// Nodes that were there before this one, and have not sent a hello yet.
    silent: BTreeSet<u16>,
    requests: BTreeSet<(u64, u16)>,
    mine: Option<u64>,
}

impl Lamport {
    /// Returns the state of a node that comes to others.
    pub(crate) fn among(own: u16, others: impl IntoIterator<Item = u16>) -> Self {
        let silent: BTreeSet<u16> = others.into_iter().filter(|&one| one != own).collect();
        let heard = silent.iter().map(|&one| (one, 0)).collect();
        Self { own, clock: 0, heard, silent, requests: BTreeSet::new(), mine: None }
    }

    /// Returns the number of other nodes.
    pub(crate) fn others(&self) -> usize {
        self.heard.len()
    }

    fn to_all(&self, message: TimedMessage) -> Vec<(u16, TimedMessage)> {
        self.heard.keys().map(|&one| (one, message)).collect()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns whether the node may request the lock.
    pub(crate) fn may_request(&self) -> bool {
        self.silent.is_empty() && self.mine.is_none()
    }

    /// Requests the lock. Returns the messages to send.
    pub(crate) fn request(&mut self) -> Vec<(u16, TimedMessage)> {
        let time = self.tick();
        self.mine = Some(time);
        self.requests.insert((time, self.own));
        self.to_all((LockMessage::Request, time))
    }

    /// Returns whether the node has the lock.
    pub(crate) fn holds(&self) -> bool {
        self.mine.is_some_and(|time| {
            self.requests.first() == Some(&(time, self.own))
                && self.heard.values().all(|&heard| heard > time)
        })
    }

    /// Releases the lock. Returns the messages to send.
    pub(crate) fn release(&mut self) -> Vec<(u16, TimedMessage)> {
        let Some(time) = self.mine.take() else { return Vec::new() };
        self.requests.remove(&(time, self.own));
        let now = self.tick();
        self.to_all((LockMessage::Release, now))
    }

    /// Handles a message of another node. Returns the answer to send.
    pub(crate) fn hear(
        &mut self,
        from: u16,
        (kind, time): TimedMessage,
    ) -> Option<(u16, TimedMessage)> {
        // `None`: the sender is no member any more.
        let heard = self.heard.get_mut(&from)?;
        *heard = time.max(*heard);
        self.clock = self.clock.max(time);
        match kind {
            LockMessage::Hello => drop(self.silent.remove(&from)),
            LockMessage::Ack => {}
            LockMessage::Release => self.requests.retain(|&(_, one)| one != from),
            LockMessage::Request => {
                self.requests.insert((time, from));
                let now = self.tick();
                return Some((from, (LockMessage::Ack, now)));
            }
        }
        None
    }

    /// Forgets a node that is gone.
    pub(crate) fn forget(&mut self, other: u16) {
        self.heard.remove(&other);
        self.silent.remove(&other);
        self.requests.retain(|&(_, one)| one != other);
    }

    /// Changes the members, of which this node is one. Returns the messages to send to new ones.
    pub(crate) fn follow(&mut self, members: &BTreeSet<u16>) -> Vec<(u16, TimedMessage)> {
        let left: Vec<u16> =
            self.heard.keys().copied().filter(|one| !members.contains(one)).collect();
        left.into_iter().for_each(|one| self.forget(one));
        let mut messages = Vec::new();
        for &one in members {
            if one == self.own || self.heard.contains_key(&one) {
                continue;
            }
            self.heard.insert(one, 0);
            messages.extend(self.mine.map(|time| (one, (LockMessage::Request, time))));
            let now = self.tick();
            messages.push((one, (LockMessage::Hello, now)));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    const ALL: usize = 3;

    /// The state of all nodes at one moment.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Model {
        nodes: [Option<Lamport>; ALL],
        /// By sender and receiver.
        links: [[VecDeque<TimedMessage>; ALL]; ALL],
        /// The number of times that each node still wants the lock.
        wants: [u8; ALL],
        /// The position in `ORDER` of the node that learns next that the third has come.
        comes: usize,
        /// Whether the third node can go, and the number of nodes that know that it has gone.
        goes: Option<usize>,
    }

    /// The rule that is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Without {
        Nothing,
        /// A node that comes waits for nobody's hello.
        Hello,
        /// A node that wants the lock waits for nobody's message.
        Acks,
    }

    /// The order in which nodes learn of the third.
    const ORDER: [usize; ALL] = [2, 0, 1];

    impl Model {
        fn new(wants: [u8; ALL], may_go: bool) -> Self {
            let mut first = Lamport::among(0, []);
            // The second node came when nothing had been sent.
            first.follow(&[0, 1].into());
            let mut second = Lamport::among(1, [0]);
            second.hear(0, (LockMessage::Hello, 1));
            Self {
                nodes: [Some(first), Some(second), None],
                links: Default::default(),
                wants,
                comes: 0,
                goes: may_go.then_some(0),
            }
        }

        fn say(&mut self, from: usize, message: impl IntoIterator<Item = (u16, TimedMessage)>) {
            for (to, message) in message {
                self.links[from][usize::from(to)].push_back(message);
            }
        }

        fn holders(&self) -> usize {
            self.nodes.iter().flatten().filter(|one| one.holds()).count()
        }

        fn next(&self, without: Without) -> Vec<Self> {
            let mut all: Vec<Self> = self.members_change(without).into_iter().collect();
            for at in 0..ALL {
                all.extend(self.does(at));
                for from in 0..ALL {
                    all.extend(self.hears(from, at, without));
                }
            }
            all
        }

        fn members_change(&self, without: Without) -> Vec<Self> {
            let mut all = Vec::new();
            if let Some(&at) = ORDER.get(self.comes) {
                let mut next = self.clone();
                next.comes += 1;
                match &mut next.nodes[at] {
                    Some(one) => {
                        let message = one.follow(&[0, 1, 2].into());
                        next.say(at, message);
                    }
                    none => {
                        let mut new = Lamport::among(2, [0, 1]);
                        if without == Without::Hello {
                            new.silent.clear();
                        }
                        *none = Some(new);
                    }
                }
                all.push(next);
            } else if let Some(at @ 0..2) = self.goes {
                let mut next = self.clone();
                next.goes = Some(at + 1);
                next.nodes[2] = None;
                next.wants[2] = 0;
                let one = next.nodes[at].as_mut().expect("it is there");
                one.follow(&[0, 1].into());
                all.push(next);
            }
            all
        }

        fn does(&self, at: usize) -> Option<Self> {
            let mut next = self.clone();
            let one = next.nodes[at].as_mut()?;
            let message = if one.holds() {
                one.release()
            } else if one.may_request() && next.wants[at] > 0 {
                next.wants[at] -= 1;
                one.request()
            } else {
                return None;
            };
            next.say(at, message);
            Some(next)
        }

        fn hears(&self, from: usize, at: usize, without: Without) -> Option<Self> {
            let mut next = self.clone();
            let message = next.links[from][at].pop_front()?;
            let Some(one) = next.nodes[at].as_mut() else { return Some(next) };
            let answer = one.hear(from as u16, message);
            if without == Without::Acks && one.mine.is_some() {
                one.heard.values_mut().for_each(|heard| *heard = u64::MAX);
            }
            next.say(at, answer);
            Some(next)
        }
    }

    /// Returns the number of states, or one in which two nodes have the lock, or one never gets it.
    fn explore(first: Model, without: Without) -> Result<usize, Box<Model>> {
        let mut seen = HashSet::new();
        let mut left = vec![first];
        while let Some(state) = left.pop() {
            let next = state.next(without);
            let wants = |one: &Lamport| one.mine.is_some();
            let stuck = next.is_empty()
                && (state.nodes.iter().flatten().any(wants) || state.wants != [0; ALL]);
            if state.holders() > 1 || stuck {
                return Err(Box::new(state));
            }
            left.extend(next.into_iter().filter(|one| seen.insert(one.clone())));
        }
        Ok(seen.len())
    }

    #[test]
    fn one_node_at_a_time_has_the_lock_and_each_gets_it() {
        let states = explore(Model::new([1; ALL], false), Without::Nothing).expect("it is so");
        assert!(states > 10_000, "only {states}");
    }

    #[test]
    fn a_node_that_goes_is_in_nobodys_way() {
        explore(Model::new([1, 0, 1], true), Without::Nothing).expect("it is so");
    }

    #[test]
    fn no_rule_can_be_left_out() {
        for without in [Without::Hello, Without::Acks] {
            assert!(
                explore(Model::new([1; ALL], false), without).is_err(),
                "{without:?} is not needed"
            );
        }
    }
}
