//! The matrix of moves: small programs, each about one thing that the kernel promises (`programs/`), are run as they are and then
//! while they are moved between instances, in several modes; what they write and how they end has to be the same.
//!
//! | mode | how a program is moved |
//! |---|---|
//! | `alone` | not at all, and without refit: whether the program itself says the same each time |
//! | `never` | not at all, but so that it could be |
//! | `once` | to the other instance, soon after its beginning |
//! | `10ms` | each of its threads to and fro, every ten milliseconds |
//! | `pingpong` | to and fro from outside, by `refit move`, without a pause |
//! | `syscall` | each thread to and fro at each system call |
//! | `faults=STEP` | as `10ms`, while the step of moves that is named fails (`REFIT_MOVE_FAULT`) |
//!
//! Each of them with two instances of one host (`one-host`), or of two that are network namespaces and speak TCP (`tcp`). [`modes::MODES`]
//! says which are part of the tests; `ci/moves.sh [MODE…] [one-host|tcp] [PROGRAM…]` runs any, which it hands over in `REFIT_MOVES`.

mod matrix;
mod modes;
mod programs;
mod running;
#[path = "../stage/mod.rs"]
mod stage;
mod world;

use matrix::Matrix;
use modes::Choice;

#[test]
fn moved_programs_say_and_end_as_others() {
    let words = std::env::var("REFIT_MOVES").unwrap_or_default();
    let choice = Choice::parse(&words).unwrap_or_else(|why| panic!("REFIT_MOVES: {why}"));
    let mut matrix = Matrix::default();
    for (mode, hosts) in &choice.cells {
        matrix.fill(mode, *hosts, &choice.programs);
    }
    assert!(matrix.failures.is_empty(), "{matrix}");
}

#[test]
fn programs_compute_the_same_while_they_roam() {
    // Those that only compute: what is known to differ in others stands in `docs/move.md`, and `ci/moves.sh 10ms` runs them all.
    let choice = Choice::parse("10ms one-host compute_").expect("words that are known");
    let mut matrix = Matrix::default();
    for (mode, hosts) in &choice.cells {
        matrix.fill(mode, *hosts, &choice.programs);
    }
    assert!(matrix.failures.is_empty(), "{matrix}");
}

/// The names say what programs are about, and the first comment what would go wrong.
#[test]
fn every_program_says_what_it_is_about() {
    let all = programs::all();
    assert!(all.len() >= 90, "{} programs", all.len());
    for program in all {
        let topic = program.name.split('_').next().expect("a topic");
        assert!(programs::TOPICS.contains(&topic), "{}: no topic of ours", program.name);
        let text = std::fs::read_to_string(program.source()).expect("a program");
        assert!(text.starts_with("// "), "{}: does not begin with a comment", program.name);
        assert!(text.contains("#include \"check.h\""), "{}: checks nothing", program.name);
    }
}
