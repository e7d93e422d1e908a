//! Formulas are computed as C computes them, and kept values are those that were stored last.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use super::victim::{Built, Victim, build};
use refit_probe::datum::Datum;
use refit_probe::reading::{Counts, Reading};
use refit_probe::script::Script;
use refit_probe::watch::{self, Watch};
use refit_splice::{Operator, Relation};

pub(super) fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "probing/kept.c", &["-pthread"])).path()
}

pub(super) fn watch(victim: &Victim, script: &str) -> Watch {
    let program = victim.program();
    let script: Script = script.parse().unwrap_or_else(|what| panic!("{what}"));
    let prepared = watch::prepare(&program, &script.probes, None).expect("prepared");
    assert!(prepared.refused.is_empty(), "{:?}", prepared.refused);
    prepared.install(&program).expect("installed")
}

/// The texts of all messages since the last call.
pub(super) fn texts(watch: &Watch) -> Vec<String> {
    watch.printed().expect("read").into_iter().map(|one| one.text).collect()
}

/// Reads a map: its numbers by the parts of their keys, and how many were lost.
fn map(watch: &Watch, name: &str) -> (BTreeMap<Vec<Datum>, i64>, u64) {
    let actions =
        watch.watched.iter().flat_map(|place| place.actions.iter().map(move |one| (place, one)));
    let mut named = actions.filter(|(_, one)| one.map.as_deref() == Some(name));
    let (place, watching) = named.next().expect("the map");
    let Counts { keys, all, lost } = watch.read(watching).expect("read");
    let number = |reading: &Reading| match reading {
        Reading::Kept(number) => *number,
        other => panic!("{other:?}"),
    };
    let each = keys.iter().map(|(key, reading)| {
        let key = watch.key(place, watching, *key).expect("read").expect("complete");
        (key, number(reading))
    });
    let mut numbers: BTreeMap<_, _> = each.collect();
    if watching.by.is_empty() {
        numbers.insert(Vec::new(), number(&all));
    }
    (numbers, lost)
}

/// The number of a map without keys.
fn single(watch: &Watch, name: &str) -> i64 {
    map(watch, name).0[&Vec::new()]
}

