//! Finds where unwinders look up frame descriptions, so that they also find those of spliced code.
//!
//! The unwinder of GCC's runtime library, by which exceptions are thrown, threads cancelled and
//! backtraces taken, asks the function `_Unwind_Find_FDE`. From GCC 12 on, that function asks
//! `_dl_find_object` of glibc, as LLVM's unwinder does. Both are looked for: in GCC's library,
//! which may be loaded later, in glibc, and in a statically linked program. In glibc the function
//! that programs can call is in `libc.so.6`; it jumps to one of the dynamic loader, which has a
//! name only where debug symbols are installed. Other C libraries have no such function: with them,
//! a program whose own file has GCC's unwinder is looked at as well.

use refit_analysis::Module;
use refit_splice::process::Program;
use refit_splice::{Action, At, Plan};
use tracing::debug;

use crate::code::behind_mark;
use crate::files::Files;
use crate::libunwind;
use crate::sites::Place;

/// The functions that unwinders ask.
const FINDERS: [(&str, Action); 2] =
    [("_Unwind_Find_FDE", Action::FindFrame), ("_dl_find_object", Action::FindObject)];
/// Names of the files that they are in, as they begin.
const FILES: [&str; 2] = ["libgcc_s.so", "libc.so.6"];

/// Adds sites to a plan at which the program's unwinders learn of spliced code. Returns the
/// functions, each with the name of its file.
pub fn add(program: &Program, files: &mut Files, plan: &mut Plan) -> Vec<(String, &'static str)> {
    let is_static = files.all().len() == 1;
    let mut all = Vec::new();
    for file in files.all() {
        let name = files.mapped(file).name();
        if is_static || FILES.iter().any(|begin| name.starts_with(begin)) {
            add_in(program, files, file, plan, &mut all);
        }
    }
    let [(own, _), (loaders, _)] = FINDERS;
    if !is_static && !all.iter().any(|(_, function)| *function == loaders) {
        let linked = |file: &usize| files.mapped(*file).is_program_with(program, own);
        if let Some(file) = files.all().find(linked) {
            add_in(program, files, file, plan, &mut all);
        }
    }
    if let Some(list) = libunwind::find(program, files) {
        debug!(?list, "libunwind learns of spliced code");
        plan.register_frames(list);
    }
    all
}

/// Adds sites in a file, and adds them to the list of functions.
fn add_in(
    program: &Program,
    files: &mut Files,
    file: usize,
    plan: &mut Plan,
    all: &mut Vec<(String, &'static str)>,
) {
    let name = files.mapped(file).name();
    // What has ended, or cannot be read, is reported by the installation.
    let Ok((module, bias)) = files.open(file) else { return };
    let added = add_for(program, plan, module, bias);
    debug!(file = name, ?added, "unwinders learn of spliced code");
    all.extend(added.into_iter().map(|function| (name.clone(), function)));
}

/// Adds sites in a module; returns the functions.
fn add_for(program: &Program, plan: &mut Plan, module: &Module, bias: u64) -> Vec<&'static str> {
    let finders = FINDERS.into_iter().filter(|(finder, action)| {
        let symbol = module.image().symbols().iter().find(|symbol| &*symbol.name == *finder);
        symbol.is_some_and(|symbol| {
            add_at(program, plan, module, symbol.address, bias, action.clone()).is_some()
        })
    });
    finders.map(|(finder, _)| finder).collect()
}

/// Adds the site at the entry of a function; `None` if that is not possible.
fn add_at(
    program: &Program,
    plan: &mut Plan,
    module: &Module,
    entry: u64,
    bias: u64,
    action: Action,
) -> Option<()> {
    let place = Place::in_place(module, module.function_at(entry)?, bias);
    let first = behind_mark(module, entry);
    // Only at the entry are all registers but the arguments free.
    if place.is_turned_to(first) {
        return None;
    }
    let site = place.site(first, At::Before, Vec::new()).ok()?;
    // Another session of probes may have changed it already, and lists the areas of all sessions.
    let mut now = vec![0; site.code.len()];
    program.read(site.address, &mut now).ok().filter(|()| now == site.code)?;
    plan.find_frames(site, action).then_some(())
}
