//! Actions at a site: conditions, keys, fields in memory, records. The program works on as if
//! nothing were there.

use std::sync::Arc;

use std::collections::BTreeMap;

use crate::victim::Victim;
use refit_analysis::Live;
use refit_instruments::definition::{FieldKind, Role};
use refit_instruments::read::Trace;
use refit_instruments::record::{Phase, What};
use refit_instruments::session::{Described, Geometry, Kind, Session};
use refit_instruments::write::{Options, Recorder};
use refit_splice::{
    Action, At, Base, Clock, ENTRIES, EXITS, Fold, Installed, Key, Plan, Relation, Site, Step,
    TIME, Test, Value, Width, remains,
};

/// Number of the register of the first argument.
const FIRST: u8 = 7;
const STACK: u8 = 4;
const TIMES: u32 = 10_000;

/// Returns a site at the entry of `work` at which nearly everything is live, the red zone included.
fn site(victim: &Victim, steps: Vec<Step>) -> Site {
    let address = victim.address("work");
    let mut code = vec![0; 32];
    victim.program().read(address, &mut code).expect("its code");
    Site {
        address,
        code,
        room: 11,
        live: Live::ALL,
        alone: false,
        springboards: Vec::new(),
        actions: steps,
        at: At::Before,
        function: None,
        procedures: Arc::default(),
    }
}

/// Runs the steps at each call of `work` by two threads, `TIMES` each with 0, 1, 2, …; then
/// evaluates the result.
fn worked<R>(steps: &[Step], cells: u32, ask: impl Fn(&Installed) -> R) -> R {
    let mut victim = Victim::start();
    let program = victim.program();
    let plain = victim.work(TIMES);
    let (plan, refused) = Plan::new(vec![site(&victim, steps.to_vec())]);
    assert!(refused.is_empty(), "{refused:?}");
    let installed = Installed::new(&program, &plan, cells, None).expect("installed");
    assert_eq!(victim.work(TIMES), plain);
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.work(TIMES), plain);
    ask(&installed)
}

fn test(value: Value, relation: Relation, than: i64) -> Test {
    Test { value, relation, than }
}

fn count(when: Vec<Vec<Test>>, key: Option<Value>, cell: u32) -> Step {
    Step { when, key: key.map(Key::Value), action: Action::Count { cell } }
}

#[test]
fn conditions_hold_or_do_not() {
    let first = Value::register(FIRST);
    let narrow = |width| Value { base: Base::Register(FIRST), width };
    let cases = [
        (vec![vec![test(first, Relation::Equal, 17)]], 1),
        (vec![vec![test(first, Relation::Unequal, 17)]], TIMES - 1),
        (vec![vec![test(first, Relation::Less, 10)]], 10),
        (vec![vec![test(first, Relation::AtMost, 10)]], 11),
        (vec![vec![test(first, Relation::More, 9_990)]], 9),
        (vec![vec![test(first, Relation::AtLeast, 9_990)]], 10),
        // All of one, or all of the other.
        (
            vec![
                vec![test(first, Relation::AtLeast, 5), test(first, Relation::Less, 8)],
                vec![test(first, Relation::Equal, 100)],
                vec![test(first, Relation::Equal, -1)],
            ],
            4,
        ),
        // A number that does not fit an immediate operand.
        (vec![vec![test(first, Relation::Less, i64::MAX)]], TIMES),
        (vec![vec![test(first, Relation::Less, i64::MIN)]], 0),
        (vec![vec![test(narrow(Width::U8), Relation::Equal, 255)]], 39),
        (vec![vec![test(narrow(Width::I8), Relation::Equal, -1)]], 39),
        (vec![vec![test(narrow(Width::I16), Relation::Less, 0)]], 0),
    ];
    let step = |(cell, (when, _)): (u32, &(Vec<Vec<Test>>, u32))| count(when.clone(), None, cell);
    let steps: Vec<_> = (0..).zip(&cases).map(step).collect();
    let counted = worked(&steps, cases.len() as u32, |installed| {
        let cell = |cell| installed.cell(cell).expect("read");
        (0..cases.len() as u32).map(cell).collect::<Vec<_>>()
    });
    let expected: Vec<_> = cases.iter().map(|(_, times)| u64::from(*times) * 2).collect();
    assert_eq!(counted, expected);
}

