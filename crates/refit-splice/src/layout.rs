//! Decides which instructions of a copied function stay in place, and which bytes of the original
//! change.
//!
//! Control is in the copy, except for
//! - *kept* instructions, which run in place: system calls, traps, and calls (so that a call pushes
//!   the same return address as before, and the processor predicts its return);
//! - *stretches*, which also run in place: the instructions from a place that control enters from
//!   outside up to the next such place, or to where control leaves, if none of them has a site and
//!   they jump to such places only. Running them in the copy would gain nothing.
//!
//! Every other place at which control enters from outside becomes a jump into the copy (a *gate*).
//! Bytes that are neither kept nor in a stretch nor part of a gate are *dead*: control never gets
//! there. So a gate may overwrite as many bytes as are dead, whichever instructions they belong to,
//! and dead bytes nearby hold the long half of a jump that has to be short.
//!
//! *Why control never reaches a dead byte.* Control arrives at an instruction of the original by
//! falling through to it, by a direct jump of the function, or from outside. Instructions that
//! control enters from outside are gates or begin stretches. In the other two cases control comes
//! from an instruction of the original that has run, and that is therefore kept or in a stretch.
//! The instruction after a kept call or system call counts as entered from outside (control
//! returns there), and a trap never continues. A stretch jumps only to places entered from outside,
//! and ends at one.

use std::collections::{BTreeMap, BTreeSet};

use refit_sys::memory::PAGE_SIZE_U64;

use crate::body::{Body, Kind, Member};
use crate::jump::{HOP, JUMP, Way, hop};
use crate::patches::in_one_page;
use crate::relocate;
use crate::reserved::ReservedBytes;
use crate::site::Springboard;
use crate::why::Why;

/// The changes in the original.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// The instructions that are overwritten by jumps to the copy, and the kind of each jump.
    pub(crate) gates: BTreeMap<u64, Way>,
    /// Calls that do not run in place.
    pub(crate) moved: BTreeSet<u64>,
    /// Instructions that run in place.
    pub(crate) stay: BTreeSet<u64>,
}

impl Layout {
    /// Decides the layout of a function with these instructions; those at `wanted` addresses have
    /// sites.
    ///
    /// # Errors
    /// [`Why::Short`]: a place that needs a jump has no room for one.
    pub(crate) fn new(
        body: &Body,
        members: &[Member],
        wanted: &BTreeSet<u64>,
        taken: &ReservedBytes,
    ) -> Result<Self, Why> {
        let mut search = Search::new(body, members, wanted, taken);
        loop {
            let (layout, short) = search.attempt();
            let Some(&(address, room)) = short.first() else { return Ok(layout) };
            if !search.give_way(&short) {
                return Err(Why::Short { address, room });
            }
        }
    }

    /// Returns the gates in the order in which they change. In this order the function can run even
    /// if the change is cut short: gates that have to change at once are adjacent, in one page.
    ///
    /// Until the last change, threads that pass gates not yet written run the original. The
    /// original can run as long as none of its jumps leads into the middle of a gate, and the long
    /// half of no jump has overwritten one of its instructions, even a dead one. So gates that a
    /// jump leads into, and gates whose long half overwrites instructions rather than padding, have
    /// to be in one page, and change last.
    ///
    /// # Errors
    /// [`Why::Torn`]: the gates that change at once are in several pages.
    pub(crate) fn order(&self, body: &Body, members: &[Member]) -> Result<Vec<u64>, Why> {
        let page = |address: u64| address / PAGE_SIZE_U64;
        let targets: BTreeSet<u64> = members.iter().filter_map(Member::target).collect();
        let mut at_once = BTreeSet::new();
        for (&gate, way) in &self.gates {
            if targets.range(gate + 1..gate + way.length() as u64).next().is_some() {
                at_once.insert(page(gate));
            }
            if let Way::Hop(place) = way
                && !body.is_unused(place.address, JUMP)
            {
                at_once.extend([page(gate), page(place.address)]);
            }
        }
        if at_once.len() > 1 {
            return Err(Why::Torn { address: body.entry });
        }
        let mut order: Vec<u64> = self.gates.keys().copied().collect();
        // Gates of one page stay together.
        order.sort_by_key(|&gate| at_once.contains(&page(gate)));
        Ok(order)
    }

    /// Whether the long half of a gate's jump is written before everything else, since its bytes
    /// never run.
    pub(crate) fn is_ahead(&self, body: &Body, way: &Way) -> bool {
        matches!(way, Way::Hop(place) if body.is_unused(place.address, JUMP))
    }
}

