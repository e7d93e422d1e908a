//! What a replica does to find what is at an address, and what it says to others who look for that.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use refit_messages::{InstanceId, Layer};
use refit_tracer::placement::TOP;

use crate::lookup::cache::AnswerSource;
use crate::lookup::{MappingCache, Mark, Plan, pending};
use crate::protocol::messages::{Found, Frames, Mapping, Retrieve, Retrieved, Seek};
use crate::remote::replica::Replica;

/// An answer.
pub(crate) struct LookupAnswer {
    pub(crate) mapping: Mapping,
    /// What else is there, near it.
    pub(crate) beside: Vec<Frames>,
    pub(crate) by: AnswerSource,
    /// When it was asked for.
    pub(crate) asked: Mark,
    /// Messages that it took.
    pub(crate) messages: u64,
}

impl LookupAnswer {
    /// Whether it may be used by who knows this.
    pub(crate) fn holds(&self, known: &MappingCache) -> bool {
        known.allows(self.asked, self.by, &shows(&self.mapping))
    }

    pub(crate) fn by_origin(&self) -> bool {
        self.by == AnswerSource::Origin
    }
}

/// What a mapping shows; that nothing is there, of any address.
fn shows(mapping: &Mapping) -> Range<u64> {
    match mapping {
        Mapping::Nothing => 0..u64::MAX,
        Mapping::Frames { range, .. } | Mapping::File { range, .. } => range.clone(),
    }
}

/// Answers who seeks with what is mapped here, or has it sought on.
pub(crate) fn pass_on(layer: &Layer, mut seek: Seek, mapping: Option<Mapping>) {
    let (group, number) = (seek.group, seek.number);
    seek.messages = seek.messages.saturating_add(1);
    while mapping.is_none() && !seek.left.is_empty() {
        let next = InstanceId(seek.left.remove(0));
        // One that is lost is passed over.
        if layer.send(next, &seek, &[]).is_ok() {
            return;
        }
    }
    let found = Found { group, number, mapping, messages: seek.messages };
    // If the asker is lost it needs no answer.
    let _ = layer.send(InstanceId(seek.asker), &found, &[]);
}

impl Replica {
    /// Asks what is at an address, as the protocol says or only the origin.
    ///
    /// # Errors
    /// The origin is no more.
    pub(crate) fn look_up(
        &self,
        thread: u32,
        address: u64,
        only_origin: bool,
    ) -> io::Result<LookupAnswer> {
        let (asked, plan, gap) = {
            let known = self.mapped.known();
            (known.mark(), known.plan().clone(), known.gap(address))
        };
        let mut messages = 0;
        if !only_origin && !plan.whom.is_empty() {
            let (found, sent) = self.seek(thread, address, &plan);
            if let Some(pending::Answer { mapping, by, messages }) = found {
                let messages = u64::from(messages).max(sent);
                return Ok(LookupAnswer { mapping, beside: Vec::new(), by, asked, messages });
            }
            messages = sent;
        }
        let (group, beside) = (self.group, self.beside);
        let question = Retrieve { group, thread, address, gap, beside };
        let answer = self.layer.ask(self.group.home(), &question, &[]);
        let (found, _) = answer.map_err(|_| io::ErrorKind::NotConnected)?;
        let Retrieved { mapping, beside } = found;
        Ok(LookupAnswer {
            mapping,
            beside,
            by: AnswerSource::Origin,
            asked,
            messages: messages + 2,
        })
    }

    /// Asks others; the answer, and how many messages that takes at least.
    fn seek(&self, thread: u32, address: u64, plan: &Plan) -> (Option<pending::Answer>, u64) {
        let number = self.seeks.begin(if plan.at_once { plan.whom.len() + 1 } else { 1 });
        let (group, asker) = (self.group, self.layer.own().0);
        let (moves, messages) = (self.store().is_some(), 1);
        let mut sent = 0;
        let mut ask = |to, left| {
            let seek = Seek { group, asker, number, thread, address, moves, left, messages };
            match self.layer.send(InstanceId(to), &seek, &[]) {
                Ok(()) => sent += 2,
                Err(_) => self.seeks.answered(number, None),
            }
        };
        if plan.at_once {
            plan.whom.iter().chain([&group.origin]).for_each(|&one| ask(one, Vec::new()));
        } else {
            // Only by those that it hears: whoever of them is lost from here on has it given up.
            let heard: BTreeSet<u16> = self.layer.peers().iter().map(|peer| peer.id.0).collect();
            let mut left = plan.whom.clone();
            left.retain(|one| heard.contains(one));
            left.push(group.origin);
            let first = left.remove(0);
            ask(first, left);
        }
        let found = self.seeks.wait(number);
        (found.filter(|found| shows(&found.mapping).contains(&address)), sent)
    }

    /// Another instance looks for what is at an address.
    pub(crate) fn is_sought(&self, seek: Seek) {
        let here = if seek.moves == self.store().is_some() {
            self.mapped.known().at(seek.address)
        } else {
            None
        };
        let mapping = here.map(|(range, access)| Mapping::Frames { range, access });
        pass_on(&self.layer, seek, mapping);
    }

    /// Somebody has answered.
    pub(crate) fn found(&self, from: InstanceId, found: Found) {
        let Found { number, mapping, messages, .. } = found;
        let by = if from == self.group.home() {
            AnswerSource::Origin
        } else {
            AnswerSource::Member(from.0)
        };
        let useful = |mapping: &Mapping| match (by, mapping) {
            (AnswerSource::Origin, _) => true,
            // It cannot be used where it would not be believed.
            (AnswerSource::Member(member), Mapping::Frames { range, .. }) => {
                range.end <= TOP && self.mapped.known().believes(member)
            }
            (AnswerSource::Member(_), _) => false,
        };
        let mapping = mapping.filter(useful);
        let found = mapping.map(|mapping| pending::Answer { mapping, by, messages });
        self.seeks.answered(number, found);
    }
}
