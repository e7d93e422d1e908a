//! What an instance knows of a group's memory, and which answers it may use.
//!
//! An instance has *ranges* mapped. It may answer others from them, and it maps what it was answered; in between the memory may have changed.
//! That no mapping outlives what it shows rests on these:
//!
//! 1. Before a change the origin has all members forget what it concerns, and waits for all. What is forgotten is *frozen* there until the change is
//!    made, and then is *thawed*.
//! 2. An answer of the origin is used unless anything was forgotten since it was asked for. (It answers one after the other, and not during a change.)
//! 3. An answer of another member is used unless anything was forgotten, thawed or said about members since it was asked for, and unless what it
//!    shows touches what is frozen.
//! 4. Who is no member any more, since it was lost, is not believed by anybody before the origin goes on.
//!
//! Why that is enough: let P answer A from a range which a change makes untrue. P has forgotten the range before the change, so it has answered before
//! that, and A has asked before. If A asked before it forgot, the count is another when the answer is used. If it asked after that, either
//! it has not thawed yet, and the range is frozen, or it has thawed since it asked, and the count is another. For A has thawed only after P had forgotten, thus after
//! it asked. What P has mapped was used by the same rules, and so is as true as what the origin says. The other way round no use is barred for ever: the
//! origin's answers do not depend on what is frozen, and its queue puts them behind the change.
//!
//! The model below tries all interleavings, and finds what goes wrong without each of these.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::lookup::Plan;

/// What one instance knows, all at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MappingCache {
    /// What it has mapped of the group's frames, by where that begins: where it ends, and what may be done there (`PROT_*`).
    ranges: BTreeMap<u64, (u64, u32)>,
    /// What the origin is about to change.
    frozen: Vec<Range<u64>>,
    members: BTreeSet<u16>,
    plan: Plan,
    /// How often something was forgotten.
    forgets: u64,
    /// How often that, or something was thawed, or said about members.
    turns: u64,
}

/// When a question was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    forgets: u64,
    turns: u64,
}

/// Who has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AnswerSource {
    Origin,
    Member(u16),
}

impl MappingCache {
    /// What is asked from now on.
    pub(crate) fn mark(&self) -> Mark {
        Mark { forgets: self.forgets, turns: self.turns }
    }

    /// Whom to ask besides the origin.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether an instance may answer.
    pub(crate) fn believes(&self, member: u16) -> bool {
        self.members.contains(&member)
    }

    /// Whether an answer may be mapped that shows this, to a question of then.
    pub(crate) fn allows(&self, asked: Mark, by: AnswerSource, shows: &Range<u64>) -> bool {
        match by {
            AnswerSource::Origin => asked.forgets == self.forgets,
            AnswerSource::Member(member) => {
                let touches = |one: &Range<u64>| one.start < shows.end && shows.start < one.end;
                asked.turns == self.turns
                    && self.believes(member)
                    && !self.frozen.iter().any(touches)
            }
        }
    }

    /// What it has mapped around an address.
    pub(crate) fn at(&self, address: u64) -> Option<(Range<u64>, u32)> {
        let (&start, &(end, access)) = self.ranges.range(..=address).next_back()?;
        (address < end).then_some((start..end, access))
    }

    /// What is not mapped around an address that is not.
    pub(crate) fn gap(&self, address: u64) -> Range<u64> {
        let below = self.ranges.range(..=address).next_back();
        let above = self.ranges.range(address..).next();
        below.map_or(0, |(_, &(end, _))| end)..above.map_or(u64::MAX, |(&start, _)| start)
    }

    /// It has mapped this.
    pub(crate) fn insert(&mut self, range: &Range<u64>, access: u32) {
        self.remove(range);
        self.ranges.insert(range.start, (range.end, access));
    }

    /// Nothing is mapped there any more.
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

    /// This is to change, and only then is to be thawed if it `freezes`.
    pub(crate) fn forget(&mut self, ranges: &[Range<u64>], freezes: bool) {
        self.forgets += 1;
        self.turns += 1;
        if freezes {
            self.frozen.extend_from_slice(ranges);
        }
        ranges.iter().for_each(|range| self.remove(range));
    }

    /// It has changed.
    pub(crate) fn thaw(&mut self) {
        self.turns += 1;
        self.frozen.clear();
    }

