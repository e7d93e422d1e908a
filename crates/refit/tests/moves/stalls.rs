//! A move between two hosts that hangs: from one dump of each side one sees where it stands.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::failures::Two;
use crate::stage::Stage;
use crate::stage::running::until;

/// A host with one instance, at which this step is to fail.
fn boot(number: &str, arguments: &[&str], fault: Option<&str>) -> Two {
    let stage = Stage::new();
    let mut boot = stage.refit(&["boot", "--instances", "1", "--number", number]);
    boot.args(["--silence", "30s"]).args(arguments).stdin(Stdio::null());
    boot.envs(fault.map(|step| ("REFIT_MOVE_FAULT", step)));
    let booted = boot.output().expect("it starts");
    assert!(booted.status.success(), "{booted:?}");
    Two::of(stage)
}

/// The last events of an instance.
struct Dump(Vec<Value>);

impl Dump {
    fn of(two: &Two) -> Self {
        let (code, said, complained) = two.stage.run(&["debug-dump", "--json"]);
        assert_eq!(code, 0, "{complained}");
        Self(said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
    }

    /// The place of the last event of a thread with this message, and its fields.
    fn last(&self, thread: &str, message: &str) -> Option<(usize, &Value)> {
        let is =
            |event: &Value| event["message"] == message && field(event, "thread") == Some(thread);
        let place = self.0.iter().rposition(is)?;
        Some((place, &self.0[place]))
    }
}

/// A field of an event.
fn field<'a>(event: &'a Value, name: &str) -> Option<&'a str> {
    let fields = event["fields"].as_array()?;
    fields.iter().find(|field| field[0] == name).and_then(|field| field[1].as_str())
}

/// The residency in which the thread stalls: each third step fails.
const STALLS: &str = "3";

/// Moves a program back and forth until one of the moves does not end.
fn moves_until_it_hangs(two: &Two, id: &str, other: &Two) -> Child {
    let stalls = || {
        let dump = Dump::of(other);
        let arrived = dump.last(id, "a thread arrives");
        arrived.is_some_and(|(_, event)| field(event, "residency") == Some(STALLS))
    };
    for to in ["1", "0"].into_iter().cycle() {
        let mut moving = two.stage.refit(&["move", id, to]);
        let mut moving = moving.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("refit");
        let ended = |moving: &mut Child| moving.try_wait().expect("a child").is_some();
        until("the end of a move, or a stall", || ended(&mut moving) || stalls());
        if stalls() {
            return moving;
        }
    }
    unreachable!("to and fro for ever")
}

/// An instance that hangs is not asked to end; the other one goes on once it has lost it.
struct Killed<'a>(&'a Two);

impl Drop for Killed<'_> {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0.instance(1), rustix::process::Signal::KILL);
    }
}

#[test]
fn dumps_of_both_sides_say_where_a_move_stands() {
    let first = boot("0", &["--listen", "127.0.0.1:0"], None);
    let (_, instances, _) = first.stage.run(&["--json", "instances"]);
    let instances: Value = serde_json::from_str(instances.trim()).expect("JSON");
    let address = instances["address"].as_str().expect("it listens");
    let second = boot("1", &["--join", address], Some("stall"));
    let counting = first.count("counting", &["--movable"]);
    let id = counting.id();
    // Before the program is: it cannot end as long as its origin waits.
    let killed = Killed(&second);
    let mut hangs = moves_until_it_hangs(&first, &id, &second);

    // The origin: the thread has left, in its third residency, and has not arrived.
    let origin = Dump::of(&first);
    let (_, state) = origin.last(&id, "thread").expect("its last transition");
    assert!(field(state, "to").is_some_and(|to| to.starts_with("Departing")), "{state}");
    assert_eq!(field(state, "residency"), Some(STALLS), "{state}");
    let group = state["spans"][0].as_str().expect("its program").to_owned();
    // The other side: that residency has come, and does not run.
    let remote = Dump::of(&second);
    let (arrived, event) = remote.last(&id, "a thread arrives").expect("it has come");
    assert_eq!(field(event, "residency"), Some(STALLS), "{event}");
    let same = field(event, "group").expect("its group");
    assert_eq!(group, format!("program{{group={same}}}"), "one number for both sides");
    let (ran, event) = remote.last(&id, "it runs").expect("it has run before");
    assert!(ran < arrived && field(event, "residency") == Some("2"), "{event}");
    // People read the same.
    let (_, text, _) = second.stage.run(&["debug-dump"]);
    let last = text.lines().rfind(|line| line.contains("a thread arrives")).expect("a line");
    assert!(last.contains(&format!("group={same}")) && last.contains("residency=3"), "{last}");

    drop(killed);
    hangs.wait().expect("its end");
    drop(counting);
}
