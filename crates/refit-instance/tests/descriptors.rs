//! Tests that an instance without a free descriptor still answers.
//!
//! The instance runs in a process of its own, which is this test started again. It uses up its
//! descriptors, and the test, which has some, sends requests.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use refit_change::{Change, End, Report};
use refit_instance::wire::{ChangesQuery, MountRequest, ObjectInfo, Swap};
use refit_instance::{
    Client, Instance, InstanceOptions, Refusal, Served, SocketDirectory, SwapRequest, System,
};
use rustix::process::{Resource, Rlimit, setrlimit};

const NAME: &str = "answers_without_a_free_descriptor";
const DIRECTORY: &str = "REFIT_TEST_DIRECTORY";

/// A system of one object.
struct Toy;

impl System for Toy {
    fn objects(&self) -> Vec<ObjectInfo> {
        vec![ObjectInfo {
            id: 1,
            name: "fcm:/a".into(),
            interface: "fcm".into(),
            implementation: "shared".into(),
            implementations: vec!["shared".into()],
            ..ObjectInfo::default()
        }]
    }

    fn swap(&self, request: &SwapRequest) -> Report {
        let (_, to) = &request.objects[0];
        Report {
            change: Change::new(request.change, "swap", "fcm:/a", "shared", to, &request.owner),
            phases: vec![],
            end: End::Committed,
            forwarded: 0,
            blocked: 0,
            longest_block_ns: 0,
            blockers: vec![],
            target_gone: false,
            objects: 1,
            attempts: 1,
            late: false,
            transfers: vec![],
            effect: String::new(),
        }
    }

    fn mount(&self, _: &MountRequest) -> Result<Box<dyn Served>, Refusal> {
        unreachable!("nothing is mounted here")
    }
}

/// Serves without a free descriptor until standard input ends.
fn serve(directory: &Path) {
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, limit).expect("it may be lowered");
    let directory = SocketDirectory::at(directory).expect("made");
    let instance =
        Instance::start(Arc::new(Toy), InstanceOptions::at(directory)).expect("it starts");
    let mut held: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        held.push(file);
    }
    println!("\nserving {}", instance.socket().display());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop((instance, held));
}

#[test]
fn answers_without_a_free_descriptor() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return serve(Path::new(&directory));
    }
    let top = tempfile::tempdir().expect("a temporary directory");
    let mut child = Command::new(std::env::current_exe().expect("it is known"))
        .args(["--exact", NAME, "--nocapture"])
        .env(DIRECTORY, top.path().join("refit"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let said = BufReader::new(child.stdout.take().expect("it is piped"));
    let socket = said
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("serving ").map(str::to_owned))
        .expect("it serves");
    let client = Client::new(Path::new(&socket)).expect("a client");

    // A follower stays connected, and many arrive one after the other: each makes room for the
    // next.
    let follow = ChangesQuery { follow: true, ..ChangesQuery::default() };
    let mut follower = client.changes(&follow).expect("it answers");
    for round in 0..50 {
        assert_eq!(client.health().expect("it answers").pid, child.id(), "round {round}");
        let lines = client.swap(&Swap::once("fcm:*", "shared")).expect("it answers");
        assert_eq!(lines.filter(Result::is_ok).count(), 1);
        assert!(matches!(follower.next(), Some(Ok(_))), "round {round}");
    }
    drop(child.stdin.take());
    child.wait().expect("it is our child");
}
