//! Messages and keys have the texts that programs had, whatever their pointers were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use super::copies::module;
use super::victim::{Built, Victim, build};
use refit_instruments::messages::Messages;
use refit_instruments::session::{Geometry, Session};
use refit_probe::datum::Datum;
use refit_probe::places;
use refit_probe::placing;
use refit_probe::printing::Printed;
use refit_probe::reading::Reading;
use refit_probe::spec::{Spec, What};
use refit_probe::steps::Steps;
use refit_probe::watch::{self, Watch};
use refit_splice::process::Program;
use refit_splice::{Action, Installed, Item, Key, Plan, Step, Value, remains};

const SOURCE: &str = "probing/messages.c";

fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &["-pthread"])).path()
}

fn fixed() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &["-pthread", "-static"])).path()
}

fn watch(victim: &Victim, probe: &str) -> Watch {
    let program = victim.program();
    let spec: Spec = probe.parse().expect("a spec");
    let prepared = watch::prepare(&program, &[spec], None).expect("prepared");
    prepared.install(&program).expect("installed")
}

fn texts(printed: &[Printed]) -> Vec<&str> {
    printed.iter().map(|one| one.text.as_str()).collect()
}

/// Counts by the parts of their keys, and the count of those without room.
fn counts(watch: &Watch) -> (BTreeMap<Vec<Datum>, u64>, u64) {
    let place = &watch.watched[0];
    let counts = watch.read(&place.actions[0]).expect("read");
    let Reading::Count(others) = counts.all else { panic!("{:?}", counts.all) };
    let (mut keys, mut others) = (BTreeMap::new(), others);
    for (number, reading) in counts.keys {
        let Reading::Count(count) = reading else { panic!("{reading:?}") };
        match watch.key(place, &place.actions[0], number).expect("read") {
            Some(key) => drop(keys.insert(key, count)),
            None => others += count,
        }
    }
    (keys, others)
}

#[test]
fn texts_end_where_they_end_and_bad_pointers_are_told() {
    for path in [program(), fixed()] {
        let mut victim = Victim::of(path);
        let traces = victim.traces();
        let probe =
            r#"uprobe:victim:t_say { printf("%d %s|%s", arg1, str(arg0), str(arg0, 7)), poison }"#;
        let watch = watch(&victim, probe);
        assert_eq!(victim.ask("texts"), "13");
        let printed = watch.printed().expect("read");
        watch.remove(&victim.program()).expect("removed");
        let (x, y) = ("x".repeat(64), "y".repeat(64));
        let printed = texts(&printed);
        let [none, one, two] = printed[4..7] else { panic!() };
        assert!(none.starts_with("5 (bad address 0x") && one == "6 (null)|(null)", "{none}");
        assert_eq!(two, "7 (bad address 0x1)|(bad address 0x1)");
        assert_eq!(printed[..4], ["1 across|across", "2 the end|the end", "3 |", "4 tail|tail"]);
        assert_eq!(
            printed[7..],
            [
                "8 (bad address 0x8000000000000000)|(bad address 0x8000000000000000)",
                &format!("9 {x}..|xxxxxxx.."),
                &format!("10 {y}|yyyyyyy.."),
                &format!("11 {}|yyyyyyy..", &y[1..]),
                "12 naïve\\x09\\x1b[2J|naïve\\x09..",
                "13 (bad address 0xffffffffffffff00)|(bad address 0xffffffffffffff00)",
            ]
        );
        assert_eq!((watch.unprinted(), victim.traces()), (0, traces));
    }
}

