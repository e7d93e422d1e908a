//! Tests of the retrieval of mappings by the instances of a program: by each protocol, with its
//! messages counted, and while protocols are swapped; and of the protocols by which they agree on
//! who changes the mappings.

#[path = "../stage/mod.rs"]
mod stage;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;

use serde_json::Value;
use stage::Stage;
use stage::running::{Running, build, until};

/// A program whose threads each touch the same number of mappings.
const RETRIEVES: &str = include_str!("retrieves.c");
const PAGES: u64 = 64;

/// A program whose threads and children check at each step what they may do with memory.
const CHANGES_MAPS: &str = include_str!("changes_maps.c");

/// The variable with which instances check after each step whether a program's memory is the same
/// everywhere.
const CHECKED: (&str, &str) = ("REFIT_MOVE_CHECK", "1");

/// The number of swaps of protocols while a program runs.
const SWAPS: usize = 100;

const PROTOCOLS: [&str; 4] = ["all", "chain", "group", "directory"];

/// Three instances, which end on drop.
struct Booted<'a>(&'a Stage);

impl<'a> Booted<'a> {
    fn new(stage: &'a Stage, options: &[&str]) -> Self {
        Self::with(stage, options, &[])
    }

    /// Boots them in this environment.
    fn with(stage: &'a Stage, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut boot = stage.refit(&[&["boot", "--instances", "3"], options].concat());
        let booted = boot.envs(environment.iter().copied()).output().expect("it starts");
        assert!(booted.status.success(), "{booted:?}");
        Self(stage)
    }
}

impl Drop for Booted<'_> {
    fn drop(&mut self) {
        self.0.run(&["shutdown", "--kill"]);
        self.0.forget_losses();
    }
}

/// The counters of one instance for a program.
#[derive(Clone, Copy, Debug)]
struct Counts {
    asks: u64,
    again: u64,
    by_members: u64,
    beside: u64,
    messages: u64,
}

impl Counts {
    fn of(stage: &Stage, process: &str, at: u64) -> Self {
        let said = shown(stage, process);
        let hosts = said["moves"]["destinations"].as_array().expect("an array");
        let host = hosts.iter().find(|host| host["number"] == at).expect("a thread was there");
        let count = |value: &Value| value.as_u64().expect("a number");
        Self {
            asks: count(&host["asks"]["count"]),
            again: count(&host["retries"]),
            by_members: count(&host["by_members"]),
            beside: count(&host["fault_around"]),
            messages: count(&host["messages"]),
        }
    }

    /// Returns the difference to earlier counters.
    fn since(self, before: Self) -> Self {
        Self {
            asks: self.asks - before.asks,
            again: self.again - before.again,
            by_members: self.by_members - before.by_members,
            beside: self.beside - before.beside,
            messages: self.messages - before.messages,
        }
    }
}

fn shown(stage: &Stage, process: &str) -> Value {
    let (code, stdout, stderr) = stage.run(&["--json", "show", process]);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("a JSON object")
}

/// Returns whether threads are at both other instances.
fn is_spread(stage: &Stage, process: &str) -> bool {
    let said = shown(stage, process);
    let places = said["places"].as_array().cloned().unwrap_or_default();
    [1, 2].iter().all(|at| places.iter().any(|one| one["at"] == *at))
}

/// Lets the first thread touch the pages, then the second; returns the counters of its instance for
/// that.
fn second_touches_what_first_has(protocol: &str, ahead: &str) -> Counts {
    let stage = Stage::new();
    let _booted = Booted::new(&stage, &["--ahead", ahead]);
    let program = build(&stage, "retrieves", RETRIEVES);
    let options = ["--on", "0", "--movable", "--spread"];
    let mut running = Running::start(&stage, &options, &[&program], "retrieves");
    let process = running.id().to_string();
    until("a thread at each instance", || is_spread(&stage, &process));
    let (mut lines, mut said) = (
        running.0.stdin.take().expect("a pipe"),
        BufReader::new(running.0.stdout.take().expect("a pipe")),
    );
    if protocol != "directory" {
        let object = format!("retrieval:{process}");
        let (code, _, why) = stage.run(&["swap", &object, protocol]);
        assert_eq!(code, 0, "{why}");
        let (_, listed, _) = stage.run(&["ls", &object]);
        assert!(listed.contains(protocol), "{listed}");
    }
    let mut touch = || {
        lines.write_all(b"\n").expect("it reads");
        assert_eq!(said.read_line(&mut String::new()).expect("it writes"), 2);
    };
    touch();
    let before = Counts::of(&stage, &process, 2);
    touch();
    let counts = Counts::of(&stage, &process, 2).since(before);
    drop(lines);
    assert!(running.0.wait().expect("it ends").success());
    counts
}

#[test]
fn an_uncontended_retrieval_takes_so_many_messages() {
    for protocol in PROTOCOLS {
        let counts = second_touches_what_first_has(protocol, "1");
        println!("{protocol}: {counts:?}");
        let Counts { asks, again, by_members, beside, messages } = counts;
        assert_eq!(beside, 0, "{protocol}");
        assert!(asks >= PAGES, "{protocol}: {counts:?}");
        // Repeated questions go to the origin.
        let first = asks - again;
        match protocol {
            "directory" => assert_eq!((messages, by_members), (2 * asks, 0)),
            "chain" => {
                assert!(by_members >= PAGES, "{counts:?}");
                assert!(messages <= 2 * (by_members + again) + 3 * (first - by_members));
            }
            // The two others; whichever is asked first has answered.
            _ => assert_eq!(messages, 4 * first + 2 * again, "{protocol}: {counts:?}"),
        }
    }
}

