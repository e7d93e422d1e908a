//! Finds where unwinders look up frame descriptions, so that they also find those of spliced code.
//!
//! The unwinder of GCC's runtime library, by which exceptions are thrown, threads cancelled and
//! backtraces taken, asks the function `_Unwind_Find_FDE`. The library is a file of its own
//! (`libgcc_s.so.1`), or part of a statically linked program. A program that loads the library
//! later, and one whose symbols are stripped from its own copy, learns nothing of spliced code.

use refit_analysis::Module;
use refit_splice::process::Program;
use refit_splice::{At, Plan};
use tracing::debug;

use crate::code::behind_mark;
use crate::modules::{self, Mapped};
use crate::sites::Place;

const FINDER: &str = "_Unwind_Find_FDE";
const LIBRARY: &str = "libgcc_s.so.1";

/// Adds sites to a plan at which the program's unwinders learn of spliced code.
pub fn add(program: &Program, plan: &mut Plan) {
    // What has ended, or cannot be read, is reported by the installation.
    let mapped = modules::of(program).unwrap_or_default();
    let is_static = mapped.len() == 1;
    for file in mapped.iter().filter(|file| is_static || file.name() == LIBRARY) {
        let added = add_for(program, plan, file);
        debug!(file = file.name(), added = added.is_some(), "unwinders learn of spliced code");
    }
}

/// Adds a site in a file; `None` if there is no such function, or it has no room.
fn add_for(program: &Program, plan: &mut Plan, file: &Mapped) -> Option<()> {
    let module = file.open().ok()?;
    let bias = file.bias(&module)?;
    let symbol = module.image().symbols().iter().find(|symbol| &*symbol.name == FINDER)?;
    add_at(program, plan, &module, symbol.address, bias)
}

/// Adds the site at the entry of the function.
fn add_at(
    program: &Program,
    plan: &mut Plan,
    module: &Module,
    entry: u64,
    bias: u64,
) -> Option<()> {
    let place = Place::in_place(module, module.function_at(entry)?, bias);
    let site = place.site(behind_mark(module, entry), At::Before, Vec::new()).ok()?;
    // Another session of probes may have changed it already, and lists the areas of all sessions.
    let mut now = vec![0; site.code.len()];
    program.read(site.address, &mut now).ok().filter(|()| now == site.code)?;
    plan.find_frames(site).then_some(())
}
