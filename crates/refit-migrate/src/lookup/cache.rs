//! The mappings of a group that a node knows, and the answers to lookups that it may use.
//!
//! A node has *ranges* mapped. It answers other nodes' lookups from them, and maps the answers that
//! it receives. The memory may change between an answer and its use. Four rules ensure that no node
//! keeps or makes a mapping that a change has removed:
//!
//! 1. Before a change, the origin has all members invalidate the ranges that the change concerns,
//!    and waits for all of them. Each member also *freezes* the invalidated ranges, and *thaws*
//!    them when the origin has reported that the change is made.
//! 2. A node uses an answer of the origin unless it has invalidated anything since it asked. (The
//!    origin answers one lookup after the other, and none during a change.)
//! 3. A node uses an answer of another member unless, since it asked, it has invalidated or thawed
//!    anything or received a new list of members, and unless the answer's range touches a frozen
//!    range.
//! 4. A lost member is removed from the list of members. The origin continues only when no node
//!    uses the lost member's answers any more.
//!
//! Proof that the rules are enough: let P answer a lookup of A from a range that a change makes
//! untrue. P invalidates the range before the change, so P has answered before that, and A has
//! asked before that. Consider A's own invalidation for the same change. If A asked before it, A's
//! count of invalidations differs when A uses the answer (rule 3). If A asked after it, either A
//! has not thawed the range yet, and the range is frozen; or A has thawed it since it asked, and
//! the count differs. A cannot have thawed it earlier: A thaws only after P has invalidated, which
//! is after A asked. The mappings that P answers from were made by the same rules, so they are as
//! true as an answer of the origin.
//!
//! No answer is refused forever: rule 2 does not depend on frozen ranges, and the origin's queue
//! handles the lookup after the change.
//!
//! The model below explores all interleavings, and finds an error when a node skips any of the
//! three checks: the counts, the frozen ranges, and the list of members.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::lookup::protocol::Plan;

/// The knowledge of one node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MappingCache {
    /// The frames that it has mapped, by the start of the range: its end, and the access
    /// (`PROT_*`).
    ranges: BTreeMap<u64, (u64, u32)>,
    /// The ranges that the origin is about to change.
    frozen: Vec<Range<u64>>,
    members: BTreeSet<u16>,
    plan: Plan,
    /// The number of invalidations.
    invalidations: u64,
    /// The number of invalidations, thaws, and changes of the members.
    changes: u64,
}

/// When a lookup began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    invalidations: u64,
    changes: u64,
}

/// The node that has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnswerSource {
    Origin,
    Member(u16),
}

