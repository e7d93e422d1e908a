//! Arrangements of all functions of a program whose names match.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use refit_analysis::Module;
use refit_analysis::flow::Block;
use refit_optimize::calls::Targets;
use refit_optimize::layout::Hot;
use refit_optimize::profile::{Profile, Profiled};
use refit_probe::files::Files;
use refit_probe::finder;
use refit_splice::process::Program;
use refit_splice::remains::Which;
use refit_splice::{Arrangement, Installed, Plan};

use super::replaced::take_out_of;
use super::victim::Victim;

/// The functions of a program that match a name, all their blocks, or those that `seed` chooses.
pub(crate) struct Functions {
    pub(crate) hot: Hot,
}

impl Functions {
    pub(crate) fn new(program: &Program, path: &Path, pattern: &str, seed: Option<u64>) -> Self {
        let module = Module::open(path).expect("a program");
        let files = Files::new(program).expect("it runs");
        let own = files.all().find(|&file| files.mapped(file).path == path).expect("its file");
        let bias = files.mapped(own).bias(module.image()).expect("mapped");
        let functions = module.find(pattern).into_iter().map(|id| {
            let blocks = 0..module.flow(id).blocks().len() as u64;
            let runs = |block: u64| match seed {
                Some(seed) => (seed ^ u64::from(id.0)).wrapping_mul(block * 2 + 1) >> 3 & 3,
                None => 1,
            };
            Profiled { id, blocks: blocks.map(|block| Some(runs(block).min(1))).collect() }
        });
        let lasted = Duration::from_secs(1);
        let profile = Profile { functions: functions.collect(), lasted };
        let targets = any_targets(&module, &profile, seed.unwrap_or(0));
        Self { hot: Hot::new(&module, bias, (&profile, &targets), &BTreeSet::new()) }
    }

    pub(crate) fn any(&self, seed: u64) -> Arrangement {
        self.hot.arrangement(&self.hot.any_order(seed))
    }
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

/// Installs an arrangement.
pub(crate) fn install(program: &Program, arrangement: Arrangement) -> Installed {
    let (mut plan, _) = Plan::arranged(arrangement);
    let mut files = Files::new(program).expect("it runs");
    finder::add(program, &mut files, &mut plan);
    Installed::new(program, &plan, 0, None).expect("installed")
}

/// Takes the copies out of a program, and then everything.
pub(crate) fn take_out(victim: &mut Victim, again: impl FnOnce(&mut Victim)) {
    take_out_of(victim, Which::Arrangements, again);
}
