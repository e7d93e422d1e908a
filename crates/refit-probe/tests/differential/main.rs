//! Functions of programs and libraries behave the same with spliced code as without: same live
//! registers, same memory, same way out.
//!
//! Each function runs from registers and memory derived from a seed (`stage.c`), until it returns,
//! faults or makes a system call: twice unchanged, and once with a count and poison at as many of
//! its instructions as can be had at a time. Functions that end differently without any site
//! (unused stack has other values in the second run) are left out.
//!
//! `ci/differential.sh` runs it on a hundred thousand functions.

mod end;
mod stage;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use refit_analysis::FunctionId;
use refit_analysis::flow::{Flow, Marks};
use refit_analysis::live::Live;
use refit_probe::sites::before_each;
use refit_splice::{Action, Installed, Plan, Site, remains};

use end::{End, KEPT, Needed, difference};
use stage::Stage;
use wanted::{Tally as _, Wanted};

/// Number of functions that have sites at the same time.
const BATCH: usize = 1000;
/// Initial values of unused stack. The second is odd, and makes each word different.
const FILLS: [u64; 2] = [0x5454_5454_5454_5454, 0x9e37_79b9_7f4a_7c15];
/// Values that sites leave there.
const LEFT: [i32; 3] = [end::LEFT, 0, -1];

/// Counts of functions tried, and of their results.
#[derive(Debug, Default)]
struct Tally {
    functions: usize,
    sites: usize,
    passed: usize,
    refused: usize,
    unclear: usize,
    ends: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

impl wanted::Tally for Tally {
    fn add(&mut self, other: Self) {
        self.functions += other.functions;
        self.sites += other.sites;
        self.passed += other.passed;
        self.refused += other.refused;
        self.unclear += other.unclear;
        self.different.extend(other.different);
        for (kind, count) in other.ends {
            *self.ends.entry(kind).or_default() += count;
        }
    }

