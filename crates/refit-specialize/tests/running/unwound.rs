//! Unwinders find every frame, and exceptions and cancelled threads their handlers, while versions
//! run.

use std::path::Path;
use std::sync::OnceLock;

use super::made::{install, take_out};
use super::replaced::{thrown, throws};
use super::stepped::steps;
use super::victim::{Built, Victim, build};

const SOURCE: &str = "../../refit-probe/tests/probing/unwound.cc";
const OPTIONS: [&str; 3] = ["-pthread", "-fwrapv", "-fnon-call-exceptions"];
/// The functions that have versions, by their names in C++ and in assembly.
const FUNCTIONS: &str = "*t_*";

fn unwinding() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("c++", SOURCE, &OPTIONS)).path()
}

/// Returns values that some calls have, others each time.
fn values(seed: u64) -> Vec<u64> {
    (0..3).map(|more| seed * 3 + more).collect()
}

#[test]
fn every_frame_is_found_at_every_instruction() {
    let path = unwinding();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let plain = steps(&mut victim);
    assert_eq!((plain.1, plain.2), (0, 0));
    for seed in 0..4 {
        let (installed, functions) = install(&program, path, FUNCTIONS, &values(seed));
        assert!(functions > 8, "{functions}");
        let (sum, elsewhere, wrong) = steps(&mut victim);
        assert_eq!((sum, wrong), (plain.0.clone(), 0), "{seed}");
        assert!(elsewhere > 200, "{seed}: {elsewhere}");
        installed.leave(&program, || ()).expect("left");
        assert_eq!(steps(&mut victim), plain);
        installed.enter(&program, || ()).expect("entered");
        assert!(steps(&mut victim).1 > 200);
        take_out(&mut victim, |victim| assert_eq!(steps(victim), plain));
    }
}

#[test]
fn exceptions_and_cancelled_threads_find_their_handlers_while_versions_come_and_go() {
    let path = unwinding();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let plain = thrown(&mut victim);
    throws(&mut victim, &plain, 60, |round| {
        let (installed, _) = install(&program, path, FUNCTIONS, &values(round % 12));
        for _ in 0..4 {
            installed.leave(&program, || ()).expect("left");
            installed.enter(&program, || ()).expect("entered");
        }
        installed.take_out(&program).expect("taken out");
    });
    take_out(&mut victim, |victim| assert_eq!(thrown(victim), plain));
}
