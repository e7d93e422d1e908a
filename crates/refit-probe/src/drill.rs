//! Divides the time in a function among its callees: measures the time of each callee in calls by
//! that function.
//!
//! Each call has two sites, one before it and one at its return address; the function's own latency
//! has sites at its entry and exits. All sites are timers ([`Action::Time`]), and are read after
//! they have been removed, so that all cells are of the same moment. Control may also reach the
//! return address without the call: a thread that does so has not entered the timer, and so does
//! not leave it. In a recursive function, however, the thread may have entered in an outer call; so
//! times of such functions are approximate, and [`Measured::recursive`] says so.
//!
//! A call that cannot have both sites is not measured, and counts as the function's own time; so do
//! jumps to other functions (tail calls), whose exits are the function's own.

use std::collections::BTreeMap;

use refit_analysis::flow::{self, Block, EdgeKind, Flow, Marks};
use refit_analysis::functions::{Convention, Sources};
use refit_analysis::{FunctionId, Module};
use refit_splice::process::{Program, Refusal};
use refit_splice::remains::Removed;
use refit_splice::{
    Action, At, Base, Clock, ENTRIES, EXITS, Installed, Key, Plan, Site, Step, TIME, TIMER, Value,
    Why, Width,
};

use crate::code::decode;
use crate::error::Error;
use crate::places::CodePlace;
use crate::placing;
use crate::session::ProbeSession;
use crate::silent::waiting;
use crate::sites::{NoSite, Place};
use crate::steps::Steps;

pub use crate::files::{Files, Spot};
pub use crate::silent::Silent;

/// A call of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    /// Address of the instruction, in the file.
    at: u64,
    to: Callee,
    /// Addresses of the sites at which its timer is entered and left, in the file.
    sites: (u64, u64),
}

/// The callee of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Callee {
    /// The function at this address of the program.
    Direct(u64),
    /// The function whose address is stored at this address of the program, and the name to show if
    /// no function has that address.
    Stored(u64, String),
    /// Unknown, since the address is in a register, or in memory that changes; the text of the
    /// call.
    Pointer(String),
}

/// A function with the plan to measure it and its calls.
#[derive(Debug)]
pub struct Prepared {
    plan: Plan,
    calls: Vec<Call>,
    /// Calls that cannot be measured, and why.
    refused: Vec<(Call, String)>,
    spot: Spot,
    timers: Timers,
}

/// A function that is being measured.
#[derive(Debug)]
pub struct Level {
    session: ProbeSession,
    installed: Installed,
    calls: Vec<Call>,
    refused: Vec<(Call, String)>,
    spot: Spot,
    timers: Timers,
    /// Time-stamp counter at the beginning.
    began: u64,
}

/// Result of measuring a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Calls of the function that ended.
    pub calls: u64,
    /// Time in the function, in nanoseconds, summed over all threads.
    pub nanos: u64,
    /// Whether the function called itself: then the time of inner calls is included in that of
    /// outer ones.
    pub recursive: bool,
    /// Calls that were not timed, because there was no room for more threads.
    pub lost: u64,
    /// Its callees, longest time first.
    pub callees: Vec<Share>,
    /// Calls that were not measured: callee, number of instructions, and the reason for the first
    /// of them.
    pub unmeasured: Vec<(String, usize, String)>,
}

/// The share of one callee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name of the callee.
    pub name: String,
    /// The function, if it can be measured in turn.
    pub function: Option<Spot>,
    /// Calls of the callee that ended.
    pub calls: u64,
    /// Number of instructions that call it.
    pub sites: usize,
    /// Time in the callee when called from the function, in nanoseconds.
    pub nanos: u64,
}

impl Measured {
    /// Returns the time spent in no callee that was measured.
    pub fn own(&self) -> u64 {
        let others: u64 = self.callees.iter().map(|callee| callee.nanos).sum();
        self.nanos.saturating_sub(others)
    }
}

