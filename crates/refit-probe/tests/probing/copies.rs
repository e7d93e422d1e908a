//! Copied functions: programs behave as before, with sites at every block, under signals,
//! exceptions and cancellation.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use super::victim::{Built, Victim, build};
use refit_analysis::Module;
use refit_analysis::flow::Marks;
use refit_probe::modules;
use refit_probe::places;
use refit_probe::placing;
use refit_probe::sites::Place;
use refit_probe::spec::What;
use refit_probe::steps::Steps;
use refit_splice::process::Program;
use refit_splice::{
    Action, At, Base, Clock, ENTRIES, EXITS, Installed, Key, Plan, Site, Step, TIMER, Value, Why,
    Width, remains,
};

fn moving() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("c++", "probing/copied.cc", &["-pthread"])).path()
}

fn fixed() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("c++", "probing/copied.cc", &["-pthread", "-static"])).path()
}

/// Sites that are wanted, before their plan.
pub(super) struct Wanted {
    pub(super) sites: Vec<Site>,
    /// Cells by the name of the function and the index of the block.
    cells: BTreeMap<(String, usize), u32>,
    /// Cells by the name of the function and the index of the jump in it.
    taken: BTreeMap<(String, usize), u32>,
    functions: usize,
    /// The function of each site.
    names: Vec<String>,
}

/// Returns the program's own file, and its load bias.
pub(super) fn module(program: &Program, path: &Path) -> (Module, u64) {
    let module = Module::open(path).expect("an analysis");
    let mapped = modules::of(program).expect("its files");
    let mapped = mapped.iter().find(|mapped| mapped.path == path).expect("its own");
    let bias = mapped.bias(module.image()).expect("the same file");
    (module, bias)
}

/// Returns a site at each block of the program's own functions, before each call, and on the way of
/// each jump.
pub(super) fn blocks(program: &Program, path: &Path, poison: bool) -> Wanted {
    let (module, bias) = module(program, path);
    let mut wanted = Wanted {
        sites: Vec::new(),
        cells: BTreeMap::new(),
        taken: BTreeMap::new(),
        functions: 0,
        names: Vec::new(),
    };
    let own = |name: &str| name.starts_with("t_") || name.starts_with("_Z") && name.contains("t_");
    for (number, function) in module.functions().iter().enumerate() {
        let name = function.name();
        if !own(&name) {
            continue;
        }
        let place = Place::new(&module, refit_analysis::FunctionId(number as u32), bias);
        let mut add = |address, at| {
            let cell = wanted.sites.len() as u32;
            let mut actions = vec![Action::Count { cell }.into()];
            actions.extend(poison.then_some(Action::POISON.into()));
            wanted.sites.push(place.site(address, at, actions).expect("its code"));
            wanted.names.push(name.clone());
            cell
        };
        for (block, one) in place.flow().blocks().iter().enumerate() {
            for call in place.flow().block_instructions(one) {
                if call.marks.contains(Marks::CALL) && call.address != one.start {
                    add(call.address, At::Before);
                }
            }
            wanted.cells.insert((name.clone(), block), add(one.start, At::Before));
        }
        let jumps = place.flow().instructions().iter();
        let direct = |marks: Marks| marks.contains(Marks::JUMP) && !marks.contains(Marks::INDIRECT);
        for (jump, one) in jumps.filter(|one| direct(one.marks)).enumerate() {
            wanted.taken.insert((name.clone(), jump), add(one.address, At::Taken));
        }
        // Two sites at one address are never spliced in place.
        add(place.flow().blocks()[0].start, At::Before);
        wanted.functions += 1;
    }
    wanted
}

