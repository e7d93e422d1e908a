//! Sites that come into a program in several stops begin to count at the same moment.

use refit_probe::reading::Reading;

use super::kept::watch;
use super::victim::{Victim, build};

#[test]
fn all_functions_are_counted_from_one_moment_on() {
    let built = build("cc", "probing/paged.c", &["-pthread"]);
    let mut victim = Victim::of(built.path());
    let traces = victim.traces();
    for _ in 0..5 {
        assert!(victim.ask("begin").parse::<u64>().expect("a number") >= 10);
        let watch = watch(&victim, "uprobe:victim:paged_* { count }");
        let rounds: u64 = victim.ask("end").parse().expect("a number");
        assert_eq!(watch.watched.len(), 1300);
        let mut counts: Vec<(u64, u64)> = watch
            .watched
            .iter()
            .map(|place| match watch.read(&place.actions[0]).expect("read").all {
                Reading::Count(count) => (place.address, count),
                other => panic!("{other:?}"),
            })
            .collect();
        counts.sort_unstable();
        // The thread was somewhere in its round: functions behind it are called once more.
        let (first, last) = (counts[0].1, counts[counts.len() - 1].1);
        assert!(counts.is_sorted_by_key(|(_, count)| *count), "{counts:x?}");
        assert!(last - first <= 1 && last <= rounds, "{first} {last} of {rounds}");
        watch.remove(&victim.program()).expect("removed");
    }
    assert_eq!(victim.traces(), traces);
}