    /// Others are members, and asked, from now on.
    pub(crate) fn follow(&mut self, members: BTreeSet<u16>, plan: Plan) {
        self.turns += 1;
        (self.members, self.plan) = (members, plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    const PAGE: u64 = 4096;
    /// The origin is 0.
    const REPLICAS: [u16; 2] = [1, 2];

    #[test]
    fn what_is_mapped_is_known_piece_by_piece() {
        let mut known = MappingCache::default();
        known.insert(&(PAGE..9 * PAGE), 3);
        known.remove(&(3 * PAGE..4 * PAGE));
        assert_eq!(known.at(2 * PAGE), Some((PAGE..3 * PAGE, 3)));
        assert_eq!(known.at(3 * PAGE), None);
        assert_eq!(known.gap(3 * PAGE), 3 * PAGE..4 * PAGE);
        assert_eq!(known.gap(9 * PAGE), 9 * PAGE..u64::MAX);
        assert_eq!(known.gap(0), 0..PAGE);
        assert_eq!(known.at(8 * PAGE), Some((4 * PAGE..9 * PAGE, 3)));
        known.insert(&(0..12 * PAGE), 1);
        assert_eq!(known.at(11 * PAGE), Some((0..12 * PAGE, 1)));
        known.remove(&(0..u64::MAX));
        assert_eq!(known.at(PAGE), None);
    }

    /// What the origin tells a replica, which does it in this order.
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
        /// Its question: when, whom, and at which page.
        asks: Option<(Mark, AnswerSource, u64)>,
        /// The answer on its way, or here and not used yet: what it shows, and of which version.
        answer: Option<(Range<u64>, u32)>,
    }

    /// Everything at one moment. Two pages of one mapping, of which the second is changed; what may be done with a page is its version.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        replicas: [Replica; 2],
        /// The version of the second page.
        version: u32,
        /// Changes that are left.
        left: u8,
        /// Replicas that have not said yet that they have forgotten, or know who is member.
        awaited: BTreeSet<usize>,
        changing: bool,
        /// The second replica and the origin do not hear each other any more, but both hear the first.
        lost: bool,
        may_lose: bool,
    }

    /// Which check is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Without {
        Nothing,
        Count,
        Frozen,
        Members,
    }

    const CHANGED: Range<u64> = PAGE..2 * PAGE;

    impl World {
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

        /// What is not so, if anything.
        fn is_wrong(&self) -> bool {
            let there = if self.lost { &self.replicas[..1] } else { &self.replicas[..] };
            let old = |replica: &Replica, page: u64, version: u32| {
                replica.known.at(page).is_some_and(|(_, access)| access != version)
            };
            there.iter().any(|replica| old(replica, 0, 0) || old(replica, PAGE, self.version))
        }

        /// What the origin says is there.
        fn truth(&self, page: u64) -> (Range<u64>, u32) {
            match (self.version, page) {
                (0, _) => (0..2 * PAGE, 0),
                (_, 0) => (0..PAGE, 0),
                (version, _) => (CHANGED, version),
            }
        }

        /// All that can happen next.
        fn next(&self, without: Without) -> Vec<Self> {
            let mut all: Vec<Self> = self.origin_does().into_iter().collect();
            if self.may_lose && !self.lost {
                let mut next = self.clone();
                next.lost = true;
                // Who is lost is waited for no more; the other one learns of it before anything is waited for no more.
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
                Order::Invalidate => replica.known.forget(&[CHANGED], true),
                Order::InvalidateDone => {
                    replica.known.thaw();
                    return Some(next);
                }
                Order::Follow => replica.known.follow([REPLICAS[0]].into(), Plan::default()),
            }
            // It says so, which the origin hears unless it still waits for more.
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
            [(AnswerSource::Origin, 0), (AnswerSource::Origin, PAGE), (other, 0), (other, PAGE)]
                .map(ask)
                .into()
        }

        fn is_answered(&self, at: usize) -> Option<Self> {
            let Replica { asks: Some((_, by, page)), answer: None, .. } = self.replicas[at] else {
                return None;
            };
            let mut next = self.clone();
            match by {
                // Its queue.
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

    /// How many worlds there are; one that is wrong, if any is.
    fn explore(without: Without) -> Result<usize, Box<World>> {
        let mut seen = HashSet::new();
        let mut left = vec![World::new(false), World::new(true)];
        while let Some(world) = left.pop() {
            if world.is_wrong() {
                return Err(Box::new(world));
            }
            if seen.insert(world.clone()) {
                left.extend(world.next(without));
            }
        }
        Ok(seen.len())
    }

    #[test]
    fn no_mapping_outlives_what_it_shows() {
        let worlds = explore(Without::Nothing).expect("none is wrong");
        assert!(worlds > 10_000, "only {worlds}");
    }

    #[test]
    fn no_check_can_be_left_out() {
        for without in [Without::Count, Without::Frozen, Without::Members] {
            assert!(explore(without).is_err(), "{without:?} is not needed");
        }
    }
}
