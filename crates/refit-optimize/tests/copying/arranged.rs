//! Arrangements of all functions of a program whose names match.

use std::path::Path;

use refit_analysis::Module;
use refit_optimize::layout::Hot;
use refit_probe::files::Files;
use refit_probe::finder;
use refit_splice::process::Program;
use refit_splice::remains::Which;
use refit_splice::{Arrangement, Installed, Plan};

use super::functions::hot;
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
        Self { hot: hot(&module, bias, &module.find(pattern), seed) }
    }

    pub(crate) fn any(&self, seed: u64) -> Arrangement {
        self.hot.arrangement(&self.hot.any_order(seed))
    }
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
