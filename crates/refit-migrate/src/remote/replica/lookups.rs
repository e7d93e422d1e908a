//! Lookups that a replica makes, and its answers to those of other nodes.

use std::collections::BTreeSet;
use std::io;

use refit_messages::InstanceId;
use refit_tracer::placement::TOP;

use crate::lookup::cache::AnswerSource;
use crate::lookup::{LookupAnswer, Plan, pass_on, pending, shown_range};
use crate::protocol::messages::{Mapping, Retrieve, Retrieved, Seek, SeekAnswer};
use crate::remote::replica::Replica;

impl Replica {
    /// Looks up what is at an address, by the program's protocol or at the origin alone.
    ///
    /// # Errors
    /// The origin is gone (`NotConnected`).
    pub(crate) fn look_up(
        &self,
        thread: u32,
        address: u64,
        only_origin: bool,
    ) -> io::Result<LookupAnswer> {
        let (mark, plan, gap) = {
            let known = self.mapped.known();
            (known.mark(), known.plan().clone(), known.gap(address))
        };
        let mut messages = 0;
        if !only_origin && !plan.whom.is_empty() {
            let (found, sent) = self.ask_others(thread, address, &plan);
            if let Some(pending::Answer { mapping, source, messages }) = found {
                let messages = u64::from(messages).max(sent);
                return Ok(LookupAnswer { mapping, beside: Vec::new(), source, mark, messages });
            }
            messages = sent;
        }
        let (group, beside) = (self.group, self.fault_around);
        let question = Retrieve { group, thread, address, gap, beside };
        let answer = self.layer.ask(self.group.home(), &question, &[]);
        let (found, _) = answer.map_err(|_| io::ErrorKind::NotConnected)?;
        let Retrieved { mapping, beside } = found;
        let (source, messages) = (AnswerSource::Origin, messages + 2);
        Ok(LookupAnswer { mapping, beside, source, mark, messages })
    }

    /// Asks other nodes. Returns the answer, and the number of messages that this takes at least.
    fn ask_others(&self, thread: u32, address: u64, plan: &Plan) -> (Option<pending::Answer>, u64) {
        let number = self.queries.begin(if plan.at_once { plan.whom.len() + 1 } else { 1 });
        let (group, asker) = (self.group, self.layer.own().0);
        let (moves, messages) = (self.store().is_some(), 1);
        let mut sent = 0;
        let mut ask = |to, left| {
            let seek = Seek { group, asker, number, thread, address, moves, left, messages };
            match self.layer.send(InstanceId(to), &seek, &[]) {
                Ok(()) => sent += 2,
                Err(_) => self.queries.on_answer(number, None),
            }
        };
        if plan.at_once {
            plan.whom.iter().chain([&group.origin]).for_each(|&one| ask(one, Vec::new()));
        } else {
            // Only by nodes that this one is connected to: the loss of any of them from here on has
            // the lookup given up.
            let heard: BTreeSet<u16> = self.layer.peers().iter().map(|peer| peer.id.0).collect();
            let mut left = plan.whom.clone();
            left.retain(|one| heard.contains(one));
            left.push(group.origin);
            let first = left.remove(0);
            ask(first, left);
        }
        let found = self.queries.wait(number);
        (found.filter(|found| shown_range(&found.mapping).contains(&address)), sent)
    }

    /// Answers the lookup of another node, or passes it on.
    pub(crate) fn on_seek(&self, seek: Seek) {
        let here = if seek.moves == self.store().is_some() {
            self.mapped.known().at(seek.address)
        } else {
            None
        };
        let mapping = here.map(|(range, access)| Mapping::Frames { range, access });
        pass_on(&self.layer, seek, mapping);
    }

    /// Handles the answer of another node.
    pub(crate) fn on_found(&self, from: InstanceId, found: SeekAnswer) {
        let SeekAnswer { number, mapping, messages, .. } = found;
        let source = if from == self.group.home() {
            AnswerSource::Origin
        } else {
            AnswerSource::Member(from.0)
        };
        let useful = |mapping: &Mapping| match (source, mapping) {
            (AnswerSource::Origin, _) => true,
            // An answer that may not be used is none.
            (AnswerSource::Member(member), Mapping::Frames { range, .. }) => {
                range.end <= TOP && self.mapped.known().believes(member)
            }
            (AnswerSource::Member(_), _) => false,
        };
        let mapping = mapping.filter(useful);
        let found = mapping.map(|mapping| pending::Answer { mapping, source, messages });
        self.queries.on_answer(number, found);
    }
}
