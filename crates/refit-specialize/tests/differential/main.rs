//! Versions of functions do what the functions do: same live registers, same memory, same way out.
//!
//! Each function runs from registers and memory derived from a seed (`stage.c` of refit-probe),
//! until it returns, faults or makes a system call: twice as it is, and once with a version for the
//! value that one of its arguments has. Functions that end differently by themselves are left out.
//!
//! `ci/differential.sh` runs it on many functions.

#[path = "../../../refit-probe/tests/differential/end.rs"]
#[expect(dead_code, reason = "the tests of splicing ask more of it")]
mod end;
#[path = "../../../refit-probe/tests/differential/stage.rs"]
mod stage;
#[path = "../../../refit-probe/tests/differential/wanted.rs"]
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use refit_analysis::flow::{Flow, Marks};
use refit_analysis::live::Live;
use refit_analysis::{FunctionId, registers};
use refit_probe::sites::Place;
use refit_specialize::code::Code;
use refit_specialize::constants::Loaded;
use refit_specialize::graph::Limits;
use refit_specialize::{ArgumentValue, Figures, NoVersion, entry_site, version};
use refit_splice::{Installed, Plan, Versions, remains};

use end::{End, KEPT, Needed, difference};
use stage::Stage;
use wanted::{Tally as _, Wanted};

/// Number of functions that have versions at the same time.
const BATCH: usize = 500;
/// Initial values of unused stack. The second is odd, and makes each word different.
const FILLS: [u64; 2] = [0x5454_5454_5454_5454, 0x9e37_79b9_7f4a_7c15];

/// Counts of functions tried, and of their results.
#[derive(Debug, Default)]
struct Tally {
    functions: usize,
    versions: usize,
    figures: Figures,
    /// Versions that ran to an end that can be compared.
    compared: usize,
    /// Versions among them that ended in the version, at an exact position.
    exact: usize,
    refused: BTreeMap<String, usize>,
    ends: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

impl wanted::Tally for Tally {
    fn add(&mut self, other: Self) {
        self.functions += other.functions;
        self.versions += other.versions;
        self.compared += other.compared;
        self.exact += other.exact;
        self.figures = sum(self.figures, other.figures);
        self.different.extend(other.different);
        for (why, count) in other.refused {
            *self.refused.entry(why).or_default() += count;
        }
        for (kind, count) in other.ends {
            *self.ends.entry(kind).or_default() += count;
        }
    }