#[test]
fn operators_have_the_results_of_c() {
    let operators = [
        ("|", Operator::Or),
        ("^", Operator::Xor),
        ("&", Operator::And),
        ("<<", Operator::Left),
        (">>", Operator::Right),
        ("+", Operator::Add),
        ("-", Operator::Subtract),
        ("*", Operator::Multiply),
        ("/", Operator::Divide),
        ("%", Operator::Remainder),
        ("==", Operator::Compare(Relation::Equal)),
        ("!=", Operator::Compare(Relation::Unequal)),
        ("<", Operator::Compare(Relation::Less)),
        ("<=", Operator::Compare(Relation::AtMost)),
        (">", Operator::Compare(Relation::More)),
        (">=", Operator::Compare(Relation::AtLeast)),
        ("&&", Operator::Both),
        ("||", Operator::Either),
    ];
    let assigned: Vec<_> = operators
        .iter()
        .enumerate()
        .map(|(index, (sign, _))| format!("$r{index} = arg0 {sign} arg1;"))
        .collect();
    let printed: Vec<_> = (0..operators.len()).map(|index| format!("$r{index}")).collect();
    let conversions = vec!["%d"; operators.len()].join(" ");
    let probe = format!(
        "uprobe:victim:t_pair {{ {} printf(\"{conversions}\", {}), poison }}",
        assigned.join(" "),
        printed.join(", ")
    );
    let mut victim = Victim::of(program());
    let watch = watch(&victim, &probe);
    let numbers = [0, 1, -1, 2, 3, -7, 63, 64, 4711, i64::MAX, i64::MIN, 1 << 32, -(1 << 32)];
    for left in numbers {
        for right in numbers {
            victim.ask(&format!("pair {left} {right}"));
            let wanted = operators.map(|(_, operator)| {
                operator
                    .apply(left.cast_unsigned(), right.cast_unsigned())
                    .cast_signed()
                    .to_string()
            });
            assert_eq!(texts(&watch), [wanted.join(" ")], "{left} {right}");
        }
    }
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn nested_formulas_choices_and_variables_are_computed_in_order() {
    let mut victim = Victim::of(program());
    let traces = victim.traces();
    let watch = watch(
        &victim,
        r#"
uprobe:victim:t_pair {
    $sum = arg0 + arg1 * (arg0 - (arg1 << 2)) - ~arg0;
    $sum += !arg1;
    $sign = arg0 < 0 ? -1 : arg0 > 0 ? 1 : 0;
    if ($sum > 100 && arg1) {
        $most = 100;
        @more++;
    } else if ($sum < 0) {
        $least = $sum;
        @less += -$sum;
    } else { @rest--; }
    @[$sign, "all"] = count();
    printf("%d %d %d %d", $sum, $sign, $most, $least);
}"#,
    );
    let mut wanted = Vec::new();
    let (mut more, mut less, mut rest) = (0, 0, 0);
    for (left, right) in [(3_i64, 4_i64), (100, 1), (-5, 0), (0, 0), (1, 0), (-100, 2)] {
        victim.ask(&format!("pair {left} {right}"));
        let sum = left + right * (left - (right << 2)) - !left + i64::from(right == 0);
        let (mut most, mut least) = (0, 0);
        match sum {
            _ if sum > 100 && right != 0 => (most, more) = (100, more + 1),
            _ if sum < 0 => (least, less) = (sum, less - sum),
            _ => rest -= 1,
        }
        wanted.push(format!("{sum} {} {most} {least}", left.signum()));
    }
    assert_eq!(texts(&watch), wanted);
    assert_eq!(["more", "less", "rest"].map(|name| single(&watch, name)), [more, less, rest]);
    watch.remove(&victim.program()).expect("removed");
    assert_eq!(victim.traces(), traces);
    assert!(more > 0 && less > 0 && rest < 0);
}

#[test]
fn what_cannot_be_read_is_computed_only_if_it_is_needed() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        r#"
uprobe:victim:t_read { $there = *arg0; printf("%d there %d", arg1, $there + 1); }
uprobe:victim:t_read { printf("%d choice %d", arg1, arg0 ? *arg0 : 7); }
uprobe:victim:t_read { $kept = 1; if (arg1 > 1) { $kept = *arg0 } printf("%d kept %d", arg1, $kept); }
uprobe:victim:t_read /arg0 && *arg0 == 4711/ { printf("%d condition", arg1) }
uprobe:victim:t_read /!(arg0 == 0 || *arg0 != 4711)/ { printf("%d negated", arg1) }"#,
    );
    assert_eq!(victim.ask("read"), "4");
    assert_eq!(
        texts(&watch),
        [
            "1 there 4712",
            "1 choice 4711",
            "1 kept 1",
            "1 condition",
            "1 negated",
            "3 choice 7",
            "0 choice 7",
            "0 kept 1",
        ]
    );
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn texts_are_compared_as_a_whole() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        r#"
uprobe:victim:t_text /str(arg0) == "GET /" && comm == "victim"/ { @same[str(arg0)] = count() }
uprobe:victim:t_text /str(arg0) != "GET /"/ { @other[str(arg0)] = count() }
uprobe:victim:t_text /comm == "victi" || comm == "victim2" || str(arg0) == ""/ { @empty = count() }"#,
    );
    victim.ask("text 1");
    let actions = &watch.watched[0].actions;
    let counts = |index: usize| {
        let counts = watch.read(&actions[index]).expect("read");
        let keys = counts.keys.keys().map(|key| {
            let data = watch.key(&watch.watched[0], &actions[index], *key).expect("read");
            data.expect("complete")[0].clone()
        });
        (keys.collect::<Vec<_>>(), counts.all)
    };
    let text = |text: &str| Datum::Text(text.to_owned());
    assert_eq!(counts(0).0, [text("GET /")]);
    let mut others = counts(1).0;
    others.sort();
    let wanted = ["", "(bad address 0x1)", "GET ", "GET /index.html"].map(text);
    assert_eq!(others, wanted);
    assert_eq!(counts(2).1, Reading::Count(1));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn times_are_subtracted_and_deleted() {
    let mut victim = Victim::of(program());
    let before = refit_sys::clock::monotonic();
    let watch = watch(
        &victim,
        r#"
uprobe:victim:t_nap { @start[tid] = nsecs; @asked[tid, comm] = arg0; }
uretprobe:victim:t_nap /@start[tid]/ {
    $took = nsecs - @start[tid];
    @spread = hist($took / 1000);
    printf("%d %d %d", @start[tid], $took, @asked[tid, comm]);
    delete(@start[tid]);
    delete(@asked, (tid, comm));
}"#,
    );
    for micros in [1, 2000, 30_000] {
        victim.ask(&format!("nap {micros}"));
        let printed = texts(&watch);
        let numbers: Vec<u64> =
            printed[0].split(' ').map(|number| number.parse().expect("a number")).collect();
        let [start, took, asked] = numbers[..] else { panic!("{printed:?}") };
        assert_eq!((printed.len(), asked), (1, micros));
        assert!(took >= micros * 999 && took < 60_000_000_000, "{took} of {micros}");
        // The clocks run apart by less than a second in these moments.
        let now = refit_sys::clock::monotonic();
        assert!(start + 1_000_000_000 > before && start < now + 1_000_000_000, "{start}");
    }
    assert_eq!(map(&watch, "start"), (BTreeMap::new(), 0));
    assert_eq!(map(&watch, "asked"), (BTreeMap::new(), 0));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn numbers_are_added_exactly_in_threads_and_handlers() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        "uprobe:victim:t_put { @sum[arg0] += arg1; @by[comm, arg0]++; @calls++; @last = arg1 }",
    );
    let calls: i64 = victim.ask("add 70000").parse().expect("a number");
    let ((sums, lost), (by, _)) = (map(&watch, "sum"), map(&watch, "by"));
    assert_eq!((single(&watch, "calls"), lost), (calls, 0));
    assert_eq!(by.values().sum::<i64>(), calls);
    // Handlers have the number of their signal as a key, and add 1.
    let handled = calls - 140_000;
    for key in 0..7_u64 {
        let sum: i64 = (0..70_000).filter(|number| number % 7 == key.cast_signed()).sum();
        assert_eq!(sums[&vec![Datum::Number(key)]], 2 * sum, "{key}");
    }
    assert_eq!(sums.get(&vec![Datum::Number(14)]).copied().unwrap_or(0), handled);
    assert!(handled > 0 && sums.len() == 8, "{sums:?}");
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn deleted_keys_make_room_and_others_are_counted_as_lost() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, "uprobe:victim:t_put { @x[arg0] = arg1 }");
    victim.ask("keys 40000 1");
    assert_eq!(map(&watch, "x"), (BTreeMap::new(), 0));
    // The only key that no entry can have.
    victim.ask("put -1 5");
    assert_eq!(map(&watch, "x"), (BTreeMap::new(), 1));
    victim.ask("keys 20000 0");
    let (numbers, lost) = map(&watch, "x");
    assert_eq!(numbers.len() as u64 + lost, 20_001);
    assert!(numbers.len() > 3000 && lost > 1, "{}", numbers.len());
    let is_own = |(key, number): (&Vec<Datum>, &i64)| {
        key[..] == [Datum::Number(((number - 1) << 4).cast_unsigned())]
    };
    assert!(numbers.iter().all(is_own));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn keys_of_several_threads_in_the_same_entries_have_their_own_numbers() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        "uprobe:victim:t_put { @x[arg0] = arg1 }
         uprobe:victim:t_get { @wrong += @x[arg0] != arg1; @right += @x[arg0] == arg1 }",
    );
    assert_eq!(victim.ask("own 0"), "1040000");
    assert_eq!((single(&watch, "wrong"), single(&watch, "right")), (0, 800_000));
    assert_eq!(map(&watch, "x"), (BTreeMap::new(), 0));
    // A thread that is preempted while it replaces a key makes others lose theirs.
    assert_eq!(victim.ask("own 1"), "1040000");
    let (numbers, lost) = map(&watch, "x");
    let wrong = single(&watch, "wrong").cast_unsigned();
    assert_eq!((numbers.len(), wrong), (0, lost));
    assert!(lost < 24_000, "{lost}");
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn a_new_key_that_two_threads_store_at_once_is_there_once() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        "uprobe:victim:t_put { @x[arg0] += arg1 }
         uprobe:victim:t_nap { delete(@x[arg0]) }
         uprobe:victim:t_get { @wrong += @x[arg0] != arg1; @right += @x[arg0] == arg1 }",
    );
    victim.ask("same");
    let (numbers, lost) = map(&watch, "x");
    let [wrong, right] = ["wrong", "right"].map(|name| single(&watch, name).cast_unsigned());
    assert_eq!(wrong + right, 20_000);
    // Both need the same lock, whose holder can be preempted.
    assert!(wrong <= lost && lost < 4000, "{wrong} {lost}");
    // The keys that keep their entries.
    assert_eq!(numbers.len(), 11, "{numbers:?}");
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn a_key_of_several_threads_has_one_number() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, "uprobe:victim:t_put { @x[arg0] = arg1 }");
    assert_eq!(victim.ask("shared"), "400000");
    let (numbers, lost) = map(&watch, "x");
    // The last store of each thread was 0.
    assert_eq!((numbers, lost), (BTreeMap::new(), 0));
    watch.remove(&victim.program()).expect("removed");
}
