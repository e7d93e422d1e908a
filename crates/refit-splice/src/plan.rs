//! Plans everything that can be decided while the program runs: which bytes change, and which
//! instructions run elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use crate::arrange::{Arranged, Arrangement};
use crate::body::{Body, Kind, Member};
use crate::changed::Changed;
use crate::jump::{HOP, JUMP, Way, hop};
use crate::layout::Layout;
use crate::libunwind::DynamicList;
use crate::patches::in_one_page;
use crate::ready::{Copied, Place, Ready};
use crate::relocate::Displaced;
use crate::reserved::ReservedBytes;
use crate::site::{At, Site, Springboard};
use crate::snippet::{Action, Step};
use crate::stacks::Stacks;
use crate::versions::{ReadyVersions, Versions};
use crate::why::Why;

/// Sites that can be installed in a program, with everything that the installation needs.
#[derive(Debug, Default)]
pub struct Plan {
    /// By ascending address.
    pub(crate) ready: Vec<Ready>,
    /// The table for actions that read the stack.
    pub(crate) stacks: Option<Stacks>,
    /// Addresses of semaphores that are raised.
    pub(crate) semaphores: Vec<u64>,
    /// Where the program's libunwind finds frame descriptions, if it has one.
    pub(crate) dynamic_list: Option<DynamicList>,
}

/// Maximum number of bytes of a beginning of a function that is copied.
const LARGEST_BEGINNING: usize = 512;

/// A site that is being decided.
struct Open {
    /// Its position among the sites given.
    index: usize,
    site: Site,
    /// The instructions that a jump displaces, if it fits as far as the site itself goes.
    straight: Option<Result<Displaced, Why>>,
    way: Option<(Displaced, Way)>,
    why: Option<Why>,
}

impl Plan {
    /// Decides for each site how it is spliced. Sites that cannot be spliced are returned as their
    /// position in `sites` and the reason.
    ///
    /// A site is spliced in place if all sites of its function can be; otherwise the function is
    /// copied, if it can be.
    pub fn new(sites: Vec<Site>) -> (Self, Vec<(usize, Why)>) {
        Self::decide(sites, false)
    }

    /// Decides how sites that are moved ([`Installed::move_sites`](crate::Installed::move_sites))
    /// are spliced, each the only one of its function, at its entry. As [`new`](Self::new), but
    /// what the function does before it calls another one is copied with it.
    pub fn moved(sites: Vec<Site>) -> (Self, Vec<(usize, Why)>) {
        Self::decide(sites, true)
    }

    fn decide(sites: Vec<Site>, moved: bool) -> (Self, Vec<(usize, Why)>) {
        let sites = sites.into_par_iter().enumerate();
        let open = |(index, site): (usize, Site)| {
            let live = site.procedures.with_unwinding(site.address, site.live);
            let straight = if site.at == At::Before { straight(&site) } else { None };
            Open { index, site: Site { live, ..site }, straight, way: None, why: None }
        };
        let mut open: Vec<Open> = sites.map(open).collect();
        open.sort_by_key(|one| one.site.address);
        let mut taken = ReservedBytes::default();
        in_place(&mut open, &mut taken);
        let copies = if moved { beginnings(&open) } else { copies(&mut open, &mut taken) };
        let (mut plan, mut refused) = (Self::default(), Vec::new());
        let mut copied: BTreeMap<u64, Copied> = copies;
        for Open { index, site, way, why, .. } in open {
            let entry = site.function.as_ref().map(|body| body.entry);
            if let Some(copy) = entry.and_then(|entry| copied.get_mut(&entry)) {
                copy.sites.push(site);
            } else if let Some((displaced, way)) = way {
                plan.ready.push(Ready::Place(Place { site, displaced, way }));
            } else {
                let address = site.address;
                refused.push((index, why.unwrap_or(Why::Uncopied { address })));
            }
        }
        plan.ready.extend(copied.into_values().map(Ready::Copied));
        plan.ready.sort_by_key(|ready| ready.reach().start);
        refused.sort_by_key(|&(index, _)| index);
        (plan, refused)
    }

