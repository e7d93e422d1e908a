//! The matrix of moves: small programs, each about one guarantee of the kernel (`programs/`), are
//! run unmoved and then while they are moved between instances, in several modes; their output and
//! exit status must be the same.
//!
//! | mode | how a program is moved |
//! |---|---|
//! | `alone` | not at all, and without refit: whether the program itself is deterministic |
//! | `never` | not at all, but so that it could be |
//! | `once` | to the other instance, soon after its beginning |
//! | `10ms` | each of its threads back and forth, every ten milliseconds |
//! | `pingpong` | back and forth from outside, by `refit move`, without a pause |
//! | `syscall` | each thread back and forth at each system call |
//! | `faults=STEP` | as `10ms`, while the named step of moves fails (`REFIT_MOVE_FAULT`) |
//!
//! In the mode `10ms`, each step is followed by a check that the memory is the same at both
//! instances (`REFIT_MOVE_CHECK`).
//!
//! Each mode runs with two instances of one host (`one-host`), or of two that are network
//! namespaces and use TCP (`tcp`). [`modes::MODES`] and [`SOME`] define the part that the tests
//! run; `ci/moves.sh [MODE…] [one-host|tcp] [PROGRAM…]` runs any part, which it passes in
//! `REFIT_MOVES`.

mod asked;
mod cpu_latency;
mod failures;
mod joining;
mod losses;
mod matrix;
mod memory;
mod modes;
mod mounted;
mod processors;
mod programs;
mod refusals;
mod rejoins;
mod running;
#[path = "../stage/mod.rs"]
mod stage;
mod stalls;
mod turns;
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

/// Programs of all topics, which are run in all modes that move; `ci/moves.sh` runs the others.
const SOME: &str = "compute_digits compute_peterson compute_queue compute_sha256 \
    file_append_locks file_bad_buffers file_epoll.c file_limits file_locks.c file_offset file_poll file_reuse_descriptor \
    file_shared_offset futex_requeue futex_turns.c memory_allocator.c \
    memory_break.c memory_forget_in_fork memory_guard_page memory_map_fixed memory_private_file \
    memory_protect process_exec.c process_fork_and_wait process_tree process_vfork_and_exec \
    process_zombie regs_avx.c regs_flags regs_general regs_red_zone regs_thread_bases regs_x87 \
    signal_changes_registers signal_handler_registers signal_interval_timer signal_nested socket_tcp.c socket_unix \
    thread_barrier thread_cancel thread_condition.c thread_create_and_join thread_mutex.c time_sleep.c";

#[test]
fn some_programs_do_the_same_while_they_roam() {
    let choice = Choice::parse(&format!("10ms once syscall pingpong one-host {SOME}"));
    let choice = choice.expect("words that are known");
    let mut matrix = Matrix::default();
    for (mode, hosts) in &choice.cells {
        matrix.fill(mode, *hosts, &choice.programs);
    }
    assert!(matrix.failures.is_empty(), "{matrix}");
}

/// Programs that depend on memory, calls, signals and children, which are run between two hosts,
/// too.
const BETWEEN_HOSTS: &str = "compute_digits compute_peterson compute_queue compute_sha256 file_epoll.c file_poll \
    futex_turns.c futex_wake_operation memory_allocator.c memory_break.c memory_protect \
    memory_move_mapping process_exec.c process_fork_and_wait process_owner_after_fork process_vfork_and_exec regs_avx.c regs_general \
    signal_handler_registers signal_nested socket_tcp.c thread_barrier thread_condition.c \
    thread_create_and_join thread_first_ends_first thread_mutex.c \
    thread_mutex_inherits_priority thread_mutex_robust time_sleep.c";

#[test]
fn some_programs_do_the_same_between_hosts() {
    let choice = Choice::parse(&format!("once 10ms tcp {BETWEEN_HOSTS}"));
    let choice = choice.expect("words that are known");
    let mut matrix = Matrix::default();
    for (mode, hosts) in &choice.cells {
        matrix.fill(mode, *hosts, &choice.programs);
    }
    assert!(matrix.failures.is_empty(), "{matrix}");
}

/// The names of programs state their topics, and the first comment states what would go wrong.
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