#[test]
fn each_key_has_its_own_cells_until_there_are_too_many() {
    let first = Value::register(FIRST);
    let few = count(vec![vec![test(first, Relation::Less, 100)]], Some(first), 0);
    let many = count(Vec::new(), Some(first), few.cells());
    let cells = few.cells() + many.cells();
    let (some, all) = worked(&[few.clone(), many.clone()], cells, |installed| {
        let read = |step: &Step, first| installed.keyed(step, first).expect("read");
        (read(&few, 0), read(&many, few.cells()))
    });
    let expected: BTreeMap<u64, Vec<u64>> = (0..100).map(|key| (key, vec![2])).collect();
    assert_eq!(some, (expected, vec![0]));
    let (keys, others) = all;
    assert!(keys.iter().all(|(&key, count)| key < TIMES.into() && count[0] <= 2), "{keys:?}");
    let keyed: u64 = keys.values().map(|count| count[0]).sum();
    assert!(keyed > 0 && others[0] > 0);
    assert_eq!(keyed + others[0], u64::from(TIMES) * 2);
}

#[test]
fn threads_and_the_process_are_told_by_their_numbers() {
    let value = |base| Value { base, width: Width::Whole };
    let by_thread = count(Vec::new(), Some(value(Base::Thread)), 0);
    let by_process = count(Vec::new(), Some(value(Base::Process)), by_thread.cells());
    let mut victim = Victim::start();
    let program = victim.program();
    let steps = vec![by_thread.clone(), by_process.clone()];
    let (plan, _) = Plan::new(vec![site(&victim, steps)]);
    let cells = by_thread.cells() + by_process.cells();
    let installed = Installed::new(&program, &plan, cells, None).expect("installed");
    victim.work(TIMES);
    let read = |step: &Step, first| installed.keyed(step, first).expect("read").0;
    let threads = read(&by_thread, 0);
    assert_eq!(threads.values().flatten().collect::<Vec<_>>(), [&u64::from(TIMES); 2]);
    assert!(threads.keys().all(|&thread| thread != u64::from(program.id())), "{threads:?}");
    let processes = read(&by_process, by_thread.cells());
    let expected = BTreeMap::from([(u64::from(program.id()), vec![2 * u64::from(TIMES)])]);
    assert_eq!(processes, expected);
    remains::repair(&program).expect("taken out");
}

#[test]
fn memory_is_looked_at_and_a_pointer_to_nowhere_does_no_harm() {
    let field = |register, width| Value { base: Base::Memory { register, offset: 0 }, width };
    // The top of the stack at an entry is the return address; the argument points to unmapped
    // memory.
    let steps = [
        count(Vec::new(), Some(field(STACK, Width::Whole)), 0),
        count(
            vec![vec![test(field(FIRST, Width::Whole), Relation::AtLeast, i64::MIN)]],
            None,
            273 * 2,
        ),
        Step {
            when: Vec::new(),
            key: None,
            action: Action::Histogram { cell: 273 * 2 + 1, value: field(STACK, Width::U8) },
        },
    ];
    let cells: u32 = steps.iter().map(Step::cells).sum();
    let (callers, harmed, sizes) = worked(&steps, cells, |installed| {
        let sizes = (0..65).map(|size| installed.cell(273 * 2 + 1 + size).expect("read"));
        let (callers, others) = installed.keyed(&steps[0], 0).expect("read");
        assert_eq!(others, [0]);
        (callers, installed.cell(273 * 2).expect("read"), sizes.sum::<u64>())
    });
    assert_eq!(callers.values().map(|count| count[0]).sum::<u64>(), u64::from(TIMES) * 2);
    // One loop calls it.
    assert!(callers.len() == 1 && callers.keys().all(|&address| address > 1 << 20), "{callers:x?}");
    assert_eq!((harmed, sizes), (0, u64::from(TIMES) * 2));
}

