//! Calls with a constant argument lead to its version.

use std::collections::BTreeMap;

use refit_analysis::Module;
use refit_probe::direct_calls;
use refit_probe::files::Files;
use refit_specialize::{Options, Step, specialize};
use refit_splice::process::Program;
use refit_splice::remains;

use super::victim::{Victim, build};

/// Returns the number of calls of `scaled` whose bytes are those of the file.
fn original_calls(program: &Program, module: &Module) -> usize {
    let files = Files::new(program).expect("it runs");
    let own = files.own(program).expect("its file");
    let bias = files.mapped(own).bias(module.image()).expect("mapped");
    let entry = module.function(module.find("scaled")[0]).entry;
    direct_calls::find(program, module, bias, &BTreeMap::from([(entry, 0)]), |_| true).len()
}

#[test]
fn calls_with_a_constant_argument_lead_to_its_version() {
    let built = build("cc", "running/constant.c", &[]);
    let module = Module::open(built.path()).expect("a program");
    let mut victim = Victim::of(built.path());
    let program = victim.program();
    let (plain, before) = (victim.ask("go 1000"), victim.traces());
    assert_eq!(original_calls(&program, &module), 5);
    let target = "scaled(arg1=5)".parse().expect("a target");
    let options = Options { unproved: true, ..Options::new(target) };
    let mut calls = None;
    let outcome = specialize(&program, &options, &mut |step| {
        if let Step::Calls(count) = step {
            calls = Some(*count);
        }
    });
    let installed = outcome.expect("specialized").installed.expect("installed");
    // Those of `by_five` and `ends_with_five`.
    assert_eq!((calls, original_calls(&program, &module)), (Some(2), 3));
    assert_eq!(victim.ask("go 1000"), plain);
    installed.leave(&program, || ()).expect("left");
    assert_eq!(original_calls(&program, &module), 5);
    assert_eq!(victim.ask("go 1000"), plain);
    installed.enter(&program, || ()).expect("entered");
    assert_eq!((victim.ask("go 1000"), original_calls(&program, &module)), (plain.clone(), 3));
    let removed = remains::repair(&program).expect("repaired");
    assert_eq!((removed.sites, removed.kept), (1, 0));
    assert_eq!(victim.ask("go 1000"), plain);
    assert!(victim.traces() == before);
}
