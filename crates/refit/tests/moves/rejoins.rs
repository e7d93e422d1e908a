//! Tests of hosts that are lost and come back: both become peers again without a restart, log that,
//! and programs move between them as before.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::failures::{Counting, Two};
use crate::stage::Stage;
use crate::stage::running::{build, until};
use crate::world::{ADDRESS, Network};

/// A program that computes with registers and memory of its own, and writes its progress to a file.
/// While it is elsewhere, only the calls of its shadow are made at home, so its registers stay
/// away.
const SPINS: &str = r#"#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);
    for (volatile uint64_t n = 1;; n++)
        if (!(n & 0xffff)) {
            uint64_t told = n;
            pwrite(fd, &told, sizeof told, 0);
        }
}
"#;

/// Boots the instance of a host, at loopback addresses where there is no network.
fn boot(network: Option<&Network>, stage: &Stage, number: &str, arguments: &[&str]) {
    let mut refit = stage.refit(&["boot", "--instances", "1", "--number", number, "--insecure"]);
    if let Some(network) = network {
        let host = if number == "0" { 0 } else { 1 };
        let sockets = stage.path("sockets");
        let (bare, booted) = (refit, Path::new(env!("CARGO_BIN_EXE_refit")));
        refit = network.at(host, booted);
        refit.args(bare.get_args()).env("REFIT_RUNTIME_DIR", sockets);
    }
    let booted = refit.args(arguments).stdin(Stdio::null()).output().expect("it starts");
    assert!(booted.status.success(), "{booted:?}");
}

/// Returns the report of `refit instances` about the only instance of a host.
fn instance(host: &Two) -> Value {
    let (code, listed, said) = host.stage.run(&["--json", "instances"]);
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(listed.trim()).expect("one JSON object")
}

/// Returns whether each has the other as a peer, and misses none.
fn are_peers(hosts: [&Two; 2]) -> bool {
    let has_other = |host: &Two| {
        let instance = instance(host);
        instance["peers"].as_array().is_some_and(|peers| peers.len() == 1)
            && instance["lost"].as_array().is_some_and(Vec::is_empty)
    };
    hosts.into_iter().all(has_other)
}

/// Returns whether each misses the other.
fn are_parted(hosts: [&Two; 2]) -> bool {
    let misses = |host: &Two| {
        let instance = instance(host);
        instance["peers"].as_array().is_some_and(Vec::is_empty)
            && instance["lost"].as_array().is_some_and(|lost| lost.len() == 1)
    };
    hosts.into_iter().all(misses)
}

/// Waits until the instances of a host have logged this `times` times.
fn heard(host: &Two, what: &str, times: usize) {
    until(what, || host.lines(what) >= times);
}

/// Removes the logs so far.
fn forget(host: &Two) {
    host.says("");
}

fn goes_to_and_fro(host: &Two, counting: &Counting) {
    for to in ["1", "0"] {
        host.moved(counting, to).expect("there");
        counting.goes_on();
    }
}

#[test]
fn a_host_that_was_cut_off_is_a_peer_again_without_a_restart() {
    let network = match Network::new("rejoins") {
        Ok(network) => network,
        Err(why) => {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            println!("skipped: no network namespaces: {why}");
            return;
        }
    };
    let stages = [Stage::new(), Stage::new()];
    boot(Some(&network), &stages[0], "0", &["--listen", ADDRESS]);
    boot(Some(&network), &stages[1], "1", &["--join", ADDRESS]);
    let [first, second] = stages.map(Two::of);
    let processes = [first.instance(0), second.instance(1)];
    let spins = build(&first.stage, "spins", SPINS);
    let mut away = first.start(&spins, "away", &["--movable"]);
    let back = first.count("back", &["--movable"]);
    first.moved(&away, "1").expect("there");
    goes_to_and_fro(&first, &back);

    network.wire("down");
    until("the loss", || are_parted([&first, &second]));
    assert!(away.killed(), "its registers are where nobody can ask for them");
    heard(&first, &format!("spins ({}) is killed: ", away.id()), 1);
    heard(&second, "refit: instance 1 has lost instance 0: ", 1);
    back.goes_on();
    let lost = &instance(&second)["lost"][0];
    assert_eq!((&lost["number"], &lost["dials"]), (&0.into(), &ADDRESS.into()), "{lost}");
    let refused = first.moved(&back, "1").expect_err("it is lost");
    assert!(refused.contains("instance 1 is lost: "), "{refused}");
    assert!(refused.contains("; it continues where it was; try again when "), "{refused}");
    let (_, table, _) = second.stage.run(&["instances"]);
    assert!(table.contains(&format!(", will rejoin when {ADDRESS} answers")), "{table}");

    network.wire("up");
    until("their meeting", || are_peers([&first, &second]));
    heard(&first, "refit: instance 0 has instance 1 again, after ", 1);
    heard(&second, "refit: instance 1 has instance 0 again, after ", 1);
    assert_eq!([first.instance(0), second.instance(1)], processes, "nobody was restarted");
    goes_to_and_fro(&first, &back);
    goes_to_and_fro(&first, &first.count("new", &["--movable"]));

    // An instance that ends and is booted anew at its address is joined, too; its programs end with
    // it.
    let Two { stage, .. } = &first;
    kill_process(processes[0], Signal::KILL).expect("it is there");
    until("the loss", || instance(&second)["lost"][0]["number"] == 0);
    boot(Some(&network), stage, "0", &["--listen", ADDRESS]);
    until("their meeting", || instance(&second)["peers"][0]["number"] == 0);
    goes_to_and_fro(&first, &first.count("newer", &["--movable"]));
    heard(&second, "refit: instance 1 has instance 0 again, after ", 2);
    [first, second].iter().for_each(forget);
}

/// The host counts as dead after ten times the silence, since its kernel answers; but it is alive.
#[test]
fn a_host_that_was_stopped_too_long_is_a_peer_again() {
    let stages = [Stage::new(), Stage::new()];
    let silence = ["--silence", "300ms"];
    boot(None, &stages[0], "0", &[&["--listen", "127.0.0.1:0"], &silence[..]].concat());
    let [first, second] = stages.map(Two::of);
    let at = instance(&first)["address"].as_str().expect("it listens").to_owned();
    boot(None, &second.stage, "1", &[&["--join", &at], &silence[..]].concat());
    until("their meeting", || are_peers([&first, &second]));
    for (turn, stopped, other) in [(1, &first, &second), (2, &second, &first)] {
        let number = u64::try_from(turn - 1).expect("small");
        let process = stopped.instance(number);
        kill_process(process, Signal::STOP).expect("it is there");
        until("the loss", || instance(other)["lost"][0]["number"] == number);
        kill_process(process, Signal::CONT).expect("it is there");
        until("their meeting", || are_peers([&first, &second]));
        heard(other, &format!(" has instance {number} again, after "), turn);
        heard(stopped, " again, after ", turn);
    }
    goes_to_and_fro(&first, &first.count("new", &["--movable"]));
    [first, second].iter().for_each(forget);
}