/// Mappings near the requested one are sent along, and are not asked for any more.
#[test]
fn what_others_have_comes_with_its_neighbours() {
    for (ahead, most) in [("8", PAGES.div_ceil(8)), ("adaptive", PAGES.div_ceil(16))] {
        let counts = second_touches_what_first_has("directory", ahead);
        println!("{ahead}: {counts:?}");
        let Counts { asks, beside, .. } = counts;
        // Also its code and its stack, and the rest of the memory that it needs in order to touch
        // these.
        const OTHERS: u64 = 24;
        assert!(asks <= most + OTHERS && beside >= PAGES - most, "{ahead}: {counts:?}");
    }
}

/// Runs a program that checks everything, with its threads moving as these options (`go`) of `refit
/// run` say, and swaps its protocol all the time.
fn swap_while_maps_change(options: &[&str], go: &[&str]) {
    let stage = Stage::new();
    let _booted = Booted::with(&stage, options, &[CHECKED]);
    let program = build(&stage, "changes_maps", CHANGES_MAPS);
    let options = [&["--on", "0", "--movable"], go].concat();
    let mut running = Running::start(&stage, &options, &[&program], "changes_maps");
    let process = running.id().to_string();
    let object = format!("retrieval:{process}");
    let spread = go == ["--spread"];
    let mut swaps = 0;
    until("the last swap, and an answer of another instance", || {
        // Before its first move there is none.
        swaps += usize::from(stage.run(&["swap", &object, PROTOCOLS[swaps % 4]]).0 == 0);
        swaps >= SWAPS && (!spread || [1, 2].iter().any(|&at| has_asked(&stage, &process, at)))
    });
    drop(running.0.stdin.take());
    let mut said = String::new();
    running.0.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let status = running.0.wait().expect("it ends");
    assert!(status.success() && said == "0 wrong\n", "{status}: {said}");
}

/// Returns whether another instance than the origin has answered a retrieval.
fn has_asked(stage: &Stage, process: &str, at: u64) -> bool {
    Counts::of(stage, process, at).by_members > 0
}

#[test]
fn protocols_are_swapped_while_threads_roam() {
    swap_while_maps_change(&["--retrieval", "chain"], &["--roam", "10ms"]);
}

#[test]
fn protocols_are_swapped_while_maps_change() {
    swap_while_maps_change(&["--retrieval", "group"], &["--spread"]);
}

#[test]
fn protocols_are_swapped_while_pages_move() {
    swap_while_maps_change(&["--retrieval", "all", "--pages", "move"], &["--spread"]);
}

#[test]
fn instances_agree_on_who_changes_maps() {
    let stage = Stage::new();
    let _booted = Booted::new(&stage, &["--lock", "lamport", "--retrieval", "group"]);
    let program = build(&stage, "changes_maps", CHANGES_MAPS);
    let options = ["--on", "0", "--movable", "--spread"];
    let mut running = Running::start(&stage, &options, &[&program], "changes_maps");
    let process = running.id().to_string();
    until("a thread at each instance", || is_spread(&stage, &process));
    let host = |at: u64| {
        let said = shown(&stage, &process);
        let hosts = said["moves"]["destinations"].as_array().expect("an array");
        hosts.iter().find(|host| host["number"] == at).cloned().expect("a thread was there")
    };
    let locks = |at| host(at)["locks"]["count"].as_u64().expect("a number");
    until("locks", || [1, 2].iter().all(|&at| locks(at) >= 50));
    drop(running.0.stdin.take());
    let mut said = String::new();
    running.0.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let status = running.0.wait().expect("it ends");
    assert!(status.success() && said == "0 wrong\n", "{status}: {said}");
    for at in [1, 2] {
        let host = host(at);
        println!("{}", host["locks"]);
        // The instance asks the other one, which answers, and is notified of the end.
        assert_eq!(host["lock_messages"].as_u64(), Some(3 * locks(at)), "{host}");
    }
}

#[test]
fn a_memory_that_is_not_the_same_everywhere_is_found() {
    let stage = Stage::new();
    let keeps = ("REFIT_MOVE_FAULT", "forget");
    let booted = Booted::with(&stage, &[], &[CHECKED, keeps]);
    let program = build(&stage, "changes_maps", CHANGES_MAPS);
    let options = ["--on", "0", "--movable", "--spread"];
    let mut running = Running::start(&stage, &options, &[&program], "changes_maps");
    let mut status = None;
    until("the end of the program", || {
        status = running.0.try_wait().expect("it is our child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.signal()), Some(9));
    drop(booted);
    let logs: Vec<_> = stage.sockets().into_iter().filter(|name| name.ends_with(".log")).collect();
    let said = |log: &String| std::fs::read_to_string(stage.path("sockets").join(log));
    let text: String = logs.iter().filter_map(|log| said(log).ok()).collect();
    assert!(text.contains("its memory is not the same at instance "), "{text}");
    // The expected logs.
    logs.iter().for_each(|log| drop(std::fs::remove_file(stage.path("sockets").join(log))));
}
