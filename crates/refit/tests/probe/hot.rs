//! The sites of functions that are called often move while they are counted.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Stdio};

use serde_json::Value;

use crate::killed::{kill_everywhere, killed_at};
use crate::probes::objects;
use crate::shell::{interrupt, refit, run, verified, watching};
use crate::victim::Victim;

const PROBE: &str = "uprobe:victim:* { count }";

/// Waits until refit says in its log that sites have moved; returns what it says.
fn moved(errors: &mut BufReader<ChildStderr>) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(errors.read_line(&mut line).expect("a line"), 0, "refit ended");
        assert!(!line.contains("hot sites stay"), "{line}");
        if line.contains("hot sites moved") {
            return line;
        }
    }
}

fn watch(id: &str) -> (Child, BufReader<ChildStderr>) {
    let arguments = ["--log", "refit_probe=debug", "probe", "-p", id, "-e", PROBE, "--json"];
    let mut command = refit(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refit");
    let errors = watching(&mut child);
    (child, errors)
}

/// Returns the calls that a program says it has made, in the order of their names.
fn said(answer: &str) -> Vec<(String, u64)> {
    let count = |one: &str| {
        let (name, count) = one.split_once('=').expect("a count");
        (name.to_owned(), count.parse().expect("a number"))
    };
    let mut all: Vec<_> = answer.split(' ').map(count).collect();
    all.sort();
    all
}

fn counted(objects: &[Value], of: &[(String, u64)]) -> Vec<(String, u64)> {
    let place = |name: &String| {
        let there = |one: &&Value| one["name"] == name.as_str() && one["action"] == "count";
        let one = objects.iter().find(there).unwrap_or_else(|| panic!("{name}: {objects:?}"));
        (name.clone(), one["count"].as_u64().expect("a number"))
    };
    of.iter().map(|(name, _)| place(name)).collect()
}

#[test]
fn no_call_is_lost_while_the_sites_of_functions_move() {
    let mut victim = Victim::start("called.c");
    let id = victim.id();
    let (mut child, mut errors) = watch(&id);
    victim.check();
    let told = moved(&mut errors);
    assert!(!told.contains("copies: 0") && !told.contains("calls: 0"), "{told}");
    victim.check();
    let calls = said(&victim.tell("end"));
    interrupt(&child);
    let mut counts = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut counts).expect("the counts");
    assert!(child.wait().expect("it ends").success());
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("the log");
    assert!(!rest.contains("another tool"), "{rest}");
    assert_eq!(counted(&objects(&counts), &calls), calls);
    verified(&id);
}

#[test]
fn calls_of_a_function_that_moved_lead_to_its_snippet_and_back_to_it_afterwards() {
    let mut victim = Victim::start("called.c");
    let id = victim.id();
    let (mut child, mut errors) = watch(&id);
    victim.check();
    moved(&mut errors);
    // The program goes on, with the stacks that its handlers check, when refit is killed.
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    victim.check();
    let repaired = run(&["repair", "-p", &id]);
    assert!(repaired.status.success());
    verified(&id);
    victim.check();
}

#[test]
fn whenever_refit_is_killed_while_sites_move_the_program_goes_on() {
    let mut victim = Victim::start("called.c");
    victim.check();
    let id = victim.id();
    let for_time = |time| ["probe", "-p", &*id, "-e", PROBE, "--for", time];
    let steps = killed_at(&for_time("5ms"), usize::MAX, || {});
    // Taking the sites out is part of these steps.
    let installed = steps / 2;
    kill_everywhere(&mut victim, PROBE, "500ms", installed, 17);
}
