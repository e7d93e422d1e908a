//! Lookups at the origin, and the plans by which other nodes look up.
//!
//! If nodes ask only the origin, they receive nothing but invalidations. Otherwise they receive the
//! list of members, too, and ranges that they invalidate are frozen until the change is made
//! ([`lookup::cache`](crate::lookup::cache)). All nodes follow a change of the members before
//! anything else is decided.

use std::collections::BTreeSet;
use std::time::Instant;

use refit_messages::{InstanceId, Reply};

use crate::error::MoveError;
use crate::lookup::{Plan, pass_on};
use crate::mm_lock::Lock;
use crate::origin::coordinator::Coordinator;
use crate::protocol::messages::{Follow, InvalidateDone, Mapping, Retrieve, Retrieved, Seek};

impl Coordinator {
    pub(super) fn on_retrieve(&mut self, question: Retrieve, reply: Reply<Retrieve>) {
        let Retrieve { thread, address, gap, beside, .. } = question;
        let mapping = self.look_up(thread, address);
        let beside = match mapping {
            Mapping::Frames { .. } => self.space.beside(address, &gap, beside.into()),
            Mapping::File { .. } | Mapping::Nothing => Vec::new(),
        };
        reply.say(&Retrieved { mapping, beside }, &[]);
    }

    pub(super) fn on_seek(&mut self, seek: Seek) {
        let mapping = self.look_up(seek.thread, seek.address);
        pass_on(&self.layer, seek, Some(mapping));
    }

    /// Returns what is at an address for a thread.
    fn look_up(&mut self, thread: u32, address: u64) -> Mapping {
        let began = Instant::now();
        let (mapping, made) = self.space.look_up(address).unwrap_or_else(|error| {
            // Memory that cannot be shared can be touched here: the thread returns.
            if let why @ MoveError::NoMemory(_) = error.into() {
                self.want_home(thread, &why);
            }
            (Mapping::Nothing, false)
        });
        self.ledger.counts().count_answer(&mapping, made, began);
        mapping
    }

    /// Sends all nodes that have a replica the members and their plans, if any has changed: a node
    /// has become a member, which receives its plan first, or is lost, or the protocol was swapped.
    pub(super) fn plan_retrievals(&mut self, comes: Option<InstanceId>) {
        let connected: BTreeSet<u16> = self.layer.peers().iter().map(|peer| peer.id.0).collect();
        let ready = self.ready.keys().map(|node| node.0);
        let members: BTreeSet<u16> = ready.filter(|one| connected.contains(one)).collect();
        let list: Vec<u16> = members.iter().copied().collect();
        let plan = |asker: u16| {
            let others: Vec<u16> = connected.iter().copied().filter(|&one| one != asker).collect();
            self.retrieval.plan(asker, &others, &list)
        };
        let mut plans: Vec<(u16, Plan)> = list.iter().map(|&one| (one, plan(one))).collect();
        let asks = plans.iter().any(|(_, plan)| !plan.whom.is_empty());
        if !asks && !self.members_are_asked && self.lock == Lock::Queue {
            return;
        }
        plans.sort_by_key(|&(node, _)| comes != Some(InstanceId(node)));
        // Before the first node may ask, and until the last may not.
        self.members_are_asked |= asks;
        for (node, plan) in plans {
            let follow = Follow { group: self.group, members: members.clone(), plan };
            // A node that is lost meanwhile asks nobody, once it knows; its loss, which is reported
            // here, makes it no member.
            let _ = self.layer.ask(InstanceId(node), &follow, &[]);
        }
        self.members_are_asked = asks;
    }

    /// Thaws what was frozen: it has changed, or does not.
    pub(super) fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen) {
            for &node in &self.destinations {
                // A node that is lost needs no answers.
                let _ = self.layer.send(node, &InvalidateDone { group: self.group }, &[]);
            }
        }
    }
}