    fn summary(&self) -> String {
        let Tally { functions, versions, figures, compared, exact, refused, ends, different } =
            self;
        format!(
            "{functions} functions, {versions} versions ({figures:?}), {compared} compared, {exact} of them exact in the \
             version; refused: {refused:?}; {ends:?}; {} differ",
            different.len()
        )
    }
}

impl Tally {
    fn refuse(&mut self, why: &NoVersion) {
        let text = match why {
            NoVersion::Inexact { .. } => "would differ".to_owned(),
            NoVersion::NoCode { .. } => "no code".to_owned(),
            NoVersion::Large { .. } => "large".to_owned(),
            _ => why.to_string().split(':').next().unwrap_or_default().to_owned(),
        };
        *self.refused.entry(text).or_default() += 1;
    }
}

fn sum(one: Figures, other: Figures) -> Figures {
    Figures {
        instructions: one.instructions + other.instructions,
        left: one.left + other.left,
        folded: one.folded + other.folded,
        branches: one.branches + other.branches,
        repeated: one.repeated + other.repeated,
    }
}

/// A function with a version, and the state from which it runs.
struct Case {
    id: FunctionId,
    register: u8,
    value: u64,
    request: (u64, u64),
}

/// Sebastiano Vigna's splitmix64, as in `stage.c`.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns the value of a register in the state that a seed gives; `None` if it is a pointer.
fn value_of(seed: u64, register: u8) -> Option<u64> {
    let mut state = seed;
    let mut value = None;
    for _ in 0..=register {
        let (kind, number) = (next(&mut state) % 16, next(&mut state));
        value = match kind {
            0..8 => None,
            8..11 => Some(0),
            11..14 => Some(number % 64),
            14 => Some(number % 0x1_0000_0000),
            _ => Some(number),
        };
    }
    value
}

/// Returns the register and the state for a function: one of its arguments is no pointer.
fn case(stage: &Stage, flow: &Flow) -> Option<Case> {
    let entry = stage.module.function(flow.function()).entry;
    let live = flow.live_before(entry);
    let arguments: Vec<u8> =
        registers::ARGUMENTS.into_iter().filter(|&one| live.general(one)).collect();
    let base = entry ^ wanted::seed() << 48;
    let register = *arguments.get((base >> 4) as usize % arguments.len().max(1))?;
    (0..64).find_map(|more| {
        let seed = base.wrapping_add(more << 32);
        let value = value_of(seed, register)?;
        let request = (entry.wrapping_add(stage.bias), seed);
        Some(Case { id: flow.function(), register, value, request })
    })
}

fn make(stage: &Stage, case: &Case) -> Result<(Versions, Figures), NoVersion> {
    let place = Place::new(&stage.module, case.id, stage.bias);
    let code = Code::new(&place, &stage.module, stage.bias)?;
    let constants = Loaded::new(&stage.program, stage.module.image(), stage.bias);
    let constants = constants.expect("it runs");
    let known = ArgumentValue { register: case.register, value: case.value, tested: &[case.value] };
    let made = version(&code, known, &constants, Limits::default())?;
    let site = entry_site(&place, &stage.module)?;
    let body = place.body().cloned().ok_or(NoVersion::Uncopied)?;
    Ok((Versions { site, body, versions: vec![made.0], calls: Vec::new() }, made.1))
}

fn try_batch(stage: &mut Stage, batch: &[FunctionId]) -> Tally {
    let mut tally = Tally { functions: batch.len(), ..Tally::default() };
    let flows: BTreeMap<FunctionId, Flow> =
        batch.iter().map(|&id| (id, stage.module.flow(id))).collect();
    let (mut cases, mut versions) = (Vec::new(), Vec::new());
    for case in flows.values().filter_map(|flow| case(stage, flow)) {
        match make(stage, &case) {
            Ok((made, figures)) => {
                tally.figures = sum(tally.figures, figures);
                cases.push(case);
                versions.push(made);
            }
            Err(why) => {
                if let NoVersion::Inexact { address, .. } = why {
                    let name = stage.module.function(case.id).name();
                    let at = address.wrapping_sub(stage.bias);
                    println!("{}:{name}: would differ at {at:#x}", stage.mapped.name());
                }
                tally.refuse(&why);
            }
        }
    }
    let (plan, refused) = Plan::versions(versions);
    let refused: BTreeSet<usize> = refused.into_iter().map(|(index, _)| index).collect();
    *tally.refused.entry("no room".to_owned()).or_default() += refused.len();
    let mut at = 0..;
    cases.retain(|_| !at.next().is_some_and(|index| refused.contains(&index)));
    tally.versions = cases.len();
    if cases.is_empty() {
        return tally;
    }
    let requests: Vec<_> = cases.iter().map(|case| case.request).collect();
    let plain = stage.run(0, &requests, FILLS[0]);
    let other = stage.run(1, &requests, FILLS[1]);
    let installed = Installed::new(&stage.program, &plan, 0, None).expect("put in");
    let changed = stage.run(2, &requests, FILLS[0]);
    let code = Facts { stage, flows: &flows, areas: stage.areas(), installed: Some(&installed) };
    let mut differ = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        *tally.ends.entry(plain[at].kind()).or_default() += 1;
        // A patch area may now be where nothing was.
        let unclear = !plain[at].tells()
            || !changed[at].tells()
            || code.areas.iter().any(|area| area.contains(&plain[at].fault))
            || code.difference(case, &plain[at], &other[at]).is_some();
        if unclear {
            continue;
        }
        tally.compared += 1;
        tally.exact += usize::from(code.is_exact(&plain[at], &changed[at]));
        differ.extend(code.difference(case, &plain[at], &changed[at]).map(|what| (at, what)));
    }
    remains::repair(&stage.program).expect("taken out");
    for (at, what) in differ {
        // A value that changes by itself meanwhile (the time of day) is no fault.
        let again = stage.run(3, &requests[at..=at], FILLS[0]);
        let code = Facts { stage, flows: &flows, areas: Vec::new(), installed: None };
        if code.difference(&cases[at], &plain[at], &again[0]).is_some() {
            continue;
        }
        let name = stage.module.function(cases[at].id).name();
        let (register, value) = (cases[at].register, cases[at].value);
        tally.different.push(format!(
            "{}:{name} ({:#x}), register {register} = {value:#x}, at {}: {what}",
            stage.mapped.name(),
            cases[at].request.0.wrapping_sub(stage.bias),
            stage.place(plain[at].at()),
        ));
    }
    tally
}