#[test]
fn messages_have_the_place_the_thread_and_the_time() {
    let mut victim = Victim::of(program());
    let id = victim.program().id();
    let probe = r#"func:victim:t_say { printf("%s %s %d %d %d %s %s %#x", func, probe, pid, tid, elapsed, comm, usym(arg2), arg1) }"#;
    let watch = watch(&victim, probe);
    victim.ask("say 2");
    victim.ask("fork");
    let printed = watch.printed().expect("read");
    watch.remove(&victim.program()).expect("removed");
    let [first, second, child] = &printed[..] else { panic!("{printed:#?}") };
    assert!(first.time < second.time && second.time < child.time);
    assert_eq!((first.thread, second.thread, first.place), (id, id, 0));
    let words: Vec<_> = second.text.split(' ').collect();
    let own = id.to_string();
    assert_eq!(words[..4], ["t_say", "uprobe:victim:t_say", &own, &own]);
    assert_eq!(words[5..], ["victim", "t_name", "0x1"]);
    let elapsed = |one: &Printed| one.text.split(' ').nth(4).unwrap_or("").parse::<u64>();
    assert!(elapsed(first).expect("a number") < elapsed(second).expect("a number"));
    let words: Vec<_> = child.text.split(' ').collect();
    assert!(words[2] != own && words[2] == child.thread.to_string(), "{words:?}");
    assert_eq!(words[6], "0x0");
}

#[test]
fn messages_of_threads_and_handlers_are_whole_or_counted_as_lost() {
    let mut victim = Victim::of(program());
    let probe = r#"uprobe:victim:t_say { printf("%s=%d=%s", str(arg0), arg1, str(arg0)) }"#;
    let watch = watch(&victim, probe);
    let asked = std::thread::spawn(move || (victim.ask("busy 60000"), victim));
    let mut number = 0;
    let mut read = || {
        for printed in watch.printed().expect("read") {
            let words: Vec<_> = printed.text.split('=').collect();
            let [text, argument, again] = words[..] else { panic!("{printed:?}") };
            let argument: usize = argument.parse().expect("a number");
            let known = ["one", "twenty-two", "three hundred and thirty-three", "", "4"];
            assert_eq!((text, again), (known[argument % 5], known[argument % 5]), "{printed:?}");
            number += 1;
        }
    };
    while !asked.is_finished() {
        read();
    }
    let (answer, victim) = asked.join().expect("ended");
    read();
    watch.remove(&victim.program()).expect("removed");
    let calls: u64 = answer.parse().expect("a number");
    assert_eq!((number + watch.unprinted(), calls >= 120_000), (calls, true));
}

#[test]
fn keys_of_several_parts_count_exactly_in_threads_and_handlers() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, "uprobe:victim:t_say { @[str(arg0), func, comm] = count() }");
    let calls: u64 = victim.ask("busy 50000").parse().expect("a number");
    let (keys, others) = counts(&watch);
    watch.remove(&victim.program()).expect("removed");
    assert_eq!((keys.values().sum::<u64>(), others), (calls, 0));
    let text = |text: &str| Datum::Text(text.to_owned());
    for word in ["one", "twenty-two", "three hundred and thirty-three", "", "4"] {
        for thread in ["first", "victim"] {
            let count = keys.get(&vec![text(word), text("t_say"), text(thread)]).copied();
            assert!(count.is_some_and(|count| count >= 10_000 - 5), "{word} {thread}: {count:?}");
        }
    }
    // Equal texts have one key, wherever they are.
    assert!(keys.len() <= 2 * 5 + 5, "{keys:#?}");
}

#[test]
fn keys_may_be_constant_numbers_or_stacks_and_more_than_there_is_room_for() {
    let mut victim = Victim::of(program());
    let program = victim.program();
    let number = |number| Datum::Number(number);
    // Known without the program.
    let constant = watch(&victim, "uprobe:victim:t_say { @[func] = count() }");
    assert_eq!(constant.watched[0].actions[0].step.key, None);
    constant.remove(&program).expect("removed");
    let two = watch(&victim, "uprobe:victim:t_say { @[arg1, func, ustack(1)] = count() }");
    victim.ask("say 20000");
    let (keys, others) = counts(&two);
    two.remove(&program).expect("removed");
    assert_eq!(keys.values().sum::<u64>() + others, 20_000);
    assert!(others > 0 && keys.len() >= 200, "{} {others}", keys.len());
    assert!(keys.iter().all(|(key, count)| {
        let [_, Datum::Text(function), Datum::Stack(frames)] = &key[..] else { return false };
        function == "t_say" && frames.len() == 1 && *count == 1
    }));
    let exits = watch(&victim, "uretprobe:victim:t_name { @[str(retval), retval] = count() }");
    for name in [1, 2, 1, 4711] {
        victim.ask(&format!("name {name}"));
    }
    let (keys, _) = counts(&exits);
    exits.remove(&program).expect("removed");
    let texts: Vec<_> = keys.iter().map(|(key, count)| (key[0].clone(), *count)).collect();
    let text = |text: &str| Datum::Text(text.to_owned());
    assert_eq!(texts, [(text("(bad address 0x1267)"), 1), (text("one"), 2), (text("two"), 1)]);
    assert!(keys.keys().any(|key| key[1] == number(4711)));
}

