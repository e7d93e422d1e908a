//! A function that ends with a jump to another one returns where that one does.

use std::path::Path;
use std::sync::OnceLock;

use super::kept::watch;
use super::victim::{Built, Victim, build};
use refit_probe::reading::Reading;
use refit_probe::script::Script;
use refit_probe::watch::{self, Watch};

fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "probing/tails.c", &["-pthread", "-Wl,-z,lazy"])).path()
}

/// Returns the count or the sum in a map.
fn total(watch: &Watch, name: &str) -> i64 {
    let actions = watch.watched.iter().flat_map(|place| &place.actions);
    let named = actions.filter(|one| one.map.as_deref() == Some(name));
    let each = named.map(|one| match watch.read(one).expect("read").all {
        Reading::Count(count) => count.cast_signed(),
        Reading::Folded { result, .. } => result,
        other => panic!("{other:?}"),
    });
    each.sum()
}

/// The probe of the returns of a function.
fn returns(name: &str) -> String {
    format!("uretprobe:victim:t_{name} {{ @{name} = count(); @{name}_sum = sum(retval), poison }}")
}

/// Why the returns of a function cannot be probed.
fn refusal(victim: &Victim, name: &str) -> String {
    let script: Script = returns(name).parse().expect("understood");
    match watch::prepare(&victim.program(), &script.probes, None) {
        Err(error) => error.to_string(),
        Ok(prepared) => panic!("{:?}", prepared.watched),
    }
}

/// Sites at the exits of a function that another one jumps to can need a copy of it, although the
/// function itself is only counted.
#[test]
fn a_function_that_returns_for_another_one_is_counted_too() {
    let victim = Victim::of(program());
    let probes = "uprobe:victim:t_brief { count } uretprobe:victim:t_shortly { @ = sum(retval) }";
    let script: Script = probes.parse().expect("understood");
    let prepared = watch::prepare(&victim.program(), &script.probes, None).expect("prepared");
    assert_eq!(prepared.refused, []);
    assert!(prepared.lines().any(|line| line.contains("copy of the function")));
}

#[test]
fn each_return_is_seen_once_with_its_value() {
    let mut victim = Victim::of(program());
    let traces = victim.traces();
    for (name, threads) in [
        ("direct", 4),
        ("deep", 1),
        ("sometimes", 2),
        ("chain", 4),
        ("even", 1),
        ("odd", 2),
        ("fixed", 2),
    ] {
        let watch = watch(&victim, &returns(name));
        let sum: i64 = victim.ask(&format!("{name} 200 {threads}")).parse().expect("a sum");
        let seen = (total(&watch, name), total(&watch, &format!("{name}_sum")));
        assert_eq!(seen, (200 * threads, sum), "{name}");
        // Calls that begin elsewhere are not the function's.
        victim.ask("end 50");
        assert_eq!(total(&watch, name), seen.0, "{name}");
        watch.remove(&victim.program()).expect("removed");
        assert_eq!(victim.traces(), traces);
    }
}

#[test]
fn functions_that_end_in_the_same_one_and_in_each_other_are_told_apart() {
    let mut victim = Victim::of(program());
    let names = ["end", "direct", "deep", "sometimes", "chain", "even", "odd"];
    let script: Vec<_> = names.iter().map(|name| returns(name)).collect();
    let watch = watch(&victim, &script.join("\n"));
    let sums = ["direct", "chain", "even"].map(|name| {
        let sum: i64 = victim.ask(&format!("{name} 300 2")).parse().expect("a sum");
        sum
    });
    let counts = names.map(|name| total(&watch, name));
    // `chain` goes to `deep` with odd numbers, and so to `end`; and to `sometimes` with even ones.
    let sometimes_on = (0..300).filter(|n| n % 2 == 0 && n % 3 == 1).count() as i64;
    let ends = 600 + 2 * (150 + sometimes_on);
    assert_eq!(counts, [ends, 600, 300, 300, 600, 600, 598]);
    let seen = ["direct_sum", "chain_sum", "even_sum"].map(|name| total(&watch, name));
    assert_eq!(seen, sums);
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn a_function_that_is_jumped_back_to_returns_by_itself() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, &returns("even"));
    victim.ask("circle 100");
    assert_eq!((total(&watch, "even"), total(&watch, "even_sum")), (100, 700));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn frames_of_many_calls_at_once_are_told_apart() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, &returns("via"));
    let sum: i64 = victim.ask("via 500 4").parse().expect("a sum");
    // Each call of the program makes one for each smaller number.
    let each = |n: i64| (n + 1, n * (n + 1) / 2);
    let (calls, sums) = (0..500).map(each).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert_eq!(sum, 4 * (0..500).sum::<i64>());
    assert_eq!((total(&watch, "via"), total(&watch, "via_sum")), (4 * calls, 4 * sums));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn arguments_on_the_stack_stay_where_they_are() {
    let mut victim = Victim::of(program());
    let plain = victim.ask("eight 100");
    let watch = watch(&victim, &returns("many"));
    assert_eq!(victim.ask("eight 100"), plain);
    let sum: i64 = plain.parse().expect("a sum");
    assert_eq!((total(&watch, "many"), total(&watch, "many_sum")), (100, sum - 100));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn calls_that_are_left_by_longjmp_leave_nothing_behind() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, &returns("jumper"));
    victim.ask("leaping 400");
    let returned: Vec<i64> = (0..400).filter(|n| n & 4 != 0 && n & 1 == 0).collect();
    let seen = (total(&watch, "jumper"), total(&watch, "jumper_sum"));
    assert_eq!(seen, (returned.len() as i64, returned.iter().sum()));
    watch.remove(&victim.program()).expect("removed");
}

