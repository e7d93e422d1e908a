//! Tests of wrappers through the control API, around real objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use refit_change::{End, Report};
use refit_instance::wire::{ObjectInfo, Unwrap, Wrap};
use refit_instance::{
    Client, Instance, InstanceOptions, Kind, Lines, Refusal, SocketDirectory, host,
};
use refit_objects::{
    After, Choices, PreCall, State, TransferError, Wrapper, attach, destroy, interface,
};

#[interface(name = "tally", state = u64)]
trait Tally {
    /// Adds `n`, and returns the sum.
    fn add(&self, n: u64) -> u64;
}

#[derive(Default)]
struct One(AtomicU64);

impl Tally for One {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }
}

impl State<u64> for One {
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.0.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.0.store(state, Ordering::Relaxed);
        Ok(())
    }
}

fn tally(name: &str) -> TallyRef {
    let one = Choices::new().with("one", TallyInterface::rep, One::default);
    one.create(name, "one").expect("it is in the list")
}

struct Bomb;

impl Wrapper for Bomb {
    fn name(&self) -> &str {
        "bomb"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        panic!("as asked")
    }
}

struct Stage {
    instance: Instance,
    client: Client,
    _directory: tempfile::TempDir,
}

fn stage() -> Stage {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sockets = SocketDirectory::at(&directory.path().join("sockets")).expect("made");
    let instance = Instance::start(host(), InstanceOptions::at(sockets)).expect("it starts");
    let client = Client::new(&instance.socket()).expect("it is there");
    Stage { instance, client, _directory: directory }
}

fn ends(lines: Result<Lines<Report>, Refusal>) -> Vec<Report> {
    lines.expect("it begins").collect::<Result<_, _>>().expect("it ends")
}

fn wrap(glob: &str, wrapper: &str, options: &[(&str, &str)]) -> Wrap {
    let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Wrap { glob: glob.into(), wrapper: wrapper.into(), options, mount: None }
}

fn only(stage: &Stage, glob: &str) -> ObjectInfo {
    stage.client.objects(glob).expect("it answers").remove(0)
}

#[test]
fn wraps_what_matches_and_writes_it_down() {
    let stage = stage();
    let objects = ["both/a", "both/b"].map(tally);
    let reports = ends(stage.client.wrap(&wrap("tally:both/*", "arguments", &[("argument", "n")])));
    assert_eq!(reports.len(), 2);
    assert!(reports.iter().all(Report::committed), "{reports:?}");
    objects.iter().for_each(|o| assert_eq!(o.add(5), 0));
    let info = only(&stage, "tally:both/a");
    assert_eq!(info.wrappers[0].options, "argument=n");
    assert_eq!(info.wrappers[0].histograms[0].ranges, [(4, 1)]);
    let entries = stage.instance.journal().entries();
    assert_eq!(entries.iter().filter(|e| e.report.change.mechanism == "wrap").count(), 2);

    let unwrap =
        Unwrap { glob: "tally:both/*".into(), wrapper: Some("arguments".into()), mount: None };
    assert_eq!(ends(stage.client.unwrap(&unwrap)).len(), 2);
    assert_eq!(only(&stage, "tally:both/a").wrappers, []);
    let known = stage.client.wrappers().expect("it answers");
    assert!(known.iter().any(|w| w.name == "fault" && w.options.contains_key("every")));
    objects.iter().for_each(|o| destroy(o.id()));
}

#[test]
fn refuses_what_it_cannot_do_and_says_what_there_is() {
    let stage = stage();
    let object = tally("refused");
    let name = "tally:refused";
    for (request, kind, says) in [
        (wrap("tally:missing", "count", &[]), Kind::Unknown, "no such object"),
        (wrap(name, "counts", &[]), Kind::Malformed, "there are: count, latency"),
        (wrap(name, "latency", &[("x", "1")]), Kind::Malformed, "there are: method"),
        (wrap(name, "fault", &[("error", "5")]), Kind::Malformed, "can express an errno"),
    ] {
        let Err(refusal) = stage.client.wrap(&request) else { panic!("it was not refused") };
        assert_eq!(refusal.kind, kind, "{refusal}");
        assert!(refusal.to_string().contains(says), "{refusal}");
    }
    let unwrap = |wrapper: Option<&str>| {
        let request =
            Unwrap { glob: name.into(), wrapper: wrapper.map(str::to_owned), mount: None };
        let Err(refusal) = stage.client.unwrap(&request) else { panic!("it was not refused") };
        refusal
    };
    assert!(unwrap(None).to_string().contains("no wrapper is attached"));
    ends(stage.client.wrap(&wrap(name, "count", &[])));
    assert!(unwrap(Some("latency")).to_string().contains("there are: count"));
    assert_eq!(unwrap(Some("999999")).kind, Kind::Unknown);
    destroy(object.id());
}

#[test]
fn a_wrapper_that_panics_stands_in_the_journal() {
    let stage = stage();
    let object = tally("bombed");
    attach(object.id(), Bomb).expect("it lives");
    assert_eq!(object.add(1), 0);
    let until = Instant::now() + Duration::from_secs(60);
    let report = loop {
        let entries = stage.instance.journal().entries();
        let entry = entries.iter().find(|e| e.report.change.target == "tally:bombed");
        if let Some(entry) = entry {
            break Arc::clone(&entry.report);
        }
        assert!(Instant::now() < until, "it was not written down");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((report.change.mechanism.as_str(), &report.end), ("unwrap", &End::Committed));
    assert_eq!((&*report.change.from, &*report.change.to), ("bomb(one)", "one"));
    assert!(report.change.owner.contains("panicked in precall of add: as asked"), "{report:?}");
    let failures = only(&stage, "tally:bombed").wrapper_failures;
    assert_eq!(failures[0].wrapper, "bomb");
    destroy(object.id());
}
