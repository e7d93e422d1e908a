//! Processors that are kept awake for programs that have moved.

use std::fs;
use std::process::Stdio;

use refit_sys::cpu_latency::{Awake, DEVICE};

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::until;

/// Whether an instance keeps them awake.
fn keeps(two: &Two, number: u64) -> bool {
    let files = format!("/proc/{}/fd", two.instance(number).as_raw_nonzero());
    let mut files = fs::read_dir(files).expect("its files").flatten();
    files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == DEVICE))
}

#[test]
fn processors_are_kept_awake_while_there_are_programs_that_have_moved() {
    let stage = Stage::new();
    let mut boot = stage.refit(&["boot", "--instances", "2", "--awake"]);
    let booted = boot.stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8(booted.stderr).expect("UTF-8");
    if Awake::hold().is_err() {
        let begins = format!("refit: boot instance 0: {DEVICE}: ");
        assert!(said.starts_with(&begins) && said.lines().count() == 1, "{said}");
        return assert_eq!(booted.status.code(), Some(1));
    }
    assert_eq!(said, "");
    let two = Two::of(stage);
    let [one, other] = ["one", "other"].map(|name| two.count(name, &["--movable"]));
    let both = || [0, 1].map(|instance| keeps(&two, instance));
    assert_eq!(both(), [false, false]);
    two.moved(&one, "1").expect("there");
    assert_eq!(both(), [true, true]);
    two.moved(&other, "1").expect("there");
    one.end();
    other.goes_on();
    assert_eq!(both(), [true, true]);
    other.end();
    until("sleep", || both() == [false, false]);
}
