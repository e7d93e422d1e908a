//! What is at an address: the origin's word, and whom others are to ask.
//!
//! Where others ask the origin alone, nothing is told to them but what they have to forget. Else they know who is a member, and what they forget is frozen
//! until it has changed ([`retrieval::cache`](crate::lookup::cache)). They follow a change of that before anything else is decided.

use std::collections::BTreeSet;
use std::time::Instant;

use refit_messages::{InstanceId, Reply};

use crate::error::MoveError;
use crate::lookup::{Plan, pass_on};
use crate::mm_lock::Lock;
use crate::origin::coordinator::Coordinator;
use crate::protocol::messages::{Follow, InvalidateDone, Mapping, Retrieve, Retrieved, Seek};

impl Coordinator {
    pub(super) fn answer(&mut self, question: Retrieve, reply: Reply<Retrieve>) {
        let Retrieve { thread, address, gap, beside, .. } = question;
        let mapping = self.at(thread, address);
        let beside = match mapping {
            Mapping::Frames { .. } => self.space.beside(address, &gap, beside.into()),
            Mapping::File { .. } | Mapping::Nothing => Vec::new(),
        };
        reply.say(&Retrieved { mapping, beside }, &[]);
    }

    pub(super) fn is_sought(&mut self, seek: Seek) {
        let mapping = self.at(seek.thread, seek.address);
        pass_on(&self.layer, seek, Some(mapping));
    }

    fn at(&mut self, thread: u32, address: u64) -> Mapping {
        let began = Instant::now();
        let (mapping, made) = self.space.at(address).unwrap_or_else(|error| {
            // What cannot be had there can be had here: the thread comes.
            if let why @ MoveError::NoMemory(_) = error.into() {
                self.is_wanted_home(thread, &why);
            }
            (Mapping::Nothing, false)
        });
        self.ledger.counts().answered(&mapping, made, began);
        mapping
    }

    /// Tells all that have a replica who they are and whom to ask, if that is another than it was: one has come, which is told first, or gone, or it was
    /// swapped.
    pub(super) fn plan_retrievals(&mut self, comes: Option<InstanceId>) {
        let connected: BTreeSet<u16> = self.layer.peers().iter().map(|peer| peer.id.0).collect();
        let ready = self.ready.keys().map(|host| host.0);
        let members: BTreeSet<u16> = ready.filter(|one| connected.contains(one)).collect();
        let list: Vec<u16> = members.iter().copied().collect();
        let plan = |asker: u16| {
            let others: Vec<u16> = connected.iter().copied().filter(|&one| one != asker).collect();
            self.retrieval.plan(asker, &others, &list)
        };
        let mut plans: Vec<(u16, Plan)> = list.iter().map(|&one| (one, plan(one))).collect();
        let asks = plans.iter().any(|(_, plan)| !plan.whom.is_empty());
        if !asks && !self.asks_others && self.lock == Lock::Queue {
            return;
        }
        plans.sort_by_key(|&(host, _)| comes != Some(InstanceId(host)));
        // Before the first may ask, and until the last may not.
        self.asks_others |= asks;
        for (host, plan) in plans {
            let follow = Follow { group: self.group, members: members.clone(), plan };
            // One that is lost meanwhile asks nobody, as soon as it knows; that it is told of makes it be no member.
            let _ = self.layer.ask(InstanceId(host), &follow, &[]);
        }
        self.asks_others = asks;
    }

    /// What was frozen has changed, or does not.
    pub(super) fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen) {
            for &host in &self.destinations {
                // One that is lost needs no answers.
                let _ = self.layer.send(host, &InvalidateDone { group: self.group }, &[]);
            }
        }
    }
}
