//! Copies of functions, in any order, do what the functions do: same registers, same memory, same
//! way out.
//!
//! Each function runs from registers and memory derived from a seed (`stage.c` of refit-probe),
//! until it returns, faults or makes a system call: twice as it is, and once while some of its
//! blocks, or all, are copied, with those of others. Functions that end differently by themselves
//! are left out.
//!
//! `ci/differential.sh` runs it on many functions.

#[path = "../../../refit-probe/tests/differential/end.rs"]
#[expect(dead_code, reason = "the tests of splicing ask more of it")]
mod end;
#[path = "../copying/functions.rs"]
mod functions;
#[path = "../../../refit-probe/tests/differential/stage.rs"]
mod stage;
#[path = "../../../refit-probe/tests/differential/wanted.rs"]
mod wanted;

use std::collections::BTreeMap;
use std::ops::Range;

use refit_analysis::FunctionId;
use refit_analysis::live::Live;
use refit_probe::code::decode;
use refit_splice::{Installed, Plan, remains};

use end::{End, KEPT, Needed, difference};
use stage::Stage;
use wanted::{Tally as _, Wanted};

/// Number of functions that are copied at the same time.
const BATCH: usize = 500;
/// Number of times that a function which ended differently runs once more without copies.
const AGAIN: usize = 5;
/// Functions whose result is how long they took. A copy takes longer when its pages are touched for
/// the first time, as they are in each run.
const TIMED: [&str; 1] = ["usec_spin"];
/// Initial values of unused stack. The second is odd, and makes each word different.
const FILLS: [u64; 2] = [0x5454_5454_5454_5454, 0x9e37_79b9_7f4a_7c15];

/// Counts of functions tried, and of their results.
#[derive(Debug, Default)]
struct Tally {
    functions: usize,
    copied: usize,
    blocks: usize,
    /// Functions that ran to an end that can be compared.
    compared: usize,
    /// Functions among them that ended in a copy.
    moved: usize,
    ends: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

impl wanted::Tally for Tally {
    fn add(&mut self, other: Self) {
        self.functions += other.functions;
        self.copied += other.copied;
        self.blocks += other.blocks;
        self.compared += other.compared;
        self.moved += other.moved;
        self.different.extend(other.different);
        for (kind, count) in other.ends {
            *self.ends.entry(kind).or_default() += count;
        }
    }

    fn summary(&self) -> String {
        let Tally { functions, copied, blocks, compared, moved, ends, different } = self;
        format!(
            "{functions} functions, {blocks} blocks of {copied} copied, {compared} compared, {moved} of them ended in a \
             copy; {ends:?}; {} differ",
            different.len()
        )
    }
}

fn try_batch(stage: &mut Stage, batch: &[FunctionId]) -> Tally {
    let seed = wanted::seed() ^ u64::from(batch[0].0);
    // All blocks of the functions of every other batch.
    let some = (batch[0].0 as usize / BATCH).is_multiple_of(2).then_some(seed);
    let hot = functions::hot(&stage.module, stage.bias, batch, some);
    let (copied, blocks) = hot.len();
    let mut tally = Tally { functions: batch.len(), copied, blocks, ..Tally::default() };
    let (plan, _) = Plan::arranged(hot.arrangement(&hot.any_order(seed)));
    let requests: Vec<(u64, u64)> = batch.iter().map(|&id| request(stage, id)).collect();
    let plain = stage.run(0, &requests, FILLS[0]);
    let other = stage.run(1, &requests, FILLS[1]);
    let installed = Installed::new(&stage.program, &plan, 0, None).expect("put in");
    let changed = stage.run(2, &requests, FILLS[0]);
    let facts = Facts { stage, areas: stage.areas(), originals: installed.originals() };
    let mut differ = Vec::new();
    for (at, plain) in plain.iter().enumerate() {
        *tally.ends.entry(plain.kind()).or_default() += 1;
        // A patch area may now be where nothing was.
        let unclear = !plain.tells()
            || !changed[at].tells()
            || facts.areas.iter().any(|area| area.contains(&plain.fault))
            || is_beyond_table(plain, &changed[at])
            || facts.is_lost(plain)
            || facts.difference(batch[at], plain, &other[at]).is_some();
        if unclear {
            continue;
        }
        tally.compared += 1;
        tally.moved += usize::from(facts.is_in_area(&changed[at]));
        differ.extend(facts.difference(batch[at], plain, &changed[at]).map(|what| (at, what)));
    }
    if !differ.is_empty() {
        // The time that it takes to touch the copies for the first time is no fault.
        let again = stage.run(2, &requests, FILLS[0]);
        let facts = Facts { stage, areas: stage.areas(), originals: installed.originals() };
        differ.retain(|(at, _)| facts.difference(batch[*at], &plain[*at], &again[*at]).is_some());
    }
    remains::repair(&stage.program).expect("taken out");
    differ.retain(|(at, _)| !TIMED.contains(&&*stage.module.function(batch[*at]).name()));
    for (at, what) in differ {
        // A value that changes by itself meanwhile (the time of day) is no fault.
        let by_itself = (0..AGAIN).any(|_| {
            let again = stage.run(3, &requests[at..=at], FILLS[0]);
            let facts = Facts { stage, areas: Vec::new(), originals: &BTreeMap::new() };
            facts.difference(batch[at], &plain[at], &again[0]).is_some()
        });
        if by_itself {
            continue;
        }
        tally.different.push(format!(
            "{}:{} ({:#x}), at {}: {what}",
            stage.mapped.name(),
            stage.module.function(batch[at]).name(),
            requests[at].0.wrapping_sub(stage.bias),
            stage.place(plain[at].at()),
        ));
    }
    tally
}

/// Whether both went where no code is, but not to the same place. The compiler has proved of some
/// indices of jump tables that they are within the table, which those of the stage are not; behind
/// the copy of a table is something else than behind the table.
fn is_beyond_table(plain: &End, changed: &End) -> bool {
    plain.jumped_away() && changed.jumped_away() && plain.rip != changed.rip
}

/// Returns the address of a function in the program, and the state from which it runs.
fn request(stage: &Stage, id: FunctionId) -> (u64, u64) {
    let entry = stage.module.function(id).entry;
    (entry.wrapping_add(stage.bias), entry ^ wanted::seed() << 48)
}

/// Facts about the code in which functions end.
struct Facts<'s> {
    stage: &'s Stage,
    areas: Vec<Range<u64>>,
    /// The original instructions, by the addresses of their copies.
    originals: &'s BTreeMap<u64, u64>,
}

