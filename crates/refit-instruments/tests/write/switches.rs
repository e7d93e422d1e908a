//! Tests of switching instruments: by themselves, by managers, by inheritance, by triggers.

use std::sync::Arc;
use std::time::Duration;

use refit_instruments::instrument::{
    Act, Chosen, Event, Instrument, Manager, System, Trigger, When,
};
use refit_instruments::write::{Options, Recorder};

use super::Turn;
use super::helper::until;
use super::trace::Trace;

static READ: Event = Event::new("files", "File::read");
static FAST_READ: Event = Event::new("files", "FastFile::read").inherits(&READ);
static HIT: Event = Event::new("caches", "hit");
static LATE: Event = Event::new("caches", "late");

fn on() -> [bool; 3] {
    [READ.records(), FAST_READ.records(), HIT.records()]
}

#[test]
fn each_reason_to_be_suspended_is_taken_away_by_who_gave_it() {
    let turn = Turn::begin(64 * 32);
    let system = System::new(turn.session);
    let caches = Manager::new(turn.session, "caches");
    assert_eq!(on(), [true; 3]);
    READ.suspend();
    assert_eq!(on(), [false, false, true], "what inherits follows");
    system.suspend();
    READ.resume();
    assert_eq!(on(), [false; 3]);
    caches.suspend();
    system.resume();
    assert_eq!(on(), [true, true, false]);
    FAST_READ.suspend();
    assert_eq!(on(), [true, false, false], "customised instruments have a switch of their own");
    assert!(!LATE.records(), "those to come are suspended with their manager");
    caches.resume();
    FAST_READ.resume();
    assert_eq!(on(), [true; 3]);
    assert!(LATE.records() && !caches.suspended());
    let managers = system.managers();
    assert!(["caches", "files"].iter().all(|name| managers.iter().any(|m| m == name)));
}

#[test]
fn triggers_act_once_when_their_condition_becomes_true() {
    let turn = Turn::begin(64 * 32);
    let dir = tempfile::tempdir().expect("a directory can be made");
    let recorder = Recorder::start(turn.session, &dir.path().join("trace"), Options::default());
    let recorder = recorder.expect("it can be written");
    let manager = Manager::new(turn.session, "caches");
    let reads = || Chosen::Instrument("File::read".into());
    let hits = || Chosen::Manager("caches".into());
    let second = Duration::from_secs(1);
    let mut volume = Trigger::new(hits(), When::Volume(20), Act::Suspend, reads());
    let mut rate = Trigger::new(hits(), When::Rate(25.0), Act::Suspend, Chosen::System);
    let many = Arc::new(|seen: refit_instruments::instrument::Observed| seen.volume >= 40);
    let mut condition = Trigger::new(hits(), When::Condition(many), Act::Resume, reads());
    let mut look =
        |session| [&mut volume, &mut rate, &mut condition].map(|t| t.look(session, second));

    // The session knows all of them.
    assert_eq!(on(), [true; 3]);
    assert_eq!(look(turn.session), [false; 3]);
    (0..20).for_each(|n| HIT.record([n, 0]));
    until("they are taken", || manager.volume() == 20);
    assert_eq!(look(turn.session), [true, false, false]);
    assert_eq!(on(), [false, false, true]);
    (0..30).for_each(|n| HIT.record([n, 0]));
    until("they are taken", || manager.volume() == 50);
    assert_eq!(look(turn.session), [false, true, true]);
    assert_eq!(on(), [false; 3]);
    System::new(turn.session).resume();
    assert_eq!(on(), [true; 3]);
    HIT.reset();
    assert_eq!(manager.volume(), 0);
    recorder.stop();
}

#[test]
fn a_recorder_obeys_its_triggers_and_says_what_measuring_costs() {
    let turn = Turn::begin(1 << 20);
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let own = || Chosen::Instrument("hit".into());
    let triggers = vec![Trigger::new(own(), When::Volume(1), Act::Suspend, own())];
    let options = Options { triggers, ..Options::default() };
    let recorder = Recorder::start(turn.session, &path, options).expect("it can be written");
    HIT.register();
    until("the trigger has acted", || {
        HIT.record([0, 0]);
        !HIT.records()
    });
    recorder.stop();
    let trace = Trace::read(&path);
    trace.check();
    let kinds: Vec<&str> = trace.costs.iter().map(|cost| cost.instrument.as_str()).collect();
    assert_eq!(kinds, ["event", "event", "counter", "counter", "timer", "timer"]);
    assert!(trace.costs.iter().all(|cost| cost.ticks.is_finite() && cost.cold > 0.0));
}
