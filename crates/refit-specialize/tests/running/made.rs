//! Versions of all functions of a program whose names match.

use std::path::Path;

use refit_analysis::{Module, registers};
use refit_probe::files::Files;
use refit_probe::finder;
use refit_probe::sites::Place;
use refit_specialize::calls::{Callee, constant_calls};
use refit_specialize::code::Code;
use refit_specialize::constants::Loaded;
use refit_specialize::graph::Limits;
use refit_specialize::{ArgumentValue, entry_site, version};
use refit_splice::process::Program;
use refit_splice::remains::Which;
use refit_splice::{Installed, Plan, Versions};

use super::replaced::take_out_of;
use super::victim::Victim;

/// Installs versions of the functions of a program that match a name, for these values of their
/// first argument. Returns the number of functions.
pub(crate) fn install(
    program: &Program,
    path: &Path,
    pattern: &str,
    values: &[u64],
) -> (Installed, usize) {
    let module = Module::open(path).expect("a program");
    let mut files = Files::new(program).expect("it runs");
    let own = files.all().find(|&file| files.mapped(file).path == path).expect("its file");
    let bias = files.mapped(own).bias(module.image()).expect("mapped");
    let constants = Loaded::new(program, module.image(), bias).expect("it runs");
    let functions = module.find(pattern).into_iter().filter_map(|id| {
        let place = Place::new(&module, id, bias);
        let code = Code::new(&place, &module, bias).ok()?;
        let of = |&value: &u64| {
            let known = ArgumentValue { register: registers::ARGUMENTS[0], value, tested: values };
            let made = version(&code, known, &constants, Limits::default());
            made.ok().map(|(version, _)| version)
        };
        let versions: Vec<_> = values.iter().filter_map(of).collect();
        let site = entry_site(&place, &module).ok()?;
        let body = place.body()?.clone();
        let entry = module.function(id).entry;
        let callee = Callee { entry, site: site.address, register: registers::ARGUMENTS[0] };
        let of: Vec<u64> = versions.iter().map(|one| one.value).collect();
        let calls = constant_calls(program, (&module, bias), &callee, &of);
        (!versions.is_empty()).then_some(Versions { site, body, versions, calls })
    });
    let (mut plan, _) = Plan::versions(functions.collect());
    let lines = plan.lines().count();
    finder::add(program, &mut files, &mut plan);
    (Installed::new(program, &plan, 0, None).expect("installed"), lines)
}

/// Takes the versions out of a program, and then everything.
pub(crate) fn take_out(victim: &mut Victim, again: impl FnOnce(&mut Victim)) {
    take_out_of(victim, Which::Versions, again);
}