#[test]
fn values_are_summed_and_the_least_and_greatest_kept() {
    let first = Value::register(FIRST);
    let byte = Value { base: Base::Register(FIRST), width: Width::I8 };
    let step = |(cell, (fold, value, key)): (u32, (Fold, Value, Option<Value>))| Step {
        when: Vec::new(),
        key: key.map(Key::Value),
        action: Action::Fold { cell: cell * 1000, value, fold },
    };
    let thread = Some(Value { base: Base::Thread, width: Width::Whole });
    let folds = [Fold::Sum, Fold::Least, Fold::Greatest];
    let values = [first, byte, first];
    let cases = values.into_iter().zip([None, None, thread]);
    let all = cases.flat_map(|(value, key)| folds.map(|fold| (fold, value, key)));
    let steps: Vec<_> = (0..).zip(all).map(step).collect();
    let read = worked(&steps, 10_000, |installed| {
        let all = (0..).step_by(1000).zip(&steps);
        all.map(|(first, step)| match step.key {
            None => vec![installed.cells(step, first).expect("read")],
            Some(_) => installed.keyed(step, first).expect("read").0.into_values().collect(),
        })
        .collect::<Vec<_>>()
    });
    let times = i64::from(TIMES);
    let bytes = (0..times).map(|value| i64::from(value as i8));
    let whole = [times * (times - 1) / 2, 0, times - 1];
    let expected = [
        whole.map(|result| vec![result]),
        [bytes.clone().sum(), -128, 127].map(|result| vec![result]),
        whole.map(|result| vec![result; 2]),
    ];
    for (at, (read, expected)) in read.iter().zip(expected.concat()).enumerate() {
        // Two threads do the work once each.
        let threads = expected.len() as i64;
        let results = read.iter().map(|cells| folds[at % 3].value(cells[1]));
        let twice = if at % 3 == 0 && threads == 1 { 2 } else { 1 };
        assert_eq!(
            results.collect::<Vec<_>>(),
            expected.iter().map(|e| e * twice).collect::<Vec<_>>()
        );
        assert!(read.iter().all(|cells| cells[0] as i64 == times * 2 / threads), "{at}: {read:?}");
    }
}

fn time(enters: bool, threads: u32, clock: Clock, base: Base) -> Step {
    let key = Some(Key::Value(Value { base, width: Width::Whole }));
    Step { when: Vec::new(), key, action: Action::Time { cell: 0, threads, enters, clock } }
}

#[test]
fn time_inside_is_told_for_each_thread() {
    for base in [Base::Thread, Base::Context] {
        for clock in [Clock::Wall, Clock::Thread] {
            // Enters and leaves at once: the time in between is almost zero, but not negative.
            let steps = [time(true, 16, clock, base), time(false, 16, clock, base)];
            let (threads, lost) = worked(&steps, steps[0].cells(), |installed| {
                installed.timers(&steps[0], 0).expect("read")
            });
            assert_eq!((threads.len(), lost), (2, 0), "{base:?} {clock:?}");
            for timer in threads.values() {
                assert_eq!((timer[ENTRIES], timer[EXITS]), (TIMES.into(), TIMES.into()));
                let minute = 60 * if clock == Clock::Wall { 10_u64.pow(10) } else { 10_u64.pow(9) };
                assert!(timer[TIME] > 0 && timer[TIME] < minute, "{base:?} {clock:?} {timer:?}");
            }
        }
    }
}

fn durations(enters: bool, clock: Clock) -> Step {
    let key = Some(Key::Value(Value { base: Base::Thread, width: Width::Whole }));
    let action = Action::Durations { cell: 0, threads: 16, enters, clock };
    Step { when: Vec::new(), key, action }
}