/// The use of each byte of a function.
struct Bytes {
    /// Beginnings of the parts, and the use of each of their bytes.
    parts: Vec<(u64, Vec<Use>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Control never gets there.
    Dead,
    /// Has to stay.
    Live,
    /// Changes.
    Changed,
}

impl Bytes {
    fn get(&self, address: u64) -> Option<Use> {
        let (begin, part) = self.parts.iter().find(|(begin, part)| {
            address.checked_sub(*begin).is_some_and(|at| at < part.len() as u64)
        })?;
        part.get((address - begin) as usize).copied()
    }

    fn set(&mut self, range: std::ops::Range<u64>, to: Use) {
        for address in range {
            let part = self.parts.iter_mut().find(|(begin, part)| {
                address.checked_sub(*begin).is_some_and(|at| at < part.len() as u64)
            });
            if let Some((begin, part)) = part {
                part[(address - *begin) as usize] = to;
            }
        }
    }

    fn are_dead(&self, address: u64, length: usize) -> bool {
        (address..address + length as u64).all(|at| self.get(at) == Some(Use::Dead))
    }
}

struct Search<'a> {
    body: &'a Body,
    members: &'a [Member],
    wanted: &'a BTreeSet<u64>,
    taken: &'a ReservedBytes,
    /// Places that control enters from outside, after the `endbr64` that marks them.
    leaders: BTreeSet<u64>,
    /// Calls that no longer run in place, to make room for a gate.
    moved: BTreeSet<u64>,
    /// Leaders whose stretches no longer run in place, to make room for a gate.
    unstretched: BTreeSet<u64>,
}

/// Number of bytes that a jump needs; counting stops there.
const ENOUGH: u64 = JUMP as u64;
/// Reach of a short jump in bytes, in either direction.
const NEAR: u64 = 128;

impl<'a> Search<'a> {
    fn new(
        body: &'a Body,
        members: &'a [Member],
        wanted: &'a BTreeSet<u64>,
        taken: &'a ReservedBytes,
    ) -> Self {
        let (leaders, moved, unstretched) = Default::default();
        let mut search = Self { body, members, wanted, taken, leaders, moved, unstretched };
        let behind = members.iter().filter(|member| member.kind == Kind::System);
        let behind = behind.map(|member| member.instruction.next_ip());
        let entered: BTreeSet<u64> = body.entered.iter().copied().chain(behind).collect();
        for address in entered {
            match search.member(address) {
                Some(member) if member.is_landing() => search.leaders.insert(member.range().end),
                Some(_) => search.leaders.insert(address),
                None => false,
            };
        }
        // A call that control enters from outside and that has a site is where the jump must be.
        let both = search.leaders.iter().filter(|&address| wanted.contains(address));
        search.moved = both.copied().filter(|&address| search.can_move(address)).collect();
        search
    }

