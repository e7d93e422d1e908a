//! Mutual exclusion among instances that nobody leads (Lamport 1978; Katz 2014, §5.7.4): what each knows, says and hears. It sends nothing itself.
//!
//! Each has a clock, which is beyond all times that it has heard of. Who wants the lock says so to all, with the time; each notes that and says that it
//! has heard. The lock has whoever wants it since the earliest time of all that it knows of, and has heard something later from all others. For
//! links keep order: whoever of those had wanted it earlier would have said so before. Of two of the same time the lower number is earlier.
//!
//! **Others come and go.** One that goes is forgotten by all, with its wish. One that comes is told of the others before these are told of it. Each of them then says
//! to it what it wishes, if it does, and what time it is; before the newcomer has heard that from all it wishes nothing. So whatever it wishes is later
//! than what was wished before it came, and it knows of that.
//!
//! The model tries all interleavings of three, one of which comes late.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LockMessage {
    /// To one that has come: so late it is.
    Hello,
    /// I want it, since then.
    Request,
    /// I have heard.
    Ack,
    /// I want it no more.
    Release,
}

/// A word, and the time that goes with it.
pub(crate) type LockAction = (LockMessage, u64);

/// What one instance knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lamport {
    own: u16,
    clock: u64,
    /// The others, and the latest time that each has said.
    heard: BTreeMap<u16, u64>,
    /// Those that have not said hello yet, which were there before.
    silent: BTreeSet<u16>,
    requests: BTreeSet<(u64, u16)>,
    mine: Option<u64>,
}

impl Lamport {
    /// One that comes to others.
    pub(crate) fn among(own: u16, others: impl IntoIterator<Item = u16>) -> Self {
        let silent: BTreeSet<u16> = others.into_iter().filter(|&one| one != own).collect();
        let heard = silent.iter().map(|&one| (one, 0)).collect();
        Self { own, clock: 0, heard, silent, requests: BTreeSet::new(), mine: None }
    }

    /// How many others there are.
    pub(crate) fn others(&self) -> usize {
        self.heard.len()
    }

