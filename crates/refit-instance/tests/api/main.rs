//! Tests of the control API over a real socket, with objects that behave as a test specifies.

mod protocol;
mod swapping;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use refit_change::{Change, End, Report};
use refit_instance::wire::{CacheMode, ChangesQuery, JournalLine, MountRequest, ObjectInfo, Swap};
use refit_instance::{
    Client, Instance, InstanceOptions, Kind, Refusal, Served, SocketDirectory, SwapRequest, System,
};
use tempfile::TempDir;

/// Objects that are swapped at once, except `fcm:/stuck`, whose swap continues until it is
/// cancelled.
#[derive(Default)]
struct Toy {
    ended: Arc<AtomicBool>,
    busy: Arc<AtomicBool>,
    /// Whether the swap of `fcm:/stuck` has begun.
    stuck: Arc<AtomicBool>,
}

fn object(id: u64, name: &str, implementations: &[&str]) -> ObjectInfo {
    ObjectInfo {
        id,
        name: name.into(),
        interface: name.split(':').next().unwrap_or_default().into(),
        implementation: implementations[0].into(),
        implementations: implementations.iter().map(|s| (*s).to_owned()).collect(),
        reps: 1,
        clustering: "as-made".into(),
        misses: 0,
        imports: vec![],
        stats: BTreeMap::from([("calls".to_owned(), 5)]),
        ..ObjectInfo::default()
    }
}

impl System for Toy {
    fn objects(&self) -> Vec<ObjectInfo> {
        let both = ["shared", "partitioned"];
        vec![
            object(3, "pm:/", &["clock"]),
            object(2, "fcm:/logs/b", &both),
            object(1, "fcm:/logs/a", &both),
            object(4, "fcm:/stuck", &both),
        ]
    }

