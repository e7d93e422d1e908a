//! Unusual programs: their first thread ends, they share their memory, limit their calls, switch
//! threads by themselves, change their thread pointers, unload what is watched, fault and trap all
//! the time.

use std::sync::Arc;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::victim::{Built, Victim, build, until};
use refit_analysis::Live;
use refit_splice::process::{Program, Refusal};
use refit_splice::remains::{self, KeptReason};
use refit_splice::{Action, At, Base, Installed, Key, Plan, Site, Step, Value, Why, Width};
use refit_sys::userfault::Features;

fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "splicing/lives.c", &["-pthread"])).path()
}

/// Counts the calls of `work`, at its first five bytes: one `nop` each.
fn watch(victim: &Victim, steps: Vec<Step>) -> Result<Installed, Why> {
    let cells = steps.iter().map(Step::cells).sum();
    let address = victim.address("work");
    let mut code = vec![0; 32];
    victim.program().read(address, &mut code).expect("its code");
    let site = Site {
        address,
        at: At::Before,
        code,
        room: 5,
        live: Live::ALL,
        alone: false,
        springboards: Vec::new(),
        actions: steps,
        function: None,
        procedures: Arc::default(),
    };
    let (plan, refused) = Plan::new(vec![site]);
    assert!(refused.is_empty(), "{refused:?}");
    Installed::new(&victim.program(), &plan, cells, None)
}

/// As `watch`, with one counter.
pub(crate) fn counted(victim: &Victim) -> Installed {
    watch(victim, vec![Action::Count { cell: 0 }.into()]).expect("installed")
}

/// Installs and removes counters repeatedly.
fn come_and_go(victim: &Victim, times: usize) {
    let program = victim.program();
    for _ in 0..times {
        let installed = counted(victim);
        until(|| installed.cell(0).expect("read") > 0);
        let removed = remains::repair(&program).expect("taken out");
        assert_eq!((removed.sites, removed.foreign, removed.kept), (1, 0, 0), "{removed:?}");
    }
}