/// Decides how a function and its calls are measured. Changes nothing.
///
/// # Errors
/// [`Error`]: its file cannot be read, or its entry or one of its exits cannot be a site.
pub fn prepare(files: &mut Files, spot: Spot) -> Result<Prepared, Error> {
    let name = files.name(spot);
    let (module, bias) = files.of(spot)?;
    let place = Place::new(module, spot.function, bias);
    let nothing = |why: String| Error::Nothing { first: format!("{name}: {why}") };
    let function = module.function(spot.function);
    let found = CodePlace {
        name: function.name(),
        function: spot.function,
        address: function.entry,
        tracepoint: None,
    };
    let timers = Timers::new(function.convention);
    let steps = Steps {
        here: vec![timers.step(0, true)],
        entering: vec![timers.step(0, true)],
        leaving: vec![timers.step(0, false)],
        ..Steps::default()
    };
    let own =
        placing::place(module, &found, bias, &steps).map_err(|why| nothing(why.to_string()))?;
    let own: Vec<(u64, At)> =
        own.sites.iter().map(|site| (site.address.wrapping_sub(bias), site.at)).collect();
    let mut calls = calls(module, place.flow(), &place, bias);
    let mut refused = Vec::new();
    // Gives up calls whose sites are not possible, until all remaining sites are.
    loop {
        let sites = wanted(&place, &own, &calls, timers).map_err(|why| nothing(why.to_string()))?;
        let addresses: Vec<u64> =
            sites.iter().map(|site| site.address.wrapping_sub(bias)).collect();
        let (plan, lost) = Plan::new(sites);
        if lost.is_empty() {
            return Ok(Prepared { plan, calls, refused, spot, timers });
        }
        let lost: BTreeMap<u64, Why> =
            lost.into_iter().map(|(index, why)| (addresses[index], why)).collect();
        let before = calls.len();
        let why = |call: &Call| lost.get(&call.sites.0).or_else(|| lost.get(&call.sites.1));
        refused
            .extend(calls.iter().filter_map(|call| Some((call.clone(), why(call)?.to_string()))));
        calls.retain(|call| why(call).is_none());
        if calls.len() == before {
            let first = lost.into_values().next().map_or(String::new(), |why| why.to_string());
            return Err(nothing(first));
        }
    }
}

/// Returns all sites for a function whose entry is the first of `own`, and whose exits are the
/// others.
fn wanted(
    place: &Place<'_>,
    own: &[(u64, At)],
    calls: &[Call],
    timers: Timers,
) -> Result<Vec<Site>, NoSite> {
    let mut steps: Vec<(u64, At, u8, Step)> = Vec::new();
    for (number, &(address, at)) in own.iter().enumerate() {
        let enters = number == 0 || at == At::Entered;
        // A block that begins where a call returns needs one site for both.
        let begins = place.flow().block_at(address).map_or(address, |(_, block)| block.start);
        let shared = !enters && at == At::Before && calls.iter().any(|call| call.sites.1 == begins);
        let address = if shared { begins } else { address };
        steps.push((address, at, if enters { 0 } else { 3 }, timers.step(0, enters)));
    }
    for (number, call) in (1..).zip(calls) {
        steps.push((call.sites.0, At::Before, 2, timers.step(number, true)));
        steps.push((call.sites.1, At::Before, 1, timers.step(number, false)));
    }
    // If one call begins where another one returns, the timer of the first is left before that of
    // the second is entered.
    steps.sort_by_key(|&(address, at, rank, _)| (address, at, rank));
    let mut sites: BTreeMap<(u64, At), Vec<Step>> = BTreeMap::new();
    for (address, at, _, step) in steps {
        sites.entry((address, at)).or_default().push(step);
    }
    sites.into_iter().map(|((address, at), steps)| place.site(address, at, steps)).collect()
}

/// Returns the calls of a function that may return.
fn calls(module: &Module, flow: &Flow, place: &Place<'_>, bias: u64) -> Vec<Call> {
    let mut found = Vec::new();
    for (index, block) in (0..).zip(flow.blocks()) {
        let Some(last) = flow.block_instructions(block).last() else { continue };
        let edges = flow.edges_from(index);
        let returns = edges.iter().any(|edge| edge.kind == EdgeKind::Return);
        let within = edges.iter().any(|edge| edge.kind == EdgeKind::Call);
        if !last.marks.contains(Marks::CALL) || !returns || within {
            continue;
        }
        if let Some(to) = callee(module, flow.function(), last.address, bias) {
            let enters = enters(place, flow, block).unwrap_or(last.address);
            found.push(Call { at: last.address, to, sites: (enters, last.end()) });
        }
    }
    found
}

/// Returns the last instruction of a block that a jump can replace: the call itself may be shorter
/// than a jump.
fn enters(place: &Place<'_>, flow: &Flow, block: &Block) -> Option<u64> {
    let own: Vec<u64> = flow.block_instructions(block).map(|one| one.address).collect();
    own.into_iter().rev().find(|&address| place.fits_a_jump(address))
}