/// Returns the sites of `t_say` with a step, and the plan for them.
fn plan(program: &Program, step: &Step) -> Plan {
    let (module, bias) = module(program, self::program());
    let [found] = &places::find(&module, &What::Functions("t_say".into()))[..] else { panic!() };
    let steps = Steps { here: vec![step.clone()], ..Steps::default() };
    let sites = placing::place(&module, found, bias, &steps).expect("instructions").sites;
    let (plan, refused) = Plan::new(sites);
    assert!(refused.is_empty(), "{refused:?}");
    plan
}

#[test]
fn a_message_that_is_read_while_others_are_written_is_whole() {
    let mut victim = Victim::of(program());
    let program = victim.program();
    // The second argument, in three slots.
    let items = [Item::Value(Value::register(6)); 8].as_slice().into();
    let step = Step::from(Action::Print { what: 0, items });
    let session = Session::create(Geometry { definitions: 1, ..Geometry::of_host() });
    let mut messages = Messages::new(session.expect("memory"));
    let plan = plan(&program, &step);
    let installed = Installed::new(&program, &plan, 0, Some(messages.session()));
    let asked = std::thread::spawn(move || (victim.ask("say 2000000"), victim));
    let (mut number, mut last) = (0, None);
    while !asked.is_finished() {
        for message in messages.take(|_| Some(8)) {
            let [first, rest @ ..] = &message.words[..] else { panic!("{message:?}") };
            assert!(rest.iter().all(|word| word == first), "{message:?}");
            // The thread may change processors, whose buffers are read one after the other.
            last = last.max(Some(*first));
            number += 1;
        }
    }
    let (answer, _victim) = asked.join().expect("ended");
    number += messages.take(|_| Some(8)).len() as u64;
    remains::repair(&program).expect("taken out");
    drop(installed.expect("installed"));
    assert_eq!((answer.as_str(), number + messages.lost()), ("2000000", 2_000_000));
    assert!(number > 1000 && last < Some(2_000_000), "{number} {last:?}");
}

#[test]
fn keys_that_two_threads_store_at_the_same_place_at_once_are_both_there() {
    let mut victim = Victim::of(program());
    let program = victim.program();
    // The second and the third argument.
    let items = [6, 2].map(|register| Item::Value(Value::register(register)));
    let key = Some(Key::Tuple(items.as_slice().into()));
    let step = Step { when: Vec::new(), key, action: Action::Count { cell: 0 } };
    let plan = plan(&program, &step);
    let installed = Installed::new(&program, &plan, step.cells(), None).expect("installed");
    assert_eq!(victim.ask("pairs"), "2000");
    // Places have two words before the key; numbers are their offsets, plus one.
    let places = (0..1 << 13).map(|place| place * 32 + 1);
    let stored = places.filter_map(|number| installed.tuple(number).expect("read"));
    let stored: Vec<_> = stored.map(|words| (words[0], words[1])).collect();
    remains::repair(&program).expect("taken out");
    let keys: BTreeSet<_> = stored.iter().collect();
    assert_eq!((keys.len(), stored.len()), (2000, 2000));
    assert!(keys.iter().all(|(number, zero)| *number > 0 && *zero == 0));
}
