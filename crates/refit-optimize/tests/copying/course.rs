//! A program computes what it computed while its functions run in copies that come and go: with
//! threads in loops, signals, long jumps, coroutines, switches, and pointers to functions.

use std::sync::OnceLock;

use refit_splice::remains::{self, KeptReason, Which};

use super::arranged::{Functions, install, take_out};
use super::replaced::computes;
use super::victim::{Built, Victim, build};

pub(crate) fn course() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "copying/course.c", &["-pthread"]))
}

#[test]
fn the_result_is_the_same_in_any_order() {
    let path = course().path();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let (plain, before) = (victim.ask("go 3000"), victim.traces().0);
    for seed in 0..8 {
        let some = (seed % 2 == 1).then_some(seed);
        let functions = Functions::new(&program, path, "c_*", some);
        let copied = functions.hot.len().0;
        // Those that call setjmp or swapcontext stay.
        assert!((8..=16).contains(&copied), "{copied}");
        let installed = install(&program, functions.any(seed));
        assert_eq!(victim.ask("go 3000"), plain, "{seed}");
        installed.leave(&program, || ()).expect("left");
        assert_eq!(victim.ask("go 3000"), plain, "{seed}");
        take_out(&mut victim, |victim| assert_eq!(victim.ask("go 3000"), plain));
        assert!(victim.traces().0 == before, "{seed}");
    }
}

#[test]
fn the_result_is_the_same_while_copies_come_and_go() {
    let path = course().path();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let (plain, before) = (victim.ask("go 20000"), victim.traces().0);
    computes(&mut victim, &plain, |round| {
        let some = (round % 3 == 1).then_some(round);
        let functions = Functions::new(&program, path, "c_*", some);
        let installed = install(&program, functions.any(round));
        installed.leave(&program, || ()).expect("left");
        installed.enter(&program, || ()).expect("entered");
        remains::take_out(&program, Which::Arrangements).expect("taken out");
    });
    // What is left could not be unmapped while threads ran there.
    take_out(&mut victim, |victim| assert_eq!(victim.ask("go 20000"), plain));
    assert!(victim.traces().0 == before);
}

/// Starts the course with all of its functions in copies, where it has run; returns what it
/// computes.
fn running_in_copies() -> (Victim, String) {
    let mut victim = Victim::of(course().path());
    let program = victim.program();
    let plain = victim.ask("go 100");
    let functions = Functions::new(&program, course().path(), "?_*", None);
    install(&program, functions.any(1));
    assert_eq!(victim.ask("go 100"), plain);
    (victim, plain)
}

/// The stack of a coroutine that does not run is memory that is no stack: the copies that it
/// returns to stay.
#[test]
fn copies_stay_mapped_while_a_coroutine_returns_to_them() {
    let (mut victim, plain) = running_in_copies();
    let removed = remains::repair(&victim.program()).expect("taken out");
    assert_eq!(removed.because, Some(KeptReason::Saved));
    assert_eq!(victim.ask("go 100"), plain);
}

/// So they do if it is in the same memory as the stack of a thread.
#[test]
fn copies_stay_mapped_while_a_coroutine_beside_a_stack_returns_to_them() {
    let (mut victim, plain) = running_in_copies();
    assert_eq!(victim.ask("aside"), "aside");
    let removed = remains::repair(&victim.program()).expect("taken out");
    assert_eq!(removed.because, Some(KeptReason::Saved));
    assert_eq!(victim.ask("out"), "back");
    assert_eq!(victim.ask("go 100"), plain);
}