    fn summary(&self) -> String {
        let Tally { functions, sites, passed, refused, unclear, ends, different } = self;
        let ends: Vec<_> = ends.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        format!(
            "{functions} functions, {passed} of {sites} sites passed, {refused} refused; {}; {unclear} tell nothing, \
             {} differ",
            ends.join(", "),
            different.len(),
        )
    }
}

fn try_batch(stage: &mut Stage, batch: &[FunctionId]) -> Tally {
    let mut tally = Tally { functions: batch.len(), ..Tally::default() };
    let flows: BTreeMap<FunctionId, Flow> =
        batch.iter().map(|&id| (id, stage.module.flow(id))).collect();
    let requests: Vec<_> = batch.iter().map(|&id| request(stage, id)).collect();
    let plain = stage.run(0, &requests, FILLS[0]);
    let other = stage.run(1, &requests, FILLS[1]);
    let sites = sites(stage, &flows, &requests);
    let (spliced, areas, passed, refused) = with_sites(stage, &sites, &requests, LEFT[0]);
    (tally.sites, tally.passed, tally.refused) = (sites.len() - refused, passed.len(), refused);
    let code = Code { stage, flows: &flows, areas };
    let mut differ = Vec::new();
    for (at, plain) in plain.iter().enumerate() {
        *tally.ends.entry(plain.kind()).or_default() += 1;
        // A patch area may now be where nothing was.
        let unclear = !plain.tells()
            || code.areas.iter().any(|area| area.contains(&plain.fault))
            || code.difference(plain, &other[at]).is_some();
        tally.unclear += usize::from(unclear || !spliced[at].tells());
        if !unclear && spliced[at].tells() {
            differ.extend(code.difference(plain, &spliced[at]).map(|what| (at, what)));
        }
    }
    for (at, what) in differ {
        // A value that changes by itself meanwhile (the time of day) is no fault.
        let again = stage.run(3, &requests[at..=at], FILLS[0]);
        let code = Code { stage, flows: &flows, areas: Vec::new() };
        if code.difference(&plain[at], &again[0]).is_some() {
            tally.unclear += 1;
            continue;
        }
        let name = stage.module.function(batch[at]).name();
        let name = format!("{}:{name}", stage.mapped.name());
        let begins = requests[at].0.wrapping_sub(stage.bias);
        let ends = stage.place(plain[at].at());
        let Some(culprit) = culprit(stage, &flows, &sites, requests[at], &plain[at]) else {
            tally.unclear += 1;
            continue;
        };
        tally.different.push(format!("{name} ({begins:#x}), at {ends}: {what}; {culprit}"));
    }
    tally
}

/// Returns the one site that makes a difference, if one alone does. `None` if it takes sites in
/// functions that control never enters: then the function has read code as a table, at an index
/// that no real caller passes. `None`, too, if the difference comes from the values that sites
/// leave below the stack: then the function has read stack that was never written.
fn culprit(
    stage: &mut Stage,
    flows: &BTreeMap<FunctionId, Flow>,
    sites: &[Site],
    request: (u64, u64),
    plain: &End,
) -> Option<String> {
    let differs = |stage: &mut Stage, sites: &[Site]| {
        let (ends, areas, ..) = with_sites(stage, sites, &[request], LEFT[0]);
        Code { stage, flows, areas }.difference(plain, &ends[0]).is_some()
    };
    let (.., passed, _) = with_sites(stage, sites, &[request], LEFT[0]);
    let function_of = |stage: &Stage, site: &Site| {
        stage.module.function_at(site.address.wrapping_sub(stage.bias))
    };
    let run: BTreeSet<_> = passed.into_iter().map(|at| function_of(stage, &sites[at])).collect();
    let of_those_run = |site: &&Site| run.contains(&function_of(stage, site));
    let sites: Vec<_> = sites.iter().filter(of_those_run).cloned().collect();
    if !differs(stage, &sites) {
        return None;
    }
    let mut suspects = &sites[..];
    while suspects.len() > 1 {
        let (first, second) = suspects.split_at(suspects.len() / 2);
        match [first, second].into_iter().find(|half| differs(stage, half)) {
            Some(half) => suspects = half,
            None => return Some(format!("by {} sites together", suspects.len())),
        }
    }
    let at = suspects[0].address.wrapping_sub(stage.bias);
    let ends = LEFT.map(|left| with_sites(stage, suspects, &[request], left));
    let reads_unused_stack = ends[1..].iter().any(|(other, areas, ..)| {
        let code = Code { stage, flows, areas: areas.clone() };
        code.difference(&ends[0].0[0], &other[0]).is_some()
    });
    (!reads_unused_stack).then(|| format!("by the site at {at:#x}"))
}

/// Returns the address of a function in the program, and the seed of its state.
fn request(stage: &Stage, id: FunctionId) -> (u64, u64) {
    let entry = stage.module.function(id).entry;
    (entry.wrapping_add(stage.bias), entry ^ wanted::seed() << 48)
}

/// Returns sites in functions.
fn sites(stage: &Stage, flows: &BTreeMap<FunctionId, Flow>, requests: &[(u64, u64)]) -> Vec<Site> {
    let mut all = Vec::new();
    for (flow, (_, seed)) in flows.values().zip(requests) {
        // Not before each instruction: one that a jump displaces cannot be a site. Which ones are
        // chosen depends on the seed.
        let step = (seed ^ seed >> 5 ^ seed >> 48) as usize % 4 + 1;
        let first = (seed >> 48) as usize % step;
        let all_of_it = flow.instructions().iter().map(|one| one.address);
        let chosen: Vec<_> = all_of_it.skip(first).step_by(step).collect();
        let actions = |_| vec![Action::Count { cell: 0 }.into(), Action::POISON.into()];
        let function = flow.function();
        let mut sites = before_each(&stage.module, function, stage.bias, &chosen, actions);
        // Half of the functions are copied where places are short; the other half have only the
        // sites that fit in place.
        if seed >> 4 & 1 == 0 {
            sites.iter_mut().for_each(|site| site.function = None);
        }
        all.extend(sites);
    }
    all.sort_by_key(|site| site.address);
    all.dedup_by_key(|site| site.address);
    all
}

/// Runs functions with sites that leave a value in unused stack. Returns their ends, the ranges of
/// patch areas, the sites that were passed, and the number refused.
fn with_sites(
    stage: &mut Stage,
    sites: &[Site],
    requests: &[(u64, u64)],
    left: i32,
) -> (Vec<End>, Vec<Range<u64>>, Vec<usize>, usize) {
    let mut sites = sites.to_vec();
    for (cell, site) in sites.iter_mut().enumerate() {
        site.actions[0] = Action::Count { cell: cell as u32 }.into();
        site.actions[1] = Action::Poison { stack: left }.into();
    }
    let cells = sites.len() as u32;
    let (plan, refused) = Plan::new(sites);
    let installed = Installed::new(&stage.program, &plan, cells, None).expect("put in");
    let areas = stage.areas();
    let spliced = stage.run(2, requests, FILLS[0]);
    let counted = |cell: &u32| installed.cell(*cell).expect("read") > 0;
    let passed = (0..cells).filter(counted).map(|cell| cell as usize).collect();
    remains::repair(&stage.program).expect("taken out");
    (spliced, areas, passed, refused.len())
}

/// Facts about the code in which functions end.
struct Code<'s> {
    stage: &'s Stage,
    flows: &'s BTreeMap<FunctionId, Flow>,
    areas: Vec<Range<u64>>,
}

