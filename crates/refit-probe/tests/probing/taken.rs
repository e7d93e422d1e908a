//! Maps that are cleared while a program counts: nothing is lost, and nothing is there twice.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use super::kept::{program, watch};
use super::victim::Victim;
use refit_probe::reading::{Counts, Reading};
use refit_probe::steps::Watching;
use refit_probe::watch::Watch;

/// Number of threads that count. The number of an interval, and so of the last one, can be one off
/// for each.
const THREADS: u64 = 2;

/// The numbers of values, and the sums or extremes, by key.
#[derive(Default)]
struct Intervals {
    values: BTreeMap<u64, u64>,
    results: BTreeMap<u64, Vec<i64>>,
    /// Number of times at which there was something.
    filled: usize,
}

impl Intervals {
    fn add(&mut self, Counts { keys, all, .. }: Counts) {
        let keys: Vec<_> = keys.into_iter().chain([(u64::MAX, all)]).collect();
        let before = self.results.values().map(Vec::len).sum::<usize>();
        for (key, reading) in keys {
            let (values, result) = match reading {
                Reading::Kept(number) => (u64::from(number != 0), number),
                Reading::Folded { values, result } => (values, result),
                _ => continue,
            };
            if values > 0 {
                self.values.entry(key).or_default().add_assign(values);
                self.results.entry(key).or_default().push(result);
            }
        }
        let after = self.results.values().map(Vec::len).sum::<usize>();
        self.filled += usize::from(after > before);
    }

    fn sum(&self, key: u64) -> i64 {
        self.results.get(&key).into_iter().flatten().sum()
    }
}

fn action<'w>(watch: &'w Watch, name: &str) -> &'w Watching {
    let mut actions = watch.watched.iter().flat_map(|place| &place.actions);
    actions.find(|one| one.map.as_deref() == Some(name)).expect("the map")
}

/// Takes the maps again and again while the program obeys a command. Also returns its answer.
fn take_during<const N: usize>(
    victim: &mut Victim,
    watch: &Watch,
    command: &str,
    maps: [&str; N],
) -> ([Intervals; N], i64) {
    let actions = maps.map(|name| action(watch, name));
    let mut taken = maps.map(|_| Intervals::default());
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| victim.ask(command));
        while !asked.is_finished() {
            for (taken, action) in taken.iter_mut().zip(actions) {
                taken.add(watch.take(action).expect("taken"));
            }
            // The program may have the same processor.
            std::thread::sleep(if N > 1 { Duration::from_micros(200) } else { Duration::ZERO });
        }
        asked.join().expect("an answer")
    });
    for (taken, action) in taken.iter_mut().zip(actions) {
        taken.add(watch.take(action).expect("taken"));
        assert!(watch.take(action).expect("taken").keys.values().all(Reading::is_zero));
    }
    (taken, answer.parse().expect("a number"))
}

#[test]
fn numbers_that_are_added_while_others_are_taken_are_in_one_interval_each() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        "uprobe:victim:t_put { @sum[arg0] += arg1; @by[comm, arg0]++; @calls++; @zero[arg0] = arg1 % 2 }",
    );
    let maps = ["sum", "calls", "by", "zero"];
    let ([sum, calls, by, _], number) = take_during(&mut victim, &watch, "add 400000", maps);
    for key in 0..7 {
        let wanted: i64 = (0..400_000).filter(|number| number % 7 == key).sum();
        assert_eq!(sum.sum(key.cast_unsigned()), 2 * wanted, "{key}");
    }
    assert_eq!(calls.sum(u64::MAX), number);
    assert_eq!(by.results.values().flatten().sum::<i64>(), number);
    assert!(calls.filled > 5, "{}", calls.filled);
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn extremes_are_those_of_their_intervals_and_numbers_add_up() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        "uprobe:victim:t_put /arg0 < 7/ { @all = max(arg1); @least = min(arg1 + 5); @parts[arg1 >> 12] = max(arg1);
            @first[arg1 >> 12, 1] = min(arg1) }",
    );
    let maps = ["all", "least", "parts", "first"];
    let ([all, least, parts, first], number) = take_during(&mut victim, &watch, "add 400000", maps);
    let handled = number - 800_000;
    for taken in [&all, &least, &parts, &first] {
        let values = taken.values.values().sum::<u64>();
        assert!(values.abs_diff(800_000) <= THREADS, "{values}, {handled} in handlers");
        assert!(taken.filled > 5, "{}", taken.filled);
    }
    let results = |taken: &Intervals| taken.results.get(&u64::MAX).cloned().unwrap_or_default();
    assert_eq!(results(&all).into_iter().max(), Some(399_999));
    assert_eq!(results(&least).into_iter().min(), Some(5));
    // Each part is counted in a short time, which an interval may divide.
    for (key, results) in &parts.results {
        let (begin, end) = (key << 12, ((key + 1) << 12).min(400_000));
        let range = begin.cast_signed()..end.cast_signed();
        assert_eq!(results.iter().max(), Some(&(range.end - 1)), "{key}");
        assert!(results.iter().all(|result| range.contains(result)), "{key}: {results:?}");
    }
    let firsts = first.results.values().map(|results| results.iter().min().copied());
    let mut firsts: Vec<_> = firsts.flatten().collect();
    firsts.sort_unstable();
    let wanted: Vec<i64> = (0..400_000).step_by(4096).collect();
    assert_eq!((firsts, parts.results.len()), (wanted, 98));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn no_value_is_lost_while_extremes_are_taken_all_the_time() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, "uprobe:victim:t_put /arg0 < 7/ { @all = max(arg1) }");
    let ([all], _) = take_during(&mut victim, &watch, "add 2000000", ["all"]);
    let values = all.values[&u64::MAX];
    assert!(values.abs_diff(4_000_000) <= THREADS, "{values}");
    assert_eq!(all.results[&u64::MAX].iter().max(), Some(&1_999_999));
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn a_value_that_is_stored_is_taken_once() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, "uprobe:victim:t_put { @x[arg0] = arg1 + 1 }");
    let ([taken], _) = take_during(&mut victim, &watch, "keys 40000 0", ["x"]);
    // Each key is stored once, with its number.
    assert!(taken.results.values().all(|results| results.len() == 1));
    assert!(taken.results.len() > 3000, "{}", taken.results.len());
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn counts_are_read_alike_together_and_one_by_one() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        "uprobe:victim:t_* { count, histogram arg0, sum arg1, @m = max(arg1), @k[arg0] = count(), exits }",
    );
    victim.ask("add 3000");
    victim.ask("pair 5 7");
    let mut reader = watch.reader();
    for watching in watch.watched.iter().flat_map(|place| &place.actions) {
        let both = (reader.read(watching).expect("read"), watch.read(watching).expect("read"));
        assert_eq!(both.0, both.1, "{}", watching.what);
    }
    watch.remove(&victim.program()).expect("removed");
}