/// Facts about the code in which functions end.
struct Facts<'s> {
    stage: &'s Stage,
    flows: &'s BTreeMap<FunctionId, Flow>,
    areas: Vec<Range<u64>>,
    installed: Option<&'s Installed>,
}

impl Facts<'_> {
    /// Whether it ended in a version, at a position at which a thread can continue in the function
    /// at the instruction at which the function ended.
    fn is_exact(&self, plain: &End, end: &End) -> bool {
        self.original(end) == Some(plain.rip)
    }

    /// Returns the address at which the thread could continue in the function.
    fn original(&self, end: &End) -> Option<u64> {
        self.installed?.originals().get(&end.rip).copied()
    }

    fn difference(&self, case: &Case, plain: &End, other: &End) -> Option<String> {
        // Instructions before it may be left out of the version.
        if let Some(original) = self.original(other).filter(|&original| original > plain.rip) {
            return Some(format!("it stands for {original:#x}, not for {:#x}", plain.rip));
        }
        difference(plain, other, self.needed(case, plain, other))
    }

    /// Returns what of the two ends has to be the same: what is live where the first one is.
    fn needed(&self, case: &Case, plain: &End, other: &End) -> Needed {
        let at = plain.at().wrapping_sub(self.stage.bias);
        let mut needed = Needed { live: KEPT, moved: false, pushes: false, called: false };
        if plain.returned() {
            needed.live =
                Live { general: KEPT.general | 0b101, vectors: 3, upper: 3, x87: true, ..KEPT };
            return needed;
        }
        needed.moved = self.areas.iter().any(|area| area.contains(&other.rip));
        let id = self.stage.module.function_at(at);
        let of_case = id == Some(case.id);
        if let Some(id) = id {
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
                needed.pushes = instruction.marks.contains(Marks::CALL)
                    && instruction.marks.contains(Marks::INDIRECT);
            }
        } else if plain.jumped_away() {
            // Compares what is live at a call of an unknown function.
            needed.live = Live { general: 0xf7ff, vectors: 0xff, upper: 0xff, ..KEPT };
        }
        if needed.moved && !self.is_exact(plain, other) {
            // Its own registers.
            needed.live = Live { general: 1 << 4, flags: 0, ..needed.live };
        } else if !of_case {
            // What functions preserve, the version may need no more.
            // Nor does the function tell what its test leaves in register 11.
            needed.live.general &= !(KEPT.general & !(1 << 4)) & !(1 << 11);
        }
        needed
    }
}

#[test]
fn versions_do_what_the_functions_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::new(4000, folder.path());
    let tally = wanted.try_all(BATCH, try_batch);
    println!("all: {}", tally.summary());
    for line in &tally.different {
        println!("differs: {line}");
    }
    assert_eq!(tally.refused.get("would differ"), None);
    assert!(tally.different.is_empty(), "{} functions differ", tally.different.len());
    assert!(tally.compared > 0 || wanted.is_single(), "nothing was compared");
}