    fn member(&self, address: u64) -> Option<&'a Member> {
        let at = self.members.binary_search_by_key(&address, |member| member.instruction.ip());
        at.ok().map(|at| &self.members[at])
    }

    fn can_move(&self, address: u64) -> bool {
        self.member(address).is_some_and(|member| {
            member.kind == Kind::Call && relocate::refuse_fixed(&member.instruction).is_ok()
        })
    }

    /// Whether an instruction runs in place while control is otherwise in the copy.
    fn is_kept(&self, member: &Member) -> bool {
        member.kind != Kind::Plain && !self.moved.contains(&member.instruction.ip())
    }

    /// Decides the layout, given the calls and stretches that no longer run in place. Also returns
    /// the leaders that lack room, with the room that they have.
    fn attempt(&self) -> (Layout, Vec<(u64, usize)>) {
        let mut layout = Layout { moved: self.moved.clone(), ..Layout::default() };
        let mut bytes = self.dead();
        let mut gates = Vec::new();
        for member in self.members.iter().filter(|member| self.is_kept(member)) {
            bytes.set(member.range(), Use::Live);
            layout.stay.insert(member.instruction.ip());
        }
        for &address in &self.body.entered {
            if let Some(mark) = self.member(address).filter(|member| member.is_landing()) {
                bytes.set(mark.range(), Use::Live);
                layout.stay.insert(address);
            }
        }
        for &leader in &self.leaders {
            match self.stretch(leader).filter(|_| !self.unstretched.contains(&leader)) {
                Some(stretch) => {
                    for member in &stretch {
                        bytes.set(member.range(), Use::Live);
                        layout.stay.insert(member.instruction.ip());
                    }
                }
                None => gates.push(leader),
            }
        }
        let mut short = Vec::new();
        let mut hops = Vec::new();
        for &gate in &gates {
            let room = self.room(&bytes, gate);
            if room >= JUMP && self.taken.is_free(gate, JUMP) && in_one_page(gate, JUMP) {
                bytes.set(gate..gate + JUMP as u64, Use::Changed);
                layout.gates.insert(gate, Way::Jump);
            } else if room >= HOP && self.taken.is_free(gate, HOP) && in_one_page(gate, HOP) {
                bytes.set(gate..gate + HOP as u64, Use::Changed);
                hops.push((gate, room));
            } else {
                short.push((gate, room));
            }
        }
        for (gate, room) in hops {
            match self.springboard(&bytes, gate) {
                Some(place) => {
                    bytes.set(place.address..place.address + JUMP as u64, Use::Changed);
                    layout.gates.insert(gate, Way::Hop(place));
                }
                None => short.push((gate, room)),
            }
        }
        (layout, short)
    }

    /// Returns the initial use of all bytes: dead for instructions and padding, live for unknown
    /// bytes.
    fn dead(&self) -> Bytes {
        let parts = &self.body.parts;
        let parts = parts.iter().map(|part| (part.address, vec![Use::Live; part.code.len()]));
        let mut bytes = Bytes { parts: parts.collect() };
        for member in self.members {
            bytes.set(member.range(), Use::Dead);
        }
        for padding in self.body.parts.iter().flat_map(|part| &part.unused) {
            bytes.set(padding.clone(), Use::Dead);
        }
        bytes
    }

    /// Returns the instructions from a leader on that can run in place; `None` if control would get
    /// from them to instructions that cannot.
    fn stretch(&self, leader: u64) -> Option<Vec<&'a Member>> {
        let mut found = Vec::new();
        let mut at = leader;
        loop {
            let Some(member) = self.member(at) else {
                // Code of another function runs as always; control may enter from here.
                return Some(found);
            };
            let into = member.target().filter(|&target| self.member(target).is_some());
            if self.wanted.contains(&at)
                || self.moved.contains(&at)
                || into.is_some_and(|target| !self.leaders.contains(&target))
            {
                return None;
            }
            found.push(member);
            at = member.instruction.next_ip();
            if !member.goes_on() || self.leaders.contains(&at) {
                return Some(found);
            }
        }
    }

    /// Counts dead bytes from a leader to the next one, up to the length of a jump.
    fn room(&self, bytes: &Bytes, leader: u64) -> usize {
        let next = self.leaders.range(leader + 1..).next().copied().unwrap_or(u64::MAX);
        let end = next.min(leader + ENOUGH);
        (leader..end).take_while(|&at| bytes.get(at) == Some(Use::Dead)).count()
    }

    fn springboard(&self, bytes: &Bytes, gate: u64) -> Option<Springboard> {
        let near = gate.saturating_sub(NEAR)..gate + NEAR;
        let padding = |&address: &u64| self.body.is_unused(address, JUMP);
        let usable = |&address: &u64| {
            hop(gate, address).is_some()
                && bytes.are_dead(address, JUMP)
                && in_one_page(address, JUMP)
                && self.taken.is_free(address, JUMP)
        };
        let best = near.clone().filter(padding).find(usable);
        let address = best.or_else(|| near.clone().find(usable))?;
        let code = self.body.bytes(address, JUMP)?.try_into().ok()?;
        Some(Springboard { address, code })
    }

    /// Gives up calls or stretches near leaders that lack room; returns whether any was left to
    /// give up.
    fn give_way(&mut self, short: &[(u64, usize)]) -> bool {
        let before = (self.moved.len(), self.unstretched.len());
        for &(leader, room) in short {
            let near = self.leaders.range(leader.saturating_sub(NEAR)..leader + NEAR);
            let long = |&&other: &&u64| {
                let stretch = self.stretch(other).unwrap_or_default();
                let length: usize = stretch.iter().map(|member| member.instruction.len()).sum();
                length >= 2 * JUMP && !self.unstretched.contains(&other)
            };
            let give: Vec<u64> = near.filter(long).copied().collect();
            let obstacle = leader..leader + ENOUGH;
            let calls = obstacle.filter(|&at| self.can_move(at) && !self.moved.contains(&at));
            match give[..] {
                [_, ..] if room >= HOP => self.unstretched.extend(give),
                _ => {
                    let calls: Vec<u64> = calls.take(1).collect();
                    // A stretch that ends with the call no longer runs in place either.
                    self.moved.extend(calls);
                }
            }
        }
        before != (self.moved.len(), self.unstretched.len())
    }
}