impl MappingCache {
    /// Returns the mark of a lookup that begins now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { invalidations: self.invalidations, changes: self.changes }
    }

    /// Returns the nodes to ask besides the origin.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns whether answers of a node may be used.
    pub(crate) fn believes(&self, member: u16) -> bool {
        self.members.contains(&member)
    }

    /// Returns whether an answer may be mapped that says something of the range `shows`, to a
    /// lookup that began at `asked`.
    pub(crate) fn allows(&self, mark: Mark, source: AnswerSource, shows: &Range<u64>) -> bool {
        match source {
            AnswerSource::Origin => mark.invalidations == self.invalidations,
            AnswerSource::Member(member) => {
                let touches = |one: &Range<u64>| one.start < shows.end && shows.start < one.end;
                mark.changes == self.changes
                    && self.believes(member)
                    && !self.frozen.iter().any(touches)
            }
        }
    }

    /// Returns the mapped range around an address, and its access.
    pub(crate) fn at(&self, address: u64) -> Option<(Range<u64>, u32)> {
        let (&start, &(end, access)) = self.ranges.range(..=address).next_back()?;
        (address < end).then_some((start..end, access))
    }

    /// Returns the unmapped range around an unmapped address.
    pub(crate) fn gap(&self, address: u64) -> Range<u64> {
        let below = self.ranges.range(..=address).next_back();
        let above = self.ranges.range(address..).next();
        below.map_or(0, |(_, &(end, _))| end)..above.map_or(u64::MAX, |(&start, _)| start)
    }

    /// Notes that a range was mapped.
    pub(crate) fn insert(&mut self, range: &Range<u64>, access: u32) {
        self.remove(range);
        self.ranges.insert(range.start, (range.end, access));
    }

    /// Notes that nothing is mapped in a range any more.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        let before = self.ranges.range(..range.end).rev();
        let cut: Vec<(u64, (u64, u32))> = before
            .take_while(|&(_, &(end, _))| end > range.start)
            .map(|(&start, &one)| (start, one))
            .collect();
        for (start, (end, access)) in cut {
            self.ranges.remove(&start);
            if start < range.start {
                self.ranges.insert(start, (range.start, access));
            }
            if range.end < end {
                self.ranges.insert(range.end, (end, access));
            }
        }
    }

    /// Removes ranges that are about to change. If `freezes`, they stay frozen until
    /// [`thaw`](Self::thaw).
    pub(crate) fn invalidate(&mut self, ranges: &[Range<u64>], freezes: bool) {
        self.invalidations += 1;
        self.changes += 1;
        if freezes {
            self.frozen.extend_from_slice(ranges);
        }
        ranges.iter().for_each(|range| self.remove(range));
    }

    /// Thaws what is frozen: it has changed.
    pub(crate) fn thaw(&mut self) {
        self.changes += 1;
        self.frozen.clear();
    }

    /// Changes the members, and which nodes are asked.
    pub(crate) fn follow(&mut self, members: BTreeSet<u16>, plan: Plan) {
        self.changes += 1;
        (self.members, self.plan) = (members, plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PAGE_SIZE;
    use std::collections::{HashSet, VecDeque};

    /// The origin is node 0.
    const REPLICAS: [u16; 2] = [1, 2];

    #[test]
    fn ranges_are_cut_where_they_are_unmapped() {
        let mut known = MappingCache::default();
        known.insert(&(PAGE_SIZE..9 * PAGE_SIZE), 3);
        known.remove(&(3 * PAGE_SIZE..4 * PAGE_SIZE));
        assert_eq!(known.at(2 * PAGE_SIZE), Some((PAGE_SIZE..3 * PAGE_SIZE, 3)));
        assert_eq!(known.at(3 * PAGE_SIZE), None);
        assert_eq!(known.gap(3 * PAGE_SIZE), 3 * PAGE_SIZE..4 * PAGE_SIZE);
        assert_eq!(known.gap(9 * PAGE_SIZE), 9 * PAGE_SIZE..u64::MAX);
        assert_eq!(known.gap(0), 0..PAGE_SIZE);
        assert_eq!(known.at(8 * PAGE_SIZE), Some((4 * PAGE_SIZE..9 * PAGE_SIZE, 3)));
        known.insert(&(0..12 * PAGE_SIZE), 1);
        assert_eq!(known.at(11 * PAGE_SIZE), Some((0..12 * PAGE_SIZE, 1)));
        known.remove(&(0..u64::MAX));
        assert_eq!(known.at(PAGE_SIZE), None);
    }

    /// The orders of the origin to a replica, which executes them in this order.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    enum Order {
        Invalidate,
        InvalidateDone,
        Follow,
    }

    /// One replica.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Replica {
        known: MappingCache,
        orders: VecDeque<Order>,
        /// Its lookup: when it began, the node that is asked, and the page.
        asks: Option<(Mark, AnswerSource, u64)>,
        /// The answer on its way, or here and not used yet: the range, and the version that it
        /// shows.
        answer: Option<(Range<u64>, u32)>,
    }

    /// The state of all nodes at one moment. There are two pages of one mapping, of which the
    /// second is changed; the access of a page stands for its version.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Model {
        replicas: [Replica; 2],
        /// The version of the second page.
        version: u32,
        /// The number of changes that are left.
        left: u8,
        /// Replicas that have not acknowledged yet that they have invalidated, or changed their
        /// members.
        awaited: BTreeSet<usize>,
        changing: bool,
        /// Whether the second replica and the origin have lost each other, while both still hear
        /// the first replica.
        lost: bool,
        may_lose: bool,
    }

    /// The rule that is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Without {
        Nothing,
        Count,
        Frozen,
        Members,
    }

    const CHANGED: Range<u64> = PAGE_SIZE..2 * PAGE_SIZE;

    impl Model {
        fn new(may_lose: bool) -> Self {
            let replica = |_| {
                let mut known = MappingCache::default();
                known.follow(REPLICAS.into(), Plan::default());
                Replica { known, orders: VecDeque::new(), asks: None, answer: None }
            };
            Self {
                replicas: REPLICAS.map(replica),
                version: 0,
                left: 2,
                awaited: BTreeSet::new(),
                changing: false,
                lost: false,
                may_lose,
            }
        }

        /// Returns whether a replica maps a version that is not current.
        fn is_wrong(&self) -> bool {
            let there = if self.lost { &self.replicas[..1] } else { &self.replicas[..] };
            let old = |replica: &Replica, page: u64, version: u32| {
                replica.known.at(page).is_some_and(|(_, access)| access != version)
            };
            there.iter().any(|replica| old(replica, 0, 0) || old(replica, PAGE_SIZE, self.version))
        }

        /// Returns the origin's answer.
        fn truth(&self, page: u64) -> (Range<u64>, u32) {
            match (self.version, page) {
                (0, _) => (0..2 * PAGE_SIZE, 0),
                (_, 0) => (0..PAGE_SIZE, 0),
                (version, _) => (CHANGED, version),
            }
        }

        /// Returns all states that can come next.
        fn next(&self, without: Without) -> Vec<Self> {
            let mut all: Vec<Self> = self.origin_does().into_iter().collect();
            if self.may_lose && !self.lost {
                let mut next = self.clone();
                next.lost = true;
                // The origin waits no more for the lost replica. The other replica learns of the
                // loss before anything else happens at the origin.
                next.awaited.remove(&1);
                next.replicas[0].orders.push_back(Order::Follow);
                next.awaited.insert(0);
                all.push(next);
            }
            for at in 0..2 {
                all.extend(self.does_order(at));
                all.extend(self.asks(at));
                all.extend(self.is_answered(at));
                all.extend(self.uses(at, without));
            }
            all
        }

        fn origin_does(&self) -> Option<Self> {
            let mut next = self.clone();
            if !self.awaited.is_empty() {
                return None;
            }
            if self.changing {
                next.changing = false;
                next.version += 1;
                next.tell(&Order::InvalidateDone);
            } else {
                next.left = self.left.checked_sub(1)?;
                next.changing = true;
                next.awaited = next.tell(&Order::Invalidate);
            }
            Some(next)
        }

        fn tell(&mut self, order: &Order) -> BTreeSet<usize> {
            let there = if self.lost { 0..1 } else { 0..2 };
            there.clone().for_each(|at| self.replicas[at].orders.push_back(order.clone()));
            there.collect()
        }

        fn does_order(&self, at: usize) -> Option<Self> {
            let mut next = self.clone();
            let replica = &mut next.replicas[at];
            match replica.orders.pop_front()? {
                Order::Invalidate => replica.known.invalidate(&[CHANGED], true),
                Order::InvalidateDone => {
                    replica.known.thaw();
                    return Some(next);
                }
                Order::Follow => replica.known.follow([REPLICAS[0]].into(), Plan::default()),
            }
            // It acknowledges, which the origin hears unless it waits for a later order, too.
            let all_done = replica.orders.iter().all(|order| *order == Order::InvalidateDone);
            let is_heard = at == 0 || !self.lost;
            if all_done && is_heard {
                next.awaited.remove(&at);
            }
            Some(next)
        }

        fn asks(&self, at: usize) -> Vec<Self> {
            if self.replicas[at].asks.is_some() {
                return Vec::new();
            }
            let other = AnswerSource::Member(REPLICAS[1 - at]);
            let ask = |(by, page)| {
                let mut next = self.clone();
                let replica = &mut next.replicas[at];
                replica.asks = Some((replica.known.mark(), by, page));
                next
            };
            [
                (AnswerSource::Origin, 0),
                (AnswerSource::Origin, PAGE_SIZE),
                (other, 0),
                (other, PAGE_SIZE),
            ]
            .map(ask)
            .into()
        }

        fn is_answered(&self, at: usize) -> Option<Self> {
            let Replica { asks: Some((_, by, page)), answer: None, .. } = self.replicas[at] else {
                return None;
            };
            let mut next = self.clone();
            match by {
                // The origin's queue.
                AnswerSource::Origin if self.changing || !self.awaited.is_empty() => return None,
                AnswerSource::Origin if self.lost && at == 1 => return None,
                AnswerSource::Origin => next.replicas[at].answer = Some(self.truth(page)),
                AnswerSource::Member(_) => match self.replicas[1 - at].known.at(page) {
                    Some(answer) => next.replicas[at].answer = Some(answer),
                    None => next.replicas[at].asks = None,
                },
            }
            Some(next)
        }

        fn uses(&self, at: usize, without: Without) -> Option<Self> {
            let mut next = self.clone();
            let replica = &mut next.replicas[at];
            let (range, version) = replica.answer.take()?;
            let (mut mark, by, _) = replica.asks.take()?;
            let mut judge = replica.known.clone();
            match without {
                Without::Nothing => {}
                Without::Count => mark = judge.mark(),
                Without::Frozen => judge.frozen.clear(),
                Without::Members => judge.members = REPLICAS.into(),
            }
            if judge.allows(mark, by, &range) {
                replica.known.insert(&range, version);
            }
            Some(next)
        }
    }

    /// Returns the number of states, or a wrong one.
    fn explore(without: Without) -> Result<usize, Box<Model>> {
        let mut seen = HashSet::new();
        let mut left = vec![Model::new(false), Model::new(true)];
        while let Some(state) = left.pop() {
            if state.is_wrong() {
                return Err(Box::new(state));
            }
            if seen.insert(state.clone()) {
                left.extend(state.next(without));
            }
        }
        Ok(seen.len())
    }

    #[test]
    fn no_mapping_outlives_what_it_shows() {
        let states = explore(Without::Nothing).expect("none is wrong");
        assert!(states > 10_000, "only {states}");
    }

    #[test]
    fn no_check_can_be_left_out() {
        for without in [Without::Count, Without::Frozen, Without::Members] {
            assert!(explore(without).is_err(), "{without:?} is not needed");
        }
    }
}
