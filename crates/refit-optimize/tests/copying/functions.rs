//! Functions of which all blocks count as hot, or those that a number chooses.

use std::collections::BTreeSet;
use std::time::Duration;

use refit_analysis::flow::Block;
use refit_analysis::{FunctionId, Module};
use refit_optimize::calls::Targets;
use refit_optimize::layout::Hot;
use refit_optimize::profile::{Profile, Profiled};

/// Makes functions of a file hot that is mapped `bias` bytes from its addresses: all their blocks,
/// or those that `seed` chooses.
pub(crate) fn hot(module: &Module, bias: u64, ids: &[FunctionId], seed: Option<u64>) -> Hot {
    let functions = ids.iter().map(|&id| {
        let blocks = 0..module.flow(id).blocks().len() as u64;
        let runs = |block: u64| match seed {
            Some(seed) => (seed ^ u64::from(id.0)).wrapping_mul(block * 2 + 1) >> 3 & 3,
            None => 1,
        };
        Profiled { id, blocks: blocks.map(|block| Some(runs(block).min(1))).collect() }
    });
    let lasted = Duration::from_secs(1);
    let profile = Profile { functions: functions.collect(), lasted };
    let targets = any_targets(module, &profile, seed.unwrap_or(0));
    Hot::new(module, bias, (&profile, &targets), &BTreeSet::new())
}

/// Says of all calls that they mostly lead to some functions of the profile.
fn any_targets(module: &Module, profile: &Profile, seed: u64) -> Targets {
    let entry = |at: u64| {
        let number = seed.wrapping_add(at) as usize % profile.functions.len();
        module.function(profile.functions[number].id).entry
    };
    let flows = profile.functions.iter().map(|one| module.flow(one.id));
    let calls = flows.flat_map(|flow| {
        let last = |block: &Block| flow.block_instructions(block).last().map(|one| one.address);
        flow.blocks().iter().filter_map(last).collect::<Vec<_>>()
    });
    let parts = [0.7, 0.2, 0.09];
    let likely = |call: u64| (call..).zip(parts).map(|(at, part)| (entry(at), part)).collect();
    calls.map(|call| (call, likely(call))).collect()
}