#[test]
fn durations_are_told_one_by_one_as_deep_as_there_is_room() {
    // Once it leaves without having entered; then it enters and leaves equally many times.
    for (nested, clock) in [(1, Clock::Wall), (3, Clock::Thread), (62, Clock::Wall)] {
        let mut steps = vec![durations(false, clock)];
        steps.extend((0..2 * nested).map(|number| durations(number < nested, clock)));
        let (threads, lost) = worked(&steps, steps[0].cells(), |installed| {
            installed.durations(&steps[0], 0).expect("read")
        });
        assert_eq!((threads.len(), lost), (2, 0));
        for cells in threads.values() {
            let [_, deep, entries, exits, sum] = cells[..5] else { panic!("{cells:?}") };
            let all = u64::from(TIMES) * nested;
            assert_eq!((entries, exits), (all, all));
            assert_eq!(deep, u64::from(TIMES) * nested.saturating_sub(59), "{nested}");
            let sizes = &cells[64..];
            assert_eq!(sizes.iter().sum::<u64>(), all - deep);
            // The sum matches the sizes: each duration is from half of its power of two on.
            let least: u64 = (1..).zip(&sizes[1..]).map(|(bits, n)| n << (bits - 1)).sum();
            assert!(least <= sum && sum <= 2 * least, "{least} {sum}");
        }
    }
}

#[test]
fn who_was_inside_before_does_not_count_when_it_leaves() {
    let first = Value::register(FIRST);
    let thread = Base::Thread;
    // Leaves three times per entry: before, between, and after.
    let leave = || time(false, 16, Clock::Wall, thread);
    let steps = [leave(), time(true, 16, Clock::Wall, thread), leave(), leave()];
    let (threads, _) =
        worked(&steps, steps[0].cells(), |installed| installed.timers(&steps[0], 0).expect("read"));
    for timer in threads.values() {
        assert_eq!((timer[ENTRIES], timer[EXITS]), (TIMES.into(), TIMES.into()));
        assert!(timer[TIME].cast_signed() > 0, "{timer:?}");
    }
    // Calls of threads for which there is no room are counted: here each argument stands for a
    // thread.
    let many = [Step { key: Some(Key::Value(first)), ..time(true, 16, Clock::Wall, thread) }];
    let (threads, lost) =
        worked(&many, many[0].cells(), |installed| installed.timers(&many[0], 0).expect("read"));
    let timed: u64 = threads.values().map(|timer| timer[ENTRIES]).sum();
    // Argument 0 stands for no thread.
    assert!(threads.len() <= 32 && lost > 0 && timed + lost <= 2 * u64::from(TIMES));
}

#[test]
fn records_are_written_by_the_program_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let geometry = Geometry { records: 1 << 16, ..Geometry::of_host() };
    let session = Session::create(geometry).expect("a session");
    let described = Described {
        name: "victim:work",
        manager: "probe",
        kind: Kind::Event,
        role: Role::Plain,
        fields: &[("i", FieldKind::U64), ("thread", FieldKind::U64)],
        parent: 0,
    };
    let id = session.define(&described).expect("an event");
    let thread = Value { base: Base::Thread, width: Width::Whole };
    let payload = [Some(Value::register(FIRST)), Some(thread)];
    let action = Action::Event { what: What::new(id, Phase::Point).word(), payload };

    let mut victim = Victim::start();
    let program = victim.program();
    let (plain, before) = (victim.work(TIMES), victim.traces());
    let (plan, _) = Plan::new(vec![site(&victim, vec![action.into()])]);
    let recorder = Recorder::start(session, &path, Options::default()).expect("a recorder");
    Installed::new(&program, &plan, 0, Some(session)).expect("installed");
    assert_eq!(victim.work(TIMES), plain);
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.traces(), before, "the session is mapped no more");
    let end = recorder.stop().end;
    assert_eq!((end.written, end.lost_full, end.lost_torn), (u64::from(TIMES) * 2, 0, 0));

    let trace = Trace::open(&[path]).expect("a trace");
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for record in trace.records() {
        let record = record.expect("whole").record;
        assert_eq!((record.what.id(), record.what.phase()), (id, Some(Phase::Point)));
        let expected = next.entry(record.thread).or_default();
        assert_eq!(record.payload, [*expected, record.thread.into()]);
        *expected += 1;
    }
    assert_eq!(next.into_values().collect::<Vec<_>>(), [u64::from(TIMES); 2]);
}