fn callee(module: &Module, function: FunctionId, address: u64, bias: u64) -> Option<Callee> {
    let call = decode(module, address)?;
    let stored = |slot: u64, name: String| Callee::Stored(slot.wrapping_add(bias), name);
    if call.is_call_near() {
        let target = call.near_branch_target();
        let stub = module.entered_at(target).filter(|f| f.sources.contains(Sources::STUB));
        let slot = stub.and_then(|_| flow::stub_slot(module.image(), target));
        return Some(match (stub, slot) {
            (Some(stub), Some(slot)) => stored(slot, stub.name()),
            _ => Callee::Direct(target.wrapping_add(bias)),
        });
    }
    let entry = module.function(function).entry;
    let text = match address.checked_sub(entry) {
        Some(behind) => format!("{call} at +{behind:#x}"),
        // The call is in a part of the function away from its entry.
        None => format!("{call} at {address:#x}"),
    };
    Some(match flow::slot(&call) {
        Some(slot) => stored(slot, text),
        None => Callee::Pointer(text),
    })
}

impl Prepared {
    /// Returns the number of calls that are measured.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Installs the sites in the program; `files` are the program's.
    ///
    /// # Errors
    /// [`Error`]; the program is unchanged then.
    pub fn install(self, program: &Program, files: &mut Files) -> Result<Level, Error> {
        let Self { plan, calls, refused, spot, timers } = self;
        let cells = timers.first(calls.len() as u32 + 1);
        let (session, installed) =
            ProbeSession::install("drill", program, files, plan, cells, None)?;
        Ok(Level {
            session,
            installed,
            calls,
            refused,
            spot,
            timers,
            began: refit_sys::clock::counter(),
        })
    }
}

impl Level {
    /// Removes everything; returns what has been removed, and the result. The result is [`Silent`]
    /// if the function was not called and called no other one.
    ///
    /// # Errors
    /// [`Error`]: the program can no longer be changed.
    pub fn finish(
        self,
        program: &Program,
        files: &mut Files,
    ) -> Result<(Removed, Result<Measured, Silent>), Error> {
        let now = refit_sys::clock::counter();
        let removed = self.session.remove(program)?;
        let spent: std::io::Result<Vec<Spent>> =
            (0..=self.calls.len() as u32).map(|number| self.spent(number, now)).collect();
        let spent = spent.map_err(|source| Refusal::System {
            id: program.id(),
            what: "read the measurements",
            source,
        })?;
        if spent.iter().all(|one| one.entered == 0) {
            return self.silent(program, files).map(|silent| (removed, Err(silent)));
        }
        let mut callees: BTreeMap<(Option<Spot>, String), Share> = BTreeMap::new();
        for (number, call) in self.calls.iter().enumerate() {
            let (function, name) = resolve(program, files, &call.to);
            let key = (function, if function.is_some() { String::new() } else { name.clone() });
            let none = Share { name, function, calls: 0, sites: 0, nanos: 0 };
            let share = callees.entry(key).or_insert(none);
            share.calls += spent[number + 1].ended;
            share.sites += 1;
            share.nanos += refit_sys::clock::nanos(spent[number + 1].cycles);
        }
        let mut callees: Vec<Share> = callees.into_values().collect();
        callees.sort_by_key(|share| std::cmp::Reverse(share.nanos));
        let recursive = callees.iter().any(|share| share.function == Some(self.spot));
        let inside: u64 = spent[1..].iter().map(|one| one.cycles).sum();
        let since = now.wrapping_sub(self.began).max(1);
        let total = whole(spent[0].cycles, inside, since, spent[0].entered == 0, recursive);
        let measured = Measured {
            calls: spent[0].ended,
            nanos: refit_sys::clock::nanos(total),
            recursive,
            lost: spent.iter().map(|one| one.lost).sum(),
            callees,
            unmeasured: unmeasured(program, files, &self.refused),
        };
        Ok((removed, Ok(measured)))
    }

    /// Finds out why nothing was measured.
    fn silent(&self, program: &Program, files: &mut Files) -> Result<Silent, Error> {
        let (_, bias) = files.of(self.spot)?;
        let all = self.calls.iter().chain(self.refused.iter().map(|(call, _)| call));
        let returns = all.map(|call| (call.sites.1.wrapping_add(bias), call)).collect();
        Ok(match waiting(program, &returns)? {
            Some((thread, call)) => {
                Silent::InCall { thread, callee: resolve(program, files, &call.to).1 }
            }
            None => Silent::NotCalled,
        })
    }