    /// Decides how an arrangement of copies is written. Functions that are left out are returned as
    /// their positions in it and the reason.
    pub fn arranged(arrangement: Arrangement) -> (Self, Vec<(usize, Why)>) {
        let (arranged, refused) = Arranged::new(arrangement);
        let ready =
            if arranged.blocks.is_empty() { Vec::new() } else { vec![Ready::Arranged(arranged)] };
        (Self { ready, ..Self::default() }, refused)
    }

    /// Plans versions of functions. Those that cannot be entered are returned as their positions
    /// and the reason.
    pub fn versions(all: Vec<Versions>) -> (Self, Vec<(usize, Why)>) {
        let (mut plan, mut refused) = (Self::default(), Vec::new());
        for (index, one) in all.into_iter().enumerate() {
            match ReadyVersions::new(one) {
                Ok(ready) => plan.ready.push(Ready::Versions(Box::new(ready))),
                Err(why) => refused.push((index, why)),
            }
        }
        plan.ready.sort_by_key(|ready| ready.reach().start);
        (plan, refused)
    }

    /// Leaves out the sites that would replace, or have to copy, bytes that have been changed
    /// already. Returns the addresses of those sites.
    pub fn leave_out(&mut self, changed: &Changed) -> Vec<u64> {
        let mut left_out = Vec::new();
        self.ready.retain(|ready| {
            let is_changed = ready.replaced().iter().any(|range| changed.is_within(range));
            if is_changed {
                left_out.extend(ready.sites().iter().map(|site| site.address));
            }
            !is_changed
        });
        left_out
    }

    /// Returns the actions at all sites.
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.ready.iter().flat_map(Ready::sites).flat_map(|site| &site.actions)
    }

    /// Whether nothing but plain counters and flags tells what sites have done.
    pub(crate) fn only_counts(&self) -> bool {
        self.steps().all(|step| {
            let plain = matches!(step.action, Action::Count { .. } | Action::Flag { .. });
            plain && step.key.is_none() || step.action.finds()
        })
    }

    /// Whether actions walk the stack.
    pub fn walks_stacks(&self) -> bool {
        self.steps().any(Step::walks_stack)
    }

    /// Returns the number of words of the longest key that has several items, if there is one.
    pub(crate) fn tuple_words(&self) -> Option<usize> {
        self.steps().filter_map(Step::tuple_words).max()
    }

    /// Returns the number of maps of kept values.
    pub(crate) fn kept_maps(&self) -> u16 {
        self.steps().map(Step::maps).max().unwrap_or(0)
    }

    /// Adds the table by which actions walk the stack ([`Base::Stack`](crate::Base::Stack)).
    pub fn walk(&mut self, stacks: Stacks) {
        self.stacks = Some(stacks);
    }

    /// Adds the semaphores of static tracepoints, by their addresses: each is raised once.
    pub fn raise(&mut self, semaphores: impl IntoIterator<Item = u64>) {
        self.semaphores.extend(semaphores);
        self.semaphores.sort_unstable();
        self.semaphores.dedup();
    }

    /// Adds the entry of a function that unwinders ask as a site at which they learn of generated
    /// code ([`Action::FindFrame`], [`Action::FindObject`]), in place; whether it has room. It is
    /// not counted among the sites.
    pub fn find_frames(&mut self, site: Site, action: Action) -> bool {
        let step = Step::from(action);
        for ready in &mut self.ready {
            match ready {
                Ready::Place(place) if place.site.address == site.address => {
                    place.site.actions.push(step);
                    return true;
                }
                Ready::Copied(copied)
                    if copied.body.instructions.binary_search(&site.address).is_ok() =>
                {
                    copied.sites.push(Site { actions: vec![step], ..site });
                    return true;
                }
                _ => {}
            }
        }
        let Some(Ok(displaced)) = straight(&site) else { return false };
        let site = Site { actions: vec![step], ..site };
        let place = Place { site, displaced, way: Way::Jump };
        let at = self.ready.partition_point(|ready| ready.reach().start < place.site.address);
        self.ready.insert(at, Ready::Place(place));
        true
    }

    /// Registers the generated code with the program's libunwind.
    pub fn register_frames(&mut self, list: DynamicList) {
        self.dynamic_list = Some(list);
    }

    /// Returns the number of sites.
    pub fn len(&self) -> usize {
        let sites = self.ready.iter().map(|ready| match ready {
            Ready::Place(place) => usize::from(!place.finds_frames_only()),
            Ready::Copied(copied) => copied.sites.len(),
            Ready::Arranged(_) | Ready::Versions(_) => 0,
        });
        sites.sum()
    }

    /// Whether it has no site.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the number of functions that are copied.
    pub fn copies(&self) -> usize {
        self.ready.iter().filter(|ready| matches!(ready, Ready::Copied(_))).count()
    }

    /// Describes the changes, a line per site or copied function: address, way, displaced bytes.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.ready.iter().map(|ready| match ready {
            Ready::Place(place) => place.line(),
            Ready::Copied(copied) => copied.line(),
            Ready::Arranged(arranged) => arranged.line(),
            Ready::Versions(versions) => versions.line(),
        })
    }
}