impl Facts<'_> {
    fn is_in_area(&self, end: &End) -> bool {
        self.areas.iter().any(|area| area.contains(&end.rip))
    }

    /// Whether it ended in the file's code, but at no instruction: it has followed a pointer that
    /// is none.
    fn is_lost(&self, end: &End) -> bool {
        let at = end.at().wrapping_sub(self.stage.bias);
        let module = &self.stage.module;
        let mut code = module.image().code().iter();
        let known = || {
            let id = module.function_at(at);
            id.is_some_and(|id| module.flow(id).instruction_at(at).is_some())
        };
        code.any(|code| code.addresses.contains(&at)) && !known()
    }

    /// Returns where the jump at an address leads: what follows it in the copy stands for it, if it
    /// was left out there.
    fn jumped_to(&self, address: u64) -> Option<u64> {
        let bias = self.stage.bias;
        let one = decode(&self.stage.module, address.wrapping_sub(bias))?;
        one.is_jmp_short_or_near().then(|| one.near_branch64().wrapping_add(bias))
    }

    /// Returns how the end of a function differs from another one's. A jump by a table leaves its
    /// target in a register: in a copy, that of the copy.
    fn difference(&self, case: FunctionId, plain: &End, other: &End) -> Option<String> {
        let original = self.originals.get(&other.rip).copied();
        let is_it = original == Some(plain.rip)
            || original.and_then(|one| self.jumped_to(one)) == Some(plain.rip);
        if self.is_in_area(other) && !is_it {
            return Some(format!("it stands for {original:x?}, not for {:#x}", plain.rip));
        }
        let original = |value| self.originals.get(&value).copied().unwrap_or(value);
        let mut meant = other.clone();
        meant.general = meant.general.map(original);
        difference(plain, &meant, self.needed(case, plain, other))
    }

    /// Returns what of the two ends of a function has to be the same: what is live where the first
    /// one is.
    fn needed(&self, case: FunctionId, plain: &End, other: &End) -> Needed {
        let moved = self.is_in_area(other);
        let mut needed = Needed { live: KEPT, moved, pushes: false, called: false };
        if plain.returned() {
            needed.live =
                Live { general: KEPT.general | 0b101, vectors: 3, upper: 3, x87: true, ..KEPT };
            return needed;
        }
        let at = plain.at().wrapping_sub(self.stage.bias);
        if let Some(id) = self.stage.module.function_at(at) {
            let flow = self.stage.module.flow(id);
            if flow.instruction_at(at).is_some() {
                needed.live = flow.live_before(at);
            }
            if id != case {
                // The function has been called, maybe by a compared call.
                needed.live.general &= !(1 << 11);
            }
        } else if plain.jumped_away() {
            // What is live at a call of an unknown function. A compared call leaves something else
            // in register 11.
            needed.live = Live { general: 0xf7ff, vectors: 0xff, upper: 0xff, ..KEPT };
        }
        needed
    }
}

#[test]
fn copies_do_what_the_functions_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Wanted::new(3000, folder.path());
    let tally = wanted.try_all(BATCH, try_batch);
    println!("all: {}", tally.summary());
    for line in &tally.different {
        println!("differs: {line}");
    }
    assert!(tally.different.is_empty(), "{} functions differ", tally.different.len());
    assert!(tally.moved > 0 || wanted.is_single(), "nothing ended in a copy");
}