#[test]
fn the_first_thread_may_end_before_the_others() {
    let mut victim = Victim::with(program(), &["leader"]);
    let its = victim.program();
    let installed = counted(&victim);
    assert_eq!(victim.ask("go"), "gone");
    assert!(!its.ended());
    let before = installed.cell(0).expect("read");
    until(|| installed.cell(0).expect("read") > before);
    let removed = remains::repair(&its).expect("taken out");
    assert_eq!((removed.sites, removed.areas, removed.kept), (1, 1, 0));
    // From now on it can be watched, too.
    come_and_go(&victim, 3);
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn who_shares_the_memory_stands_too() {
    let mut victim = Victim::with(program(), &["shares"]);
    let stood = victim.program().stand_still(Duration::from_secs(10), |still| {
        Ok::<_, Refusal>(still.threads().count() + still.asleep().count())
    });
    assert_eq!(stood.expect("it stands").0, 2);
    come_and_go(&victim, 30);
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn a_program_that_limits_its_calls_meanwhile_makes_none_that_end_it() {
    let mut victim = Victim::with(program(), &["limits"]);
    let its = victim.program();
    let installed = counted(&victim);
    assert_eq!(victim.ask("go"), "gone");
    until(|| installed.cell(0).expect("read") == 1000);
    let removed = remains::repair(&its).expect("taken out as far as can be");
    if rustix::process::geteuid().is_root() {
        // Any call but three would end the program, if its filters were not suspended.
        assert_eq!((removed.sites, removed.areas, removed.kept), (1, 1, 0));
        let _again = counted(&victim);
        let removed = remains::repair(&victim.program()).expect("taken out");
        assert_eq!((removed.sites, removed.areas, removed.kept), (1, 1, 0));
        assert_eq!(victim.ask("end"), "right");
        return;
    }
    assert_eq!((removed.sites, removed.areas, removed.kept), (1, 0, 1));
    assert_eq!(removed.because, Some(KeptReason::Filtered));
    let refused = Program::open(its.id()).expect_err("no calls can be made");
    assert!(matches!(refused, Refusal::Filtered { .. }), "{refused}");
    let again = Program::open_to_clean(its.id()).expect("its code can be read");
    assert_eq!(remains::find(&again).expect("its mappings").len(), 1);
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn thread_pointers_may_change() {
    let mut victim = Victim::with(program(), &["pointer"]);
    let thread = Value { base: Base::Thread, width: Width::Whole };
    let by_thread =
        Step { when: Vec::new(), key: Some(Key::Value(thread)), action: Action::Count { cell: 1 } };
    let installed = watch(&victim, vec![Action::Count { cell: 0 }.into(), by_thread]);
    let installed = installed.expect("installed");
    assert_eq!(victim.ask("go"), "gone");
    assert_eq!(installed.cell(0).expect("read"), 1000);
    remains::repair(&victim.program()).expect("taken out");
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn threads_that_a_program_switches_by_itself_are_waited_for() {
    let mut victim = Victim::with(program(), &["switches"]);
    come_and_go(&victim, 40);
    assert_eq!(victim.ask("end"), "right");
}

/// There is more memory than a stop searches, and contexts move in it while it is searched before.
#[test]
fn contexts_that_move_in_much_memory_are_found() {
    if let Err(error) = refit_sys::userfault::permitted(Features::WP_ASYNC) {
        println!("skipped: writes cannot be noticed: {error}");
        return;
    }
    let mut victim = Victim::with(program(), &["spreads"]);
    come_and_go(&victim, 20);
    assert_eq!(victim.ask("end"), "right");
}

/// A quarter of the time a handler has a program counter in a register and nowhere else, mostly one
/// in the patch area.
#[test]
fn contexts_that_a_handler_has_in_its_hands_are_waited_for() {
    let mut victim = Victim::with(program(), &["holds"]);
    let program = victim.program();
    for round in 0..60 {
        // The next area has the same address, and counts something else: a thread that returns late
        // would run the wrong code.
        let cells = if round % 2 == 0 { 16 } else { 1 };
        let steps = (0..cells).map(|cell| Action::Count { cell }.into()).collect();
        let installed = watch(&victim, steps).expect("installed");
        until(|| installed.cell(cells - 1).expect("read") > 0);
        let removed = remains::repair(&program).expect("taken out");
        assert_eq!((removed.sites, removed.foreign, removed.kept), (1, 0, 0), "{removed:?}");
    }
    assert_eq!(victim.ask("end"), "right");
}

/// A handler that runs at every stop may hold a program counter in a register, so what it may point
/// to stays mapped.
#[test]
fn an_area_stays_while_a_handler_may_hold_a_context() {
    let mut victim = Victim::with(program(), &["runs"]);
    let program = victim.program();
    let _installed = counted(&victim);
    assert_eq!(victim.ask("go"), "gone");
    let removed = remains::repair(&program).expect("taken out as far as can be");
    assert_eq!((removed.sites, removed.areas, removed.kept), (1, 0, 1), "{removed:?}");
    assert_eq!(removed.because, Some(KeptReason::Handler));
    // Now it returns.
    assert_eq!(victim.ask("go"), "gone");
    let removed = remains::repair(&program).expect("taken out");
    assert_eq!((removed.sites, removed.areas, removed.kept), (0, 1, 0), "{removed:?}");
    assert_eq!(victim.ask("end"), "right");
}

/// A stack on which a handler was installed is not that of one that runs.
#[test]
fn nothing_stays_because_a_handler_was_installed() {
    let mut victim = Victim::with(program(), &["installs"]);
    come_and_go(&victim, 4);
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn faults_and_traps_are_told_as_they_were() {
    let mut victim = Victim::with(program(), &["faults"]);
    come_and_go(&victim, 60);
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn calls_that_a_stop_cuts_short_are_completed() {
    let mut victim = Victim::with(program(), &["transfers"]);
    come_and_go(&victim, 60);
    assert_eq!(victim.ask("end"), "right");
}

#[test]
fn what_has_been_unloaded_keeps_nothing() {
    let library = build("cc", "splicing/lent.c", &["-shared", "-fPIC"]);
    let path = library.path().to_str().expect("a path");
    let mut victim = Victim::with(program(), &["library", path]);
    let its = victim.program();
    let _installed = counted(&victim);
    assert_eq!(victim.ask("go"), "gone");
    let removed = remains::repair(&its).expect("taken out");
    assert_eq!((removed.sites, removed.foreign, removed.areas, removed.kept), (0, 0, 1, 0));
    assert_eq!(victim.ask("end"), "right");
}