/// Finds a way for each site by itself.
fn in_place(open: &mut [Open], taken: &mut ReservedBytes) {
    // Sites with room for a jump come first: the bytes that they change are no springboards for
    // others.
    for one in open.iter_mut().filter(|one| one.site.at == At::Before) {
        match one.straight.take() {
            Some(Ok(displaced)) if taken.is_free(one.site.address, room(&displaced)) => {
                one.take(displaced, Way::Jump, taken);
            }
            Some(Err(why)) => one.why = Some(why),
            _ => {}
        }
    }
    for one in open.iter_mut().filter(|one| one.site.at == At::Before && one.way.is_none()) {
        match around(&one.site, taken) {
            Ok((displaced, place)) => one.take(displaced, Way::Hop(place), taken),
            // The reason why a jump does not fit says more.
            Err(other) => one.why = Some(one.why.take().unwrap_or(other)),
        }
    }
}

impl Open {
    fn take(&mut self, displaced: Displaced, way: Way, taken: &mut ReservedBytes) {
        self.why = None;
        self.way = Some((displaced, way));
        self.retake(taken);
    }

    fn retake(&self, taken: &mut ReservedBytes) {
        let Some((displaced, way)) = &self.way else { return };
        taken.take(self.site.address, displaced.length().max(way.length()));
        if let Way::Hop(place) = way {
            taken.take(place.address, JUMP);
        }
    }

    fn give_back(&self, taken: &mut ReservedBytes) {
        let Some((_, way)) = &self.way else { return };
        taken.give_back(self.site.address);
        if let Way::Hop(place) = way {
            taken.give_back(place.address);
        }
    }
}

/// Plans copies of the functions that have a site without a way, as far as they can be copied. The
/// copies have no sites yet.
fn copies(open: &mut [Open], taken: &mut ReservedBytes) -> BTreeMap<u64, Copied> {
    let mut functions: BTreeMap<u64, (Arc<Body>, Vec<usize>)> = BTreeMap::new();
    for (number, one) in open.iter().enumerate() {
        if let Some(body) = &one.site.function {
            let fresh = || (Arc::clone(body), Vec::new());
            functions.entry(body.entry).or_insert_with(fresh).1.push(number);
        }
    }
    let mut copied = BTreeMap::new();
    for (entry, (body, own)) in functions {
        if own.iter().all(|&number| open[number].way.is_some()) {
            continue;
        }
        own.iter().for_each(|&number| open[number].give_back(taken));
        let wanted: Vec<_> =
            own.iter().map(|&number| (open[number].site.address, open[number].site.at)).collect();
        match copy(body, &wanted, taken) {
            Ok(copy) => drop(copied.insert(entry, copy)),
            Err(why) => {
                let mut why = Some(why);
                for number in own {
                    let one = &mut open[number];
                    one.retake(taken);
                    if one.way.is_none() {
                        // One of the sites reports why there is no copy, the others why they cannot
                        // be spliced in place.
                        one.why = why.take().or(one.why.take());
                    }
                }
            }
        }
    }
    copied
}