    /// Reads the timer with this number at the time `now`: number 0 is the function's own timer,
    /// the others are those of its calls.
    fn spent(&self, number: u32, now: u64) -> std::io::Result<Spent> {
        let step = self.timers.step(number, true);
        let (threads, lost) = self.installed.timers(&step, self.timers.first(number))?;
        let mut spent = Spent { lost, ..Spent::default() };
        for timer in threads.into_values() {
            let inside = timer[ENTRIES].saturating_sub(timer[EXITS]);
            let cycles = timer[TIME].wrapping_add(inside.wrapping_mul(now));
            // A thread that entered just before the removal was inside for no time.
            spent.cycles += u64::try_from(cycles.cast_signed()).unwrap_or(0);
            spent.entered += timer[ENTRIES];
            spent.ended += timer[EXITS];
        }
        Ok(spent)
    }
}

/// Sums of a timer over all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    cycles: u64,
    entered: u64,
    ended: u64,
    lost: u64,
}

/// The timers of a function and its calls.
#[derive(Clone, Copy, Debug)]
struct Timers {
    /// The value that distinguishes threads.
    base: Base,
}

impl Timers {
    /// Number of threads that each timer has room for.
    const THREADS: u32 = 128;

    fn new(convention: Convention) -> Self {
        // Goroutines move between threads.
        let go = convention == Convention::Go;
        Self { base: if go { Base::Goroutine } else { Base::Context } }
    }

    /// Returns the first cell of a timer.
    fn first(self, number: u32) -> u32 {
        number * self.step_at(0, true).cells().next_multiple_of(TIMER)
    }

    fn step(self, number: u32, enters: bool) -> Step {
        self.step_at(self.first(number), enters)
    }

    fn step_at(self, cell: u32, enters: bool) -> Step {
        let action = Action::Time { cell, threads: Self::THREADS, enters, clock: Clock::Wall };
        let key = Some(Key::Value(Value { base: self.base, width: Width::Whole }));
        Step { when: Vec::new(), key, action }
    }
}

/// Returns the time in a function, given the time `inside` its callees: the function's own timer
/// has not counted threads that were in it from the beginning to the end.
fn whole(counted: u64, inside: u64, since: u64, uncounted: bool, recursive: bool) -> u64 {
    /// Divisor of the elapsed time that yields the part that may be missing by chance.
    const CHANCE: u64 = 20;
    let missing = inside.saturating_sub(counted);
    if recursive || (missing <= since / CHANCE && !uncounted) {
        return counted.max(if recursive { 0 } else { inside });
    }
    inside.div_ceil(since).max(1) * since
}

/// Returns the function that a callee refers to now, and its name.
fn resolve(program: &Program, files: &mut Files, callee: &Callee) -> (Option<Spot>, String) {
    let (address, otherwise) = match callee {
        Callee::Direct(address) => (Some(*address), format!("{address:#x}")),
        Callee::Stored(slot, name) => (program.word(*slot).ok(), name.clone()),
        Callee::Pointer(text) => (None, text.clone()),
    };
    // A file that cannot be read, or has been replaced, has no names.
    let spot = address.and_then(|address| files.entered_at(address).ok().flatten());
    let spot = spot.filter(|&spot| !files.is_stub(spot));
    (spot, spot.map_or(otherwise, |spot| files.name(spot)))
}

fn unmeasured(
    program: &Program,
    files: &mut Files,
    refused: &[(Call, String)],
) -> Vec<(String, usize, String)> {
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (call, why) in refused {
        let (_, name) = resolve(program, files, &call.to);
        found.entry(name).or_insert_with(|| (0, why.clone())).0 += 1;
    }
    found.into_iter().map(|(name, (sites, why))| (name, sites, why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_inside_all_the_time_is_counted_by_what_it_called() {
        assert_eq!(whole(500, 400, 1000, false, false), 500);
        assert_eq!(whole(500, 510, 1000, false, false), 510, "by chance");
        assert_eq!(whole(0, 700, 1000, true, false), 1000, "it goes on");
        assert_eq!(whole(0, 1, 1000, true, false), 1000);
        assert_eq!(whole(0, 1700, 1000, true, false), 2000, "in two threads");
        assert_eq!(whole(500, 900, 1000, false, true), 500, "nested time counts twice");
    }
}
