//! A program computes what it computed while versions of its functions come and go: with threads in
//! loops, signals, long jumps, coroutines, switches, and pointers to functions.

use std::sync::OnceLock;

use super::made::{install, take_out};
use super::replaced::computes;
use super::victim::{Built, Victim, build};

fn course() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let source = "../../refit-optimize/tests/copying/course.c";
    BUILT.get_or_init(|| build("cc", source, &["-pthread"]))
}

#[test]
fn the_result_is_the_same_with_versions_for_any_values() {
    let path = course().path();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let (plain, before) = (victim.ask("go 3000"), victim.traces().0);
    for seed in 0..8 {
        let values: Vec<u64> = (0..4).map(|more| seed * 4 + more).collect();
        let (installed, functions) = install(&program, path, "c_*", &values);
        assert!(functions >= 4, "{functions}");
        assert_eq!(victim.ask("go 3000"), plain, "{seed}");
        installed.leave(&program, || ()).expect("left");
        assert_eq!(victim.ask("go 3000"), plain, "{seed}");
        take_out(&mut victim, |victim| assert_eq!(victim.ask("go 3000"), plain));
        assert!(victim.traces().0 == before, "{seed}");
    }
}

#[test]
fn the_result_is_the_same_while_versions_come_and_go() {
    let path = course().path();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let (plain, before) = (victim.ask("go 20000"), victim.traces().0);
    computes(&mut victim, &plain, |round| {
        let values: Vec<u64> = (0..4).map(|more| round % 16 * 4 + more).collect();
        let (installed, _) = install(&program, path, "c_*", &values);
        installed.leave(&program, || ()).expect("left");
        installed.enter(&program, || ()).expect("entered");
        installed.take_out(&program).expect("taken out");
    });
    // What is left could not be unmapped while threads ran there.
    take_out(&mut victim, |victim| assert_eq!(victim.ask("go 20000"), plain));
    assert!(victim.traces().0 == before);
}