/// Returns the numbers of calls that have ended and that go on, and their time.
fn latency(watch: &Watch, name: &str) -> (u64, u64, u64) {
    let mut places = watch.watched.iter().filter(|place| place.name == name);
    let place = places.next().unwrap_or_else(|| panic!("{name} is watched"));
    match watch.read(&place.actions[0]).expect("read").all {
        Reading::Latency { ended, inside, nanos } => (ended, inside, nanos),
        other => panic!("{other:?}"),
    }
}

#[test]
fn times_last_until_the_other_function_returns_if_asked_for() {
    let mut victim = Victim::of(program());
    // `end` is timed within all calls that jump to it.
    for probe in
        ["uretprobe:victim:t_direct { latency", "uprobe:victim:t_direct { latency, sum retval"]
    {
        let probes = format!("uprobe:victim:t_end {{ latency }} {probe}, poison }}");
        let watch = watch(&victim, &probes);
        victim.ask("direct 300 2");
        let [whole, inner] = ["t_direct", "t_end"].map(|name| latency(&watch, name));
        assert_eq!(((whole.0, whole.1), (inner.0, inner.1)), ((600, 0), (600, 0)), "{probe}");
        assert!(whole.2 >= inner.2, "{probe}: {whole:?} {inner:?}");
        // Calls that begin elsewhere are not the function's.
        victim.ask("end 50");
        assert_eq!(latency(&watch, "t_direct"), whole, "{probe}");
        watch.remove(&victim.program()).expect("removed");
    }
    // Where it is not seen how a call goes on, its time ends.
    for name in ["partly", "further", "unknown"] {
        let watch = watch(&victim, &format!("uretprobe:victim:t_{name} {{ latency, poison }}"));
        victim.ask(&format!("{name} 100 2"));
        let (ended, inside, _) = latency(&watch, &format!("t_{name}"));
        assert_eq!((ended, inside), (200, 0), "{name}");
        watch.remove(&victim.program()).expect("removed");
    }
    let watch = watch(&victim, "uretprobe:victim:t_jumper { concurrency }");
    victim.ask("leaping 400");
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn returns_that_are_not_seen_are_counted_with_the_reason() {
    let mut victim = Victim::of(program());
    for name in ["partly", "further"] {
        let watch = watch(&victim, &returns(name));
        let sum: i64 = victim.ask(&format!("{name} 100 2")).parse().expect("a sum");
        // Every fourth call goes where only the program knows.
        let unknown: i64 = 2 * (0..100).step_by(4).map(|n| n * 2 + 1).sum::<i64>();
        let seen = (total(&watch, name), total(&watch, &format!("{name}_sum")));
        assert_eq!(seen, (150, sum - unknown), "{name}");
        let [place] = &watch.watched[..] else { panic!("{:?}", watch.watched) };
        assert_eq!(watch.unseen(place).expect("read"), 50, "{name}");
        let why = place.unseen.as_ref().map(|unseen| unseen.why.as_str());
        assert_eq!(why, Some("it ends with a jump to a function that only the program knows"));
        // Calls that begin elsewhere are not the function's.
        victim.ask("partly 8");
        let others = if name == "partly" { 2 } else { 0 };
        assert_eq!(watch.unseen(place).expect("read"), 50 + others, "{name}");
        assert_eq!(watch.unmarked().expect("read"), 0);
        watch.remove(&victim.program()).expect("removed");
    }
}

#[test]
fn jumps_to_other_files_are_followed_once_it_is_known_where_they_lead() {
    let mut victim = Victim::of(program());
    for name in ["number", "length"] {
        let why = refusal(&victim, name);
        assert!(why.contains("which the program had not called before (tail call)"), "{why}");
        victim.ask(&format!("{name} 1"));
        let watch = watch(&victim, &returns(name));
        let sum: i64 = victim.ask(&format!("{name} 100 2")).parse().expect("a sum");
        let seen = (total(&watch, name), total(&watch, &format!("{name}_sum")));
        assert_eq!(seen, (200, sum), "{name}");
        watch.remove(&victim.program()).expect("removed");
    }
    let why = refusal(&victim, "unknown");
    assert!(why.contains("a jump to a function that only the program knows (tail call)"), "{why}");
}

#[test]
fn the_ways_in_which_calls_end_are_counted() {
    let mut victim = Victim::of(program());
    let traces = victim.traces();
    let functions = ["sometimes", "jumper", "leap", "leaping", "direct"];
    let script = functions.map(|name| format!("uprobe:victim:t_{name} {{ exits, poison }}"));
    let watch = watch(&victim, &script.join("\n"));
    for command in ["sometimes 300 2", "leaping 400", "direct 10"] {
        victim.ask(command);
    }
    let each = watch.watched.iter().map(|place| {
        let reading = watch.read(&place.actions[0]).expect("read").all;
        let Reading::Exits { calls, ways } = reading else { panic!("{reading:?}") };
        (calls, ways)
    });
    let each: Vec<_> = each.collect();
    assert_eq!(
        each,
        [
            (600, [400, 200, 0, 0]),
            (200, [0, 200, 0, 0]),
            // Those with odd numbers end in `longjmp`.
            (400, [200, 0, 200, 0]),
            // It is where `longjmp` arrives.
            (400, [400, 0, 0, 0]),
            (10, [0, 10, 0, 0]),
        ]
    );
    watch.remove(&victim.program()).expect("removed");
    assert_eq!(victim.traces(), traces);
}
