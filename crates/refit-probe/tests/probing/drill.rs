//! Times of callees: numbers of calls are exact, the callee that takes longest is found.

use refit_probe::drill::{self, Files, Measured, Share, Silent, Spot};
use refit_probe::watch::Error;

use super::program::Routes;

/// Measures a function while the program works.
fn measured(routes: &mut Routes, function: &str, work: &str) -> Result<Measured, Silent> {
    let program = routes.program();
    let mut files = Files::new(&program).expect("its files");
    let spot = files.find(function).expect(function);
    let prepared = drill::prepare(&mut files, spot).expect("prepared");
    let level = prepared.install(&program, &mut files).expect("installed");
    if !work.is_empty() {
        routes.ask(work);
    }
    let measured = level.finish(&program, &mut files).expect("taken out").1;
    routes.is_untouched();
    measured
}

fn callee<'m>(measured: &'m Measured, name: &str) -> &'m Share {
    let found = measured.callees.iter().find(|share| share.name == format!("routes:{name}"));
    found.unwrap_or_else(|| panic!("no {name} in {measured:?}"))
}

#[test]
fn the_callee_that_takes_most_is_found_and_calls_are_exact() {
    let mut routes = Routes::start();
    let outer = measured(&mut routes, "outer", "outer 200000").expect("called");
    assert_eq!((outer.calls, outer.recursive), (1, false));
    assert_eq!(outer.unmeasured, []);
    assert_eq!(callee(&outer, "middle").calls, 8);
    assert_eq!(callee(&outer, "least").calls, 8);
    let pointed: Vec<&Share> =
        outer.callees.iter().filter(|share| share.name.starts_with("call")).collect();
    assert!(
        matches!(pointed[..], [share] if share.calls == 1) || callee(&outer, "least").sites == 2
    );
    // Most of the work by far, whatever else runs on the machine.
    assert_eq!(outer.callees[0].name, "routes:middle");
    let next = outer.callees[0].function.expect("a function of the program");

    let program = routes.program();
    let mut files = Files::new(&program).expect("its files");
    let named: Spot = files.find("routes:middle").expect("middle");
    assert_eq!(next, named);
    let middle = measured(&mut routes, "routes:middle", "outer 200000").expect("called");
    assert_eq!((middle.calls, &*middle.callees[0].name), (8, "routes:most"));
    assert_eq!((callee(&middle, "most").calls, callee(&middle, "least").calls), (8, 8));
    // Skipped by a jump whenever it is not called: the call returns to the target of that jump.
    assert_eq!(callee(&middle, "seldom").calls, 2);
    let all: u64 = middle.callees.iter().map(|share| share.nanos).sum();
    assert!(all <= middle.nanos && middle.own() == middle.nanos - all, "{middle:?}");
}

#[test]
fn who_calls_itself_is_told() {
    let mut routes = Routes::start();
    let nested = measured(&mut routes, "nested", "nested 10").expect("called");
    assert!(nested.recursive);
    assert_eq!(nested.calls, 11);
    assert_eq!(callee(&nested, "nested").calls, 10);
}

#[test]
fn a_function_that_goes_on_all_the_time_is_known_by_what_it_calls() {
    let mut routes = Routes::start();
    // `main` was entered long ago.
    let main = measured(&mut routes, "main", "outer 200").expect("it calls");
    assert_eq!(main.calls, 0);
    assert_eq!(callee(&main, "outer").calls, 1);
    assert!(main.nanos >= callee(&main, "outer").nanos, "{main:?}");
}

#[test]
fn who_is_not_called_has_no_times() {
    let mut routes = Routes::start();
    assert_eq!(measured(&mut routes, "outer", ""), Err(Silent::NotCalled));
    routes.waits();
    let silent = measured(&mut routes, "main", "").expect_err("in one call");
    let Silent::InCall { thread, callee } = silent else { panic!("{silent}") };
    assert_eq!(thread, routes.program().id());
    assert!(callee.contains("gets"), "{callee}");
    let program = routes.program();
    let mut files = Files::new(&program).expect("its files");
    let error = files.find("outre").expect_err("no such function");
    assert!(error.to_string().contains("outer"), "{error}");
    let error = files.find("*e*").expect_err("many");
    assert!(matches!(error, Error::Several { .. }), "{error}");
}