    fn to_all(&self, said: LockAction) -> Vec<(u16, LockAction)> {
        self.heard.keys().map(|&one| (one, said)).collect()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Whether it may want the lock.
    pub(crate) fn may_request(&self) -> bool {
        self.silent.is_empty() && self.mine.is_none()
    }

    /// It wants the lock; what it says to whom.
    pub(crate) fn request(&mut self) -> Vec<(u16, LockAction)> {
        let time = self.tick();
        self.mine = Some(time);
        self.requests.insert((time, self.own));
        self.to_all((LockMessage::Request, time))
    }

    /// Whether it has the lock.
    pub(crate) fn holds(&self) -> bool {
        self.mine.is_some_and(|time| {
            self.requests.first() == Some(&(time, self.own))
                && self.heard.values().all(|&heard| heard > time)
        })
    }

    /// It wants the lock no more.
    pub(crate) fn release(&mut self) -> Vec<(u16, LockAction)> {
        let Some(time) = self.mine.take() else { return Vec::new() };
        self.requests.remove(&(time, self.own));
        let now = self.tick();
        self.to_all((LockMessage::Release, now))
    }

    /// Another one says something; what it says to that.
    pub(crate) fn hear(
        &mut self,
        from: u16,
        (word, time): LockAction,
    ) -> Option<(u16, LockAction)> {
        // One that is no member any more.
        let heard = self.heard.get_mut(&from)?;
        *heard = time.max(*heard);
        self.clock = self.clock.max(time);
        match word {
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

    /// Another one is not there any more.
    pub(crate) fn lose(&mut self, other: u16) {
        self.heard.remove(&other);
        self.silent.remove(&other);
        self.requests.retain(|&(_, one)| one != other);
    }

    /// These are members now, among them it; what it says to those that have come.
    pub(crate) fn follow(&mut self, members: &BTreeSet<u16>) -> Vec<(u16, LockAction)> {
        let gone: Vec<u16> =
            self.heard.keys().copied().filter(|one| !members.contains(one)).collect();
        gone.into_iter().for_each(|one| self.lose(one));
        let mut says = Vec::new();
        for &one in members {
            if one == self.own || self.heard.contains_key(&one) {
                continue;
            }
            self.heard.insert(one, 0);
            says.extend(self.mine.map(|time| (one, (LockMessage::Request, time))));
            let now = self.tick();
            says.push((one, (LockMessage::Hello, now)));
        }
        says
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    const ALL: usize = 3;

    /// Everything at one moment.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        instances: [Option<Lamport>; ALL],
        /// By sender and receiver.
        links: [[VecDeque<LockAction>; ALL]; ALL],
        /// How often each still wants the lock.
        wants: [u8; ALL],
        /// Who is told next that the third has come.
        comes: usize,
        /// The third can go, which the others are told one after the other.
        goes: Option<usize>,
    }

    /// What is left out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Without {
        Nothing,
        /// One that comes waits for nobody's hello.
        Hello,
        /// Who wants the lock waits for nobody's word.
        Acks,
    }

    /// In this order instances are told of the third.
    const TOLD: [usize; ALL] = [2, 0, 1];

    impl World {
        fn new(wants: [u8; ALL], may_go: bool) -> Self {
            let mut first = Lamport::among(0, []);
            // The second came when nothing had been said.
            first.follow(&[0, 1].into());
            let mut second = Lamport::among(1, [0]);
            second.hear(0, (LockMessage::Hello, 1));
            Self {
                instances: [Some(first), Some(second), None],
                links: Default::default(),
                wants,
                comes: 0,
                goes: may_go.then_some(0),
            }
        }

        fn say(&mut self, from: usize, said: impl IntoIterator<Item = (u16, LockAction)>) {
            for (to, said) in said {
                self.links[from][usize::from(to)].push_back(said);
            }
        }

        fn holders(&self) -> usize {
            self.instances.iter().flatten().filter(|one| one.holds()).count()
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
            if let Some(&at) = TOLD.get(self.comes) {
                let mut next = self.clone();
                next.comes += 1;
                match &mut next.instances[at] {
                    Some(one) => {
                        let said = one.follow(&[0, 1, 2].into());
                        next.say(at, said);
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
                next.instances[2] = None;
                next.wants[2] = 0;
                let one = next.instances[at].as_mut().expect("it is there");
                one.follow(&[0, 1].into());
                all.push(next);
            }
            all
        }

        fn does(&self, at: usize) -> Option<Self> {
            let mut next = self.clone();
            let one = next.instances[at].as_mut()?;
            let said = if one.holds() {
                one.release()
            } else if one.may_request() && next.wants[at] > 0 {
                next.wants[at] -= 1;
                one.request()
            } else {
                return None;
            };
            next.say(at, said);
            Some(next)
        }

        fn hears(&self, from: usize, at: usize, without: Without) -> Option<Self> {
            let mut next = self.clone();
            let said = next.links[from][at].pop_front()?;
            let Some(one) = next.instances[at].as_mut() else { return Some(next) };
            let answer = one.hear(from as u16, said);
            if without == Without::Acks && one.mine.is_some() {
                one.heard.values_mut().for_each(|heard| *heard = u64::MAX);
            }
            next.say(at, answer);
            Some(next)
        }
    }

    /// How many worlds there are; one in which two have the lock, or one never gets it.
    fn explore(first: World, without: Without) -> Result<usize, Box<World>> {
        let mut seen = HashSet::new();
        let mut left = vec![first];
        while let Some(world) = left.pop() {
            let next = world.next(without);
            let wants = |one: &Lamport| one.mine.is_some();
            let stuck = next.is_empty()
                && (world.instances.iter().flatten().any(wants) || world.wants != [0; ALL]);
            if world.holders() > 1 || stuck {
                return Err(Box::new(world));
            }
            left.extend(next.into_iter().filter(|one| seen.insert(one.clone())));
        }
        Ok(seen.len())
    }

    #[test]
    fn one_at_a_time_has_the_lock_and_each_gets_it() {
        let worlds = explore(World::new([1; ALL], false), Without::Nothing).expect("it is so");
        assert!(worlds > 10_000, "only {worlds}");
    }

    #[test]
    fn one_that_goes_is_in_nobodys_way() {
        explore(World::new([1, 0, 1], true), Without::Nothing).expect("it is so");
    }

    #[test]
    fn nothing_of_it_can_be_left_out() {
        for without in [Without::Hello, Without::Acks] {
            assert!(
                explore(World::new([1; ALL], false), without).is_err(),
                "{without:?} is not needed"
            );
        }
    }
}