/// Plans copies of what the functions of sites at their entries do before they call others.
fn beginnings(open: &[Open]) -> BTreeMap<u64, Copied> {
    let copied = open.iter().filter_map(|one| {
        let (Some((_, Way::Jump)), Some(body)) = (&one.way, &one.site.function) else {
            return None;
        };
        let members = beginning(&body.members().ok()?, one.site.address);
        let bytes: usize = members.iter().map(|member| member.instruction.len()).sum();
        let stays = |member: &&Member| member.kind != Kind::Plain;
        let layout = Layout {
            gates: BTreeMap::from([(one.site.address, Way::Jump)]),
            stay: members.iter().filter(stays).map(|member| member.instruction.ip()).collect(),
            moved: BTreeSet::new(),
        };
        // A call in the bytes of the jump cannot run in place.
        let (begin, end) = (one.site.address, one.site.address + JUMP as u64);
        let overwritten = layout.stay.range(begin..end).next().is_some();
        let copied = Copied { body: Arc::clone(body), members, layout, sites: Vec::new() };
        (bytes <= LARGEST_BEGINNING && !overwritten).then_some((body.entry, copied))
    });
    copied.collect()
}

/// Returns those instructions that control can come to from one of them without a call or system
/// call in between.
fn beginning(members: &[Member], from: u64) -> Vec<Member> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(address) = left.pop() {
        let at = members.binary_search_by_key(&address, |member| member.instruction.ip());
        let Some(member) = at.ok().filter(|&at| reached.insert(at)).map(|at| &members[at]) else {
            continue;
        };
        if member.kind == Kind::Plain {
            left.extend(member.target());
            left.extend(member.goes_on().then(|| member.instruction.next_ip()));
        }
    }
    reached.into_iter().map(|at| members[at]).collect()
}

fn copy(body: Arc<Body>, wanted: &[(u64, At)], taken: &mut ReservedBytes) -> Result<Copied, Why> {
    let members = body.members()?;
    let places = wanted.iter().map(|&(address, _)| address).collect();
    let layout = Layout::new(&body, &members, &places, taken)?;
    for &(address, at) in wanted {
        let there = match at {
            At::Before => body.instructions.binary_search(&address).is_ok(),
            At::Taken => members
                .binary_search_by_key(&address, |member| member.instruction.ip())
                .is_ok_and(|at| members[at].target().is_some()),
            At::Entered => layout.gates.contains_key(&address),
        };
        if !there {
            return Err(Why::Uncopied { address });
        }
    }
    layout.order(&body, &members)?;
    for (&gate, way) in &layout.gates {
        taken.take(gate, way.length());
        if let Way::Hop(place) = way {
            taken.take(place.address, JUMP);
        }
    }
    Ok(Copied { body, members, layout, sites: Vec::new() })
}

/// Returns the instructions that a jump displaces; `None` if it does not fit.
fn straight(site: &Site) -> Option<Result<Displaced, Why>> {
    let most = site.room.min(site.code.len());
    if most < JUMP {
        return None;
    }
    let displaced = match Displaced::new(site.address, &site.code, JUMP) {
        Ok(displaced) => displaced,
        Err(why) => return Some(Err(why)),
    };
    let fits = room(&displaced) <= most && in_one_page(site.address, JUMP);
    fits.then_some(Ok(displaced))
}

/// Returns the bytes that a jump and the instructions that it displaces take.
fn room(displaced: &Displaced) -> usize {
    displaced.length().max(JUMP)
}

/// Returns the instructions that a short jump displaces, and the springboard that it leads to.
fn around(site: &Site, taken: &ReservedBytes) -> Result<(Displaced, Springboard), Why> {
    let short = || match *site {
        Site { address, room, alone: true, .. } => Why::Alone { address, room },
        Site { address, room, .. } => Why::Short { address, room },
    };
    let room = site.room.min(site.code.len());
    let displaced = Displaced::new(site.address, &site.code, HOP)?;
    let length = displaced.length().max(HOP);
    let fits = length <= room && in_one_page(site.address, HOP);
    if !fits || !taken.is_free(site.address, length) {
        return Err(short());
    }
    let site_ends = site.address + length as u64;
    let usable = |place: &&Springboard| {
        let apart = place.address >= site_ends || place.address + JUMP as u64 <= site.address;
        let whole = in_one_page(place.address, JUMP);
        apart
            && whole
            && taken.is_free(place.address, JUMP)
            && hop(site.address, place.address).is_some()
    };
    let place = site.springboards.iter().find(usable).ok_or_else(short)?;
    Ok((displaced, *place))
}
