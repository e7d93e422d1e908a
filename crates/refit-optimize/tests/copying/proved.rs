//! A program is optimised from a profile, and its copies outlive refit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refit_optimize::{Error, Options, Step, Verdict, calls, optimize, profile};
use refit_probe::files::Files;

use super::arranged::take_out;
use super::course::course;
use super::victim::Victim;

fn options() -> Options {
    Options { profile: Duration::from_millis(400), ..Options::default() }
}

/// Does something for a program that works meanwhile.
fn while_it_works<R: Send>(victim: &mut Victim, work: impl FnOnce() -> R + Send) -> R {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let done = work();
            ends.store(true, Ordering::Relaxed);
            done
        });
        while !ends.load(Ordering::Relaxed) && !done.is_finished() {
            victim.ask("go 5000");
        }
        done.join().expect("done")
    })
}

#[test]
fn a_small_program_is_left_alone() {
    let victim = Victim::of(course().path());
    let before = victim.traces().0;
    let found = optimize(&victim.program(), &options(), &mut |_| {});
    assert!(matches!(found, Err(Error::Small { .. })), "{found:?}");
    assert!(victim.traces().0 == before);
}

#[test]
fn the_c_library_is_profiled_laid_out_and_taken_back() {
    let mut victim = Victim::of(course().path());
    let program = victim.program();
    let (plain, before) = (victim.ask("go 2000"), victim.traces().0);
    let all = Options { file: Some("libc.so".into()), unproved: true, ..options() };
    let mut steps = Vec::new();
    let outcome = while_it_works(&mut victim, || {
        optimize(&program, &all, &mut |step| steps.push(step.clone()))
    });
    assert_eq!(outcome.expect("copied").verdict, Verdict::Unproved);
    assert!(steps.iter().any(|step| matches!(step, Step::LaidOut(..))), "{steps:?}");
    assert_eq!(victim.ask("go 2000"), plain);
    let again = while_it_works(&mut victim, || optimize(&program, &all, &mut |_| {}));
    assert!(matches!(again, Err(Error::Already)), "{again:?}");
    take_out(&mut victim, |victim| assert_eq!(victim.ask("go 2000"), plain));
    assert!(victim.traces().0 == before);
}

/// Several ways of calling: that of `c_way` is shorter than a jump.
#[test]
fn the_functions_that_calls_through_pointers_lead_to_are_counted() {
    const TIME: Duration = Duration::from_millis(300);
    let mut victim = Victim::of(course().path());
    let program = victim.program();
    let mut files = Files::new(&program).expect("it runs");
    let own = files.own(&program).expect("its file");
    let functions = files.open(own).expect("a program").0.find("c_*");
    let found = while_it_works(&mut victim, || {
        let profile = profile::blocks(&program, &mut files, own, &functions, TIME)?;
        calls::targets(&program, &mut files, own, &profile, TIME)
    });
    let (module, _) = files.open(own).expect("a program");
    let name = |target| module.function_at(target).map(|id| module.function(id).name());
    let named = |(call, parts): (u64, Vec<(u64, f64)>)| {
        let parts = parts.into_iter().filter_map(|(target, part)| Some((name(target)?, part)));
        Some((name(call)?, parts.collect::<BTreeMap<_, _>>()))
    };
    let found: BTreeMap<_, _> = found.expect("counted").into_iter().filter_map(named).collect();
    let [first, second] = ["c_ways", "c_way"].map(|of| &found[of]);
    assert!(first.keys().eq(["c_chooses", "c_tail"]), "{first:?}");
    assert!(second.keys().eq(["c_chooses", "c_returns", "c_sorts"]), "{second:?}");
    for parts in [first, second] {
        let sum: f64 = parts.values().sum();
        assert!((sum - 1.0).abs() < 1e-6, "{parts:?}");
    }
}

#[test]
fn an_idle_program_is_left_alone() {
    let victim = Victim::of(course().path());
    let before = victim.traces().0;
    let all = Options { file: Some("libc.so".into()), ..options() };
    let found = optimize(&victim.program(), &all, &mut |_| {});
    assert!(matches!(found, Err(Error::Idle { .. } | Error::NoProgress)), "{found:?}");
    assert!(victim.traces().0 == before);
}