impl Code<'_> {
    fn difference(&self, plain: &End, other: &End) -> Option<String> {
        // A snippet needs stack, too: at the same end of the stack it is the snippet that faults,
        // and the registers are its own.
        let both = plain.overflowed() && other.overflowed() && plain.fault == other.fault;
        if both && self.areas.iter().any(|area| area.contains(&other.rip)) {
            return None;
        }
        difference(plain, other, self.needed(plain, other))
    }

    /// Returns what of the two ends has to be the same: what is live where the first one is.
    fn needed(&self, plain: &End, other: &End) -> Needed {
        let at = plain.at().wrapping_sub(self.stage.bias);
        let mut needed = Needed { live: KEPT, moved: false, pushes: false, called: false };
        if plain.returned() {
            needed.live =
                Live { general: KEPT.general | 0b101, vectors: 3, upper: 3, x87: true, ..KEPT };
        } else if let Some(id) = self.stage.module.function_at(at) {
            let looked_at;
            let flow = match self.flows.get(&id) {
                Some(flow) => flow,
                None => {
                    looked_at = self.stage.module.flow(id);
                    &looked_at
                }
            };
            if let Some(instruction) = flow.instruction_at(at) {
                needed.live = flow.live_before(at);
                needed.moved = self.areas.iter().any(|area| area.contains(&other.rip));
                needed.pushes = instruction.marks.contains(Marks::CALL)
                    && instruction.marks.contains(Marks::INDIRECT);
            }
        } else if plain.jumped_away() {
            // Compares what is live at a call of an unknown function.
            needed.live = Live { general: 0xf7ff, vectors: 0xff, upper: 0xff, ..KEPT };
            needed.called = true;
        }
        needed
    }
}

#[test]
fn functions_do_the_same_with_code_spliced_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::new(3000, folder.path());
    let tally = wanted.try_all(BATCH, try_batch);
    println!("all: {}", tally.summary());
    for line in &tally.different {
        println!("differs: {line}");
    }
    assert!(tally.different.is_empty(), "{} functions differ", tally.different.len());
    assert!(tally.passed > 0 || wanted.is_single(), "no site was passed");
}
