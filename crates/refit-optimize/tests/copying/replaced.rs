//! Programs that work while their code is replaced again and again, and checks of what they
//! compute.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use refit_splice::process::Program;
use refit_splice::remains::{self, KeptReason, Which};

use super::victim::Victim;

/// Number of areas from which on no more are made: those to which addresses are left that are no
/// return addresses any more stay mapped.
const AREAS: usize = 64;

/// Calls `replace` with 0, 1, 2, … until the end, or until there are too many areas. Returns how
/// often.
fn replaced(program: &Program, ends: &AtomicBool, mut replace: impl FnMut(u64)) -> u64 {
    let mut rounds = 0;
    while !ends.load(Ordering::Relaxed) && remains::find(program).expect("it runs").len() < AREAS {
        replace(rounds);
        rounds += 1;
    }
    rounds
}

/// Has `course.c` compute what it does when left alone while `replace` replaces its code.
pub(crate) fn computes(victim: &mut Victim, plain: &str, replace: impl Fn(u64) + Sync) {
    let program = victim.program();
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let last = std::thread::scope(|scope| {
        scope.spawn(|| {
            replaced(&program, &ends, |round| {
                rounds.store(round + 1, Ordering::Relaxed);
                replace(round);
            })
        });
        let mut answers = (0..200).map(|_| victim.ask("go 20000"));
        let last = answers.find(|answer| answer != plain || rounds.load(Ordering::Relaxed) >= 12);
        // The other thread ends before anything is asserted.
        ends.store(true, Ordering::Relaxed);
        last
    });
    assert_eq!(last.as_deref().unwrap_or(plain), plain);
}

/// Answers of `unwound.cc` when it throws exceptions and cancels threads.
pub(crate) fn thrown(victim: &mut Victim) -> [String; 2] {
    [victim.ask("throw 40"), victim.ask("cancel 20")]
}

/// Has `unwound.cc` throw exceptions and cancel threads, as it does when left alone, while
/// `replace` replaces its code: up to so many times.
pub(crate) fn throws(
    victim: &mut Victim,
    plain: &[String; 2],
    times: usize,
    replace: impl Fn(u64) + Sync,
) {
    let program = victim.program();
    let ends = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    let last = std::thread::scope(|scope| {
        let churned = scope.spawn(|| {
            let rounds = replaced(&program, &ends, &replace);
            tell.send(rounds).expect("it is waited for");
        });
        // As long as it takes for some rounds, however busy the machine is.
        let mut answers = (0..times).map(|_| thrown(victim));
        let last = answers.find(|answer| answer != plain || churned.is_finished());
        ends.store(true, Ordering::Relaxed);
        last
    });
    assert_eq!(last.as_ref().unwrap_or(plain), plain);
    let rounds = told.recv().expect("a number");
    println!("{rounds} rounds, {} areas", remains::find(&program).expect("it runs").len());
    assert!(rounds > 0, "{rounds}");
}

/// Takes a part out of a program, and then everything. An area stays mapped if an address in it is
/// left in memory that is no stack now (that of an ended thread, or one on which a handler ran), or
/// if that of a table is left on a stack, as if the thread unwound it.
pub(crate) fn take_out_of(victim: &mut Victim, which: Which, again: impl FnOnce(&mut Victim)) {
    let program = victim.program();
    remains::take_out(&program, which).expect("taken out");
    again(victim);
    let removed = remains::repair(&program).expect("taken out");
    assert!(
        matches!(removed.because, None | Some(KeptReason::Saved | KeptReason::InUse)),
        "{removed:?}"
    );
}