fn plan(wanted: &Wanted) -> Plan {
    let (plan, refused) = Plan::new(wanted.sites.clone());
    let refused: Vec<_> = refused.iter().map(|(at, why)| (&wanted.names[*at], why)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(plan.copies(), wanted.functions);
    plan
}

fn install(program: &Program, wanted: &Wanted) -> Installed {
    let installed = Installed::new(program, &plan(wanted), wanted.sites.len() as u32, None);
    installed.expect("installed")
}

#[test]
fn every_block_is_counted_and_nothing_else_is_different() {
    for path in [moving(), fixed()] {
        let mut victim = Victim::of(path);
        let program = victim.program();
        let (before, plain) = (victim.traces(), victim.work(300));
        let wanted = blocks(&program, path, false);
        let installed = install(&program, &wanted);
        assert_eq!(victim.work(300), plain);
        let count = |cells: &BTreeMap<(String, usize), u32>, name: &str, number: usize| {
            installed.cell(cells[&(name.to_owned(), number)]).expect("read")
        };
        let block = |name: &str, number| count(&wanted.cells, name, number);
        // Two threads, 300 rounds; `t_loops` has an entry, a loop of five rounds, and more.
        assert_eq!([0, 1].map(|number| block("t_loops", number)), [600, 3000]);
        assert_eq!(count(&wanted.taken, "t_loops", 0), 2400);
        assert_eq!(block("t_zero", 0), block("t_zero", 1) + block("t_zero", 2));
        // 0, 1 or 2 as an argument: once or twice around.
        assert_eq!([0, 1].map(|number| block("t_asks", number)), [600, 800]);
        // Odd ones leave by the first jump, every other even one by the second.
        assert_eq!([0, 1].map(|jump| count(&wanted.taken, "t_sometimes", jump)), [300, 150]);
        assert_eq!([0, 1, 2].map(|number| block("t_sometimes", number)), [600, 300, 150]);
        let removed = remains::repair(&program).expect("taken out");
        assert_eq!((removed.areas, removed.kept, removed.foreign), (1, 0, 0));
        assert_eq!(victim.work(300), plain);
        assert_eq!(victim.traces(), before);
    }
}

#[test]
fn every_way_in_and_out_is_timed_once() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let (module, bias) = module(&program, moving());
    let (mut wanted, mut timers, mut cell) = (Vec::new(), Vec::new(), 0);
    for name in ["t_inner", "t_outer", "t_sometimes"] {
        let [found] = &places::find(&module, &What::Functions(name.into()))[..] else { panic!() };
        let key = || Some(Key::Value(Value { base: Base::Context, width: Width::Whole }));
        let time = |enters| Action::Time { cell, threads: 64, enters, clock: Clock::Wall };
        let step = |enters| vec![Step { when: Vec::new(), key: key(), action: time(enters) }];
        let (here, leaving) = (step(true), step(false));
        timers.push((here[0].clone(), cell));
        cell = (cell + here[0].cells()).next_multiple_of(TIMER);
        let steps = Steps { entering: here.clone(), here, leaving, ..Steps::default() };
        wanted.extend(placing::place(&module, found, bias, &steps).expect("instructions").sites);
    }
    let (plan, refused) = Plan::new(wanted);
    assert!(refused.is_empty(), "{refused:?}");
    let plain = victim.work(300);
    let installed = Installed::new(&program, &plan, cell, None).expect("installed");
    assert_eq!(victim.work(300), plain);
    let entered_and_left = timers.iter().map(|(step, first)| {
        let (threads, lost) = installed.timers(step, *first).expect("read");
        assert_eq!(lost, 0);
        [ENTRIES, EXITS].map(|number| threads.values().map(|timer| timer[number]).sum::<u64>())
    });
    // For two threads: the 150 even calls and 75 odd ones of `t_outer` enter `t_inner` as well.
    assert_eq!(entered_and_left.collect::<Vec<_>>(), [[1050; 2], [600; 2], [600; 2]]);
    remains::repair(&program).expect("taken out");
}

#[test]
fn what_is_called_dead_is_dead() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let plain = victim.work(300);
    let installed = install(&program, &blocks(&program, moving(), true));
    assert_eq!(victim.work(300), plain);
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.work(300), plain);
    drop(installed);
}

#[test]
fn copies_come_and_go_under_running_threads_and_handlers() {
    for path in [moving(), fixed()] {
        let mut victim = Victim::of(path);
        let program = victim.program();
        let before = victim.traces();
        let wanted = blocks(&program, path, false);
        let plan = plan(&wanted);
        victim.begin();
        for _ in 0..100 {
            let installed = Installed::new(&program, &plan, wanted.sites.len() as u32, None);
            let installed = installed.expect("installed");
            let removed = remains::repair(&program).expect("taken out");
            assert_eq!(removed.foreign, 0);
            drop(installed);
        }
        while remains::find(&program).expect("its mappings").iter().any(|left| left.sites() > 0) {
            remains::repair(&program).expect("taken out");
        }
        assert_eq!(victim.end(), "right");
        assert_eq!(victim.traces(), before);
    }
}

#[test]
fn frames_of_copied_functions_outlive_the_copy() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let before = victim.traces();
    let wanted = blocks(&program, moving(), false);
    // Entered in the copy, left in the original.
    let installed = install(&program, &wanted);
    // The victim stands inside a function until its next command.
    assert_eq!(victim.ask("hold 4"), "held");
    let removed = remains::repair(&program).expect("taken out");
    assert_eq!((removed.areas, removed.kept), (1, 0));
    assert_eq!(victim.end(), "16");
    drop(installed);
    // Entered in the original, left in the copy.
    assert_eq!(victim.ask("hold 5"), "held");
    let installed = install(&program, &wanted);
    assert_eq!(victim.end(), "19");
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.traces(), before);
    drop(installed);
}

#[test]
fn cancelled_threads_run_what_destroys() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let wanted = blocks(&program, moving(), false);
    let installed = install(&program, &wanted);
    victim.wait_in_calls();
    assert_eq!(victim.end(), "1 1");
    remains::repair(&program).expect("taken out");
    drop(installed);
    // The copy is installed while it waits.
    victim.wait_in_calls();
    let installed = install(&program, &wanted);
    assert_eq!(victim.end(), "1 1");
    remains::repair(&program).expect("taken out");
    drop(installed);
}

#[test]
fn functions_that_are_not_as_they_were_read_are_left_alone() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let (before, plain) = (victim.traces(), victim.work(10));
    let wanted = blocks(&program, moving(), false);
    let installed = install(&program, &wanted);
    // Another installation while the copies are there.
    for count in [1, wanted.sites.len()] {
        let (plan, _) = Plan::new(wanted.sites[..count].to_vec());
        let error = Installed::new(&program, &plan, count as u32, None).expect_err("other code");
        assert!(matches!(error, Why::Changed { .. }), "{error}");
    }
    assert_eq!(victim.work(10), plain);
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.traces(), before);
    drop(installed);
}
