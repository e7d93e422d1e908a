//! Unwinders find every frame, and exceptions and cancelled threads their handlers, while functions
//! and their calls run in copies.

use std::path::Path;
use std::sync::OnceLock;

use refit_splice::remains::{self, Which};

use super::arranged::{Functions, install, take_out};
use super::replaced::{thrown, throws};
use super::stepped::steps;
use super::victim::{Built, Victim, build};

const SOURCE: &str = "../../refit-probe/tests/probing/unwound.cc";
const OPTIONS: [&str; 3] = ["-pthread", "-fwrapv", "-fnon-call-exceptions"];
/// The functions that are copied, by their names in C++ and in assembly.
const COPIED: &str = "*t_*";

fn moving() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("c++", SOURCE, &OPTIONS)).path()
}

#[test]
fn every_frame_is_found_at_every_instruction() {
    let path = moving();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let before = victim.traces().0;
    let plain = steps(&mut victim);
    assert_eq!((plain.1, plain.2), (0, 0));
    for seed in 0..6 {
        // Every second time, some blocks stay where they are.
        let some = (seed % 2 == 1).then_some(seed);
        let functions = Functions::new(&program, path, COPIED, some);
        let installed = install(&program, functions.any(seed));
        let (sum, elsewhere, wrong) = steps(&mut victim);
        assert_eq!((sum, wrong), (plain.0.clone(), 0), "{path:?} {seed}");
        assert!(elsewhere > 500, "{seed}: {elsewhere}");
        installed.leave(&program, || ()).expect("left");
        assert_eq!(steps(&mut victim), plain);
        installed.enter(&program, || ()).expect("entered");
        assert!(steps(&mut victim).1 > 500);
        take_out(&mut victim, |victim| assert_eq!(steps(victim), plain));
        assert!(victim.traces().0 == before);
    }
}

#[test]
fn exceptions_and_cancelled_threads_find_their_handlers_while_copies_come_and_go() {
    let path = moving();
    let mut victim = Victim::of(path);
    let program = victim.program();
    let plain = thrown(&mut victim);
    throws(&mut victim, &plain, 120, |round| {
        let some = (round % 2 == 1).then_some(round);
        let functions = Functions::new(&program, path, COPIED, some);
        let installed = install(&program, functions.any(round));
        for _ in 0..4 {
            installed.leave(&program, || ()).expect("left");
            installed.enter(&program, || ()).expect("entered");
        }
        remains::take_out(&program, Which::Arrangements).expect("taken out");
    });
    take_out(&mut victim, |victim| assert_eq!(thrown(victim), plain));
}