    fn swap(&self, request: &SwapRequest) -> Report {
        let (id, to) = &request.objects[0];
        let object = self.object(*id).expect("only known objects are swapped");
        let mut end = End::Committed;
        if object.name == "fcm:/stuck" {
            self.stuck.store(true, Ordering::Relaxed);
            while !request.cancel.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            end = End::RolledBack("requester gone".into());
        }
        if request.dry_run {
            end = End::Rehearsed;
        }
        Report {
            change: Change::new(
                request.change,
                "swap",
                &object.name,
                &object.implementation,
                to,
                &request.owner,
            ),
            phases: vec![],
            end,
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

    fn mount(&self, request: &MountRequest) -> Result<Box<dyn Served>, Refusal> {
        if request.source == Path::new("/missing") {
            return Err(Refusal::new(Kind::Failed, "mount /m", "no such directory", "make it"));
        }
        Ok(Box::new(ToyMount {
            source: request.source.clone(),
            mountpoint: request.mountpoint.clone(),
            ended: Arc::clone(&self.ended),
            busy: Arc::clone(&self.busy),
        }))
    }
}

struct ToyMount {
    source: PathBuf,
    mountpoint: PathBuf,
    ended: Arc<AtomicBool>,
    busy: Arc<AtomicBool>,
}

impl Served for ToyMount {
    fn source(&self) -> &Path {
        &self.source
    }
    fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
    fn set_cache_mode(&self, path_glob: &str, _mode: CacheMode) -> Option<usize> {
        assert_eq!(path_glob, "/logs/*", "the interface is not part of a path");
        Some(2)
    }
    fn stats(&self) -> BTreeMap<String, u64> {
        BTreeMap::from([("requests".to_owned(), 9)])
    }
    fn unmount(&self, discard: bool) -> Result<(), Refusal> {
        // Stands for data that cannot be stored, too.
        if self.busy.load(Ordering::Relaxed) && !discard {
            return Err(Refusal::new(Kind::Busy, "unmount /m", "it is in use", "end its users"));
        }
        Ok(())
    }
    fn detach(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

struct Stage {
    instance: Instance,
    client: Client,
    top: TempDir,
    ended: Arc<AtomicBool>,
    busy: Arc<AtomicBool>,
    stuck: Arc<AtomicBool>,
}

fn stage() -> Stage {
    let top = tempfile::tempdir().expect("a temporary directory");
    let directory = SocketDirectory::at(&top.path().join("refit")).expect("made");
    let toy = Toy::default();
    let (ended, busy) = (Arc::clone(&toy.ended), Arc::clone(&toy.busy));
    let stuck = Arc::clone(&toy.stuck);
    let instance =
        Instance::start(Arc::new(toy), InstanceOptions::at(directory)).expect("it starts");
    let client = Client::new(&instance.socket()).expect("a client");
    Stage { instance, client, top, ended, busy, stuck }
}

fn swap(glob: &str, implementation: &str) -> Swap {
    Swap::once(glob, implementation)
}

fn mount_request(source: &str) -> MountRequest {
    MountRequest {
        source: source.into(),
        mountpoint: "/m".into(),
        frames_bytes: 1 << 20,
        cache: CacheMode::Auto,
        workers: None,
        implementation: "shared".into(),
        composition: None,
        allow_other: false,
        private: false,
        read_only: false,
        no_xattrs: false,
        awake: false,
    }
}

/// Sends raw bytes as HTTP, for requests that no client would make; returns status and body.
fn raw(socket: &Path, request: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    // The instance may reply and close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, b)| b.to_owned()).unwrap_or_default())
}

fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: refit\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: refit\r\nConnection: close\r\n\r\n").into_bytes()
}

#[test]
fn says_that_it_lives() {
    let stage = stage();
    let health = stage.client.health().expect("it answers");
    assert_eq!(health.pid, std::process::id());
    assert_eq!(health.version, env!("CARGO_PKG_VERSION"));
}

/// Reads OpenMetrics with the parser of another project; prints samples by name and labels, as
/// JSON.
const PARSER: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    for sample in family.samples:
        print(json.dumps([sample.name, dict(sample.labels), sample.value], sort_keys=True))
";

#[test]
fn tells_what_it_counts() {
    let stage = stage();
    let swapped = stage.client.swap(&Swap::once("fcm:/logs/*", "partitioned")).expect("both can");
    assert_eq!(swapped.count(), 2);
    let text = stage.client.metrics().expect("it answers");
    // Debian's interpreter, because another one that comes first in the path lacks Debian's
    // modules.
    let python = "/usr/bin/python3";
    if !Path::new("/usr/lib/python3/dist-packages/prometheus_client").is_dir() {
        println!("skipped: the parser is missing; `apt-get install python3-prometheus-client`");
        return;
    }
    let mut parser = Command::new(python)
        .args(["-c", PARSER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut input = parser.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = parser.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{text}");
    let samples = String::from_utf8(output.stdout).expect("it is text");
    let value = |name: &str, labels: serde_json::Value| {
        let of = |line: &str| serde_json::from_str::<(String, serde_json::Value, f64)>(line);
        let mut all = samples.lines().map(|line| of(line).expect("a sample a line"));
        all.find(|sample| sample.0 == name && sample.1 == labels).map(|sample| sample.2)
    };
    let pid = std::process::id().to_string();
    let of = |interface: &str, implementation: &str| serde_json::json!({"pid": pid, "interface": interface, "implementation": implementation});
    assert_eq!(value("refit_objects", of("fcm", "shared")), Some(3.0), "{samples}");
    assert_eq!(value("refit_object_calls_total", of("pm", "clock")), Some(5.0), "{samples}");
    let swaps = serde_json::json!({"pid": pid, "mechanism": "swap", "end": "committed"});
    assert_eq!(value("refit_changes_total", swaps.clone()), Some(2.0), "{samples}");
    assert_eq!(value("refit_change_time_seconds_count", swaps), Some(2.0), "{samples}");
    let again = stage.client.metrics().expect("it answers");
    assert_eq!(
        again.lines().filter(|line| line.starts_with("refit_object_calls_total")).count(),
        text.lines().filter(|line| line.starts_with("refit_object_calls_total")).count(),
        "what is read twice is counted once"
    );
}

#[test]
fn lists_objects_by_name() {
    let stage = stage();
    let names = |glob: &str| -> Vec<String> {
        let objects = stage.client.objects(glob).expect("it answers");
        objects.into_iter().map(|o| o.name).collect()
    };
    assert_eq!(names("*"), ["fcm:/logs/a", "fcm:/logs/b", "fcm:/stuck", "pm:/"]);
    assert_eq!(names("fcm:/logs/*"), ["fcm:/logs/a", "fcm:/logs/b"]);
    assert_eq!(names("nothing & %?#+ é"), [""; 0], "any text is a glob");
    let (status, body) = raw(&stage.instance.socket(), &get("/objects/2"));
    assert_eq!(status, 200);
    assert!(body.contains("fcm:/logs/b"), "{body}");
    let (status, body) = raw(&stage.instance.socket(), &get("/objects/77"));
    assert_eq!((status, body.contains("no such object")), (404, true), "{body}");
}

#[test]
fn an_instance_that_hangs_is_told_by_name() {
    let top = tempfile::tempdir().expect("a temporary directory");
    let socket = top.path().join("4711.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("it listens");
    let timeout = std::time::Duration::from_millis(50);
    let client = Client::new(&socket).expect("a client").with_timeout(timeout);
    let refusals = [
        client.health().map(drop).expect_err("nobody answers"),
        client.objects("*").map(drop).expect_err("nobody answers"),
        client.swap(&swap("*", "shared")).map(drop).expect_err("nobody answers"),
        client.changes(&ChangesQuery::default()).map(drop).expect_err("nobody answers"),
    ];
    for refusal in refusals {
        assert_eq!(refusal.kind, Kind::Unreachable);
        assert!(refusal.obstacle.starts_with("instance 4711 has not answered for"), "{refusal}");
    }
}

#[test]
fn a_quiet_journal_is_no_hanging_instance() {
    let stage = stage();
    let timeout = std::time::Duration::from_secs(5);
    let client = Client::new(&stage.instance.socket()).expect("a client").with_timeout(timeout);
    let query = ChangesQuery { follow: true, ..ChangesQuery::default() };
    let mut lines = client.changes(&query).expect("it answers");
    let nothing = lines.next_within(timeout + std::time::Duration::from_secs(1));
    assert!(matches!(nothing, Some(Ok(None))), "{nothing:?}");
}

#[test]
fn followers_see_what_comes_and_end_with_the_instance() {
    let stage = stage();
    let follow = ChangesQuery { follow: true, ..Default::default() };
    let mut follower = stage.client.changes(&follow).expect("it answers");
    for id in 1..=3 {
        let mut lines = stage.client.swap(&swap("fcm:/logs/a", "shared")).expect("it begins");
        assert!(lines.next().expect("a line").expect("a report").committed());
        let line = follower.next().expect("a line").expect("an entry");
        let JournalLine::Entry { report, .. } = line else { panic!("{line:?}") };
        assert_eq!(report.change.id, id);
    }
    let socket = stage.instance.socket();
    drop(stage.instance);
    assert!(follower.next().is_none());
    assert!(!socket.exists(), "the socket goes with the instance");
    let why = stage.client.health().expect_err("nobody is there");
    assert_eq!(why.kind, Kind::Unreachable);
}

#[test]
fn mounts_and_unmounts() {
    let stage = stage();
    let why = stage.client.mount(&mount_request("/missing")).expect_err("refused");
    assert_eq!(why.to_string(), "mount /m: no such directory; make it");
    assert!(stage.instance.idle());

    let mount = stage.client.mount(&mount_request("/data")).expect("mounted");
    assert_eq!((mount.id, mount.stats["requests"]), (1, 9));
    assert_eq!(stage.client.set_cache_mode("fcm:/logs/*", CacheMode::Direct), Ok(2));

    stage.busy.store(true, Ordering::Relaxed);
    let why = stage.client.unmount(1, false).expect_err("in use");
    assert_eq!(why.kind, Kind::Busy);
    assert_eq!(stage.client.mounts().expect("it answers").len(), 1, "it goes on");
    stage.busy.store(false, Ordering::Relaxed);
    stage.client.unmount(1, false).expect("nobody is in the way");
    assert!(stage.instance.idle());
    let why = stage.client.unmount(1, false).expect_err("it is gone");
    assert_eq!(why.kind, Kind::Unknown);

    stage.client.mount(&mount_request("/data")).expect("mounted again");
    stage.busy.store(true, Ordering::Relaxed);
    stage.client.unmount(2, true).expect("what stands in the way is given up");
    stage.busy.store(false, Ordering::Relaxed);

    stage.client.mount(&mount_request("/data")).expect("mounted again");
    stage.ended.store(true, Ordering::Relaxed);
    assert_eq!(stage.instance.reap(), 1, "somebody else unmounted it");
    assert!(stage.instance.idle());
}

#[test]
fn activity_tells_everything_and_then_what_differs() {
    let stage = stage();
    let mut looks = stage.client.activity(Duration::from_millis(10)).expect("it answers");
    let mut look = || looks.next().expect("it does not end").expect("it is understood");
    let first = look();
    let mut seen: Vec<_> = first.objects.iter().map(|o| (o.id, o.calls, o.dirty)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4].map(|id| (id, 5, 0)));
    let second = look();
    assert!(second.at_ns >= first.at_ns + 10_000_000, "{second:?}");
    assert_eq!((second.objects, second.gone), (vec![], vec![]));
}

#[test]
fn there_is_no_memory_where_no_program_runs() {
    let stage = stage();
    let why = stage.client.memory().expect_err("nothing runs");
    assert_eq!((why.kind, &*why.obstacle), (Kind::Unknown, "no program runs under this instance"));
    assert_eq!(stage.client.limit(Some(1 << 30)).expect_err("nothing runs").kind, Kind::Unknown);
    assert_eq!(stage.client.process(1), Ok(None));
    let socket = stage.instance.socket();
    assert_eq!(raw(&socket, &get("/processes/-1")).0, 404);
    // A request without a limit does not lift it.
    for (body, status) in [
        ("{}", 400),
        ("{\"limit_bytes\": -1}", 400),
        ("{\"limit\": null}", 400),
        ("{\"limit_bytes\": null}", 404),
    ] {
        assert_eq!(raw(&socket, &post("/memory", body)).0, status, "{body}");
    }
}
