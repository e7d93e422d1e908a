//! Tests of threads that request their moves themselves (`refit_move.h`, as `refit header` prints
//! it).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::modes::{Choice, Hosts};
use crate::stage::Stage;
use crate::stage::running::build;
use crate::world::World;

/// Builds the program with the header.
fn program(stage: &Stage) -> PathBuf {
    let (code, header, said) = stage.run(&["header"]);
    assert_eq!((code, said.as_str()), (0, ""));
    fs::write(stage.path("refit_move.h"), header).expect("written");
    build(stage, "asked", include_str!("asked.c")).into()
}

/// Asserts that all checks of the program pass.
fn holds(mut command: Command, what: &str) {
    let ran = command.arg(what).stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.is_empty(), "{what}: {said}{ran:?}");
}

fn all_hold(hosts: Hosts, all: &[&str]) {
    let stage = Stage::new();
    let program = program(&stage);
    // Under the first of two instances, where nothing else moves it.
    let choice = Choice::parse(&format!("pingpong {} compute_digits", hosts.name()));
    let (mode, hosts) = &choice.expect("words that are known").cells[0];
    let world = World::new(mode, *hosts).expect("two instances");
    for what in all {
        holds(world.command(&program), what);
    }
    assert_eq!(world.logs(), "");
}

#[test]
fn a_thread_is_where_it_has_asked_to_be() {
    all_hold(Hosts::One, &["thousand", "threads", "children"]);
}

#[test]
fn a_thread_that_asks_is_given_its_signals() {
    all_hold(Hosts::One, &["interrupted"]);
}

#[test]
fn a_thread_that_cannot_go_is_told_why_and_stays() {
    all_hold(Hosts::One, &["refused", "borrower"]);
}

#[test]
fn a_thread_asks_to_go_to_another_host() {
    all_hold(Hosts::Tcp, &["some", "interrupted", "borrower"]);
}

#[test]
fn a_thread_whose_move_fails_is_told_so_and_goes_on() {
    for step in ["registers", "leave"] {
        let stage = Stage::new();
        let program = program(&stage);
        let mut boot = stage.refit(&["boot", "--instances", "3"]);
        let booted = boot.env("REFIT_MOVE_FAULT", step).stdin(Stdio::null()).output();
        assert!(booted.expect("it starts").status.success());
        let mut run = stage.refit(&["run", "--on", "0", "--movable", "--"]);
        run.arg(&program);
        holds(run, "faults");
        let (code, _, said) = stage.run(&["shutdown"]);
        assert_eq!(code, 0, "{said}");
        stage.forget_losses();
    }
}

#[test]
fn where_there_is_nobody_to_ask_the_kernel_says_so() {
    let stage = Stage::new();
    let program = program(&stage);
    holds(Command::new(&program), "alone");
    let (code, _, said) = stage.run(&["boot", "--instances", "1"]);
    assert_eq!(code, 0, "{said}");
    // In this order: `--on` examines all instances, and those of the other runs end with their
    // programs.
    for options in [&["run", "--on", "0"][..], &["run"], &["run", "--movable"]] {
        let mut run = stage.refit(options);
        run.arg("--").arg(&program);
        holds(run, "alone");
    }
    let (code, _, said) = stage.run(&["shutdown"]);
    assert_eq!(code, 0, "{said}");
    stage.forget_losses();
}
