//! Calls that exceptions leave are counted where the function cleans up, and their times end there.

use super::kept::watch;
use super::victim::{Victim, build};
use refit_probe::reading::Reading;

#[test]
fn calls_that_exceptions_leave_are_counted_where_they_clean_up() {
    for options in [&["-O2"][..], &["-O2", "-fno-plt"]] {
        let built = build("c++", "probing/thrown.cc", options);
        let mut victim = Victim::of(built.path());
        let traces = victim.traces();
        let names = ["throws", "passed", "cleans", "catches", "again"];
        let mut probes = names.map(|name| format!("uprobe:victim:t_{name} {{ exits, latency }}"));
        for probe in &mut probes {
            probe.push('\n');
        }
        let jumps = "uretprobe:victim:t_jumps { latency }";
        let watch = watch(&victim, &(probes.concat() + jumps));
        assert_eq!(victim.ask("catches 100"), "50");
        assert_eq!(victim.ask("again 100"), "50");
        let read = |name: &str, at: usize| {
            let mut places = watch.watched.iter();
            let place = places.find(|place| place.name == format!("t_{name}")).expect("watched");
            watch.read(&place.actions[at]).expect("read").all
        };
        // Those that returned, jumped to another function, called one that never returns, and that
        // an exception left; those that went on for ever otherwise.
        for (name, wanted, left) in [
            ("throws", [100, 0, 100, 0], 100),
            ("passed", [100, 0, 0, 0], 100),
            ("cleans", [100, 0, 0, 100], 0),
            ("catches", [100, 0, 0, 0], 0),
            ("again", [50, 0, 0, 50], 0),
        ] {
            let Reading::Exits { calls, ways } = read(name, 0) else { panic!("{name}") };
            let all = if matches!(name, "catches" | "again") { 100 } else { 200 };
            assert_eq!((calls, ways), (all, wanted), "{name} {options:?}");
            let Reading::Latency { inside, .. } = read(name, 1) else { panic!("{name}") };
            assert_eq!(inside, left, "{name} {options:?}");
        }
        let Reading::Latency { ended, inside, .. } = read("jumps", 0) else { panic!("jumps") };
        assert_eq!((ended, inside), (100, 0), "{options:?}");
        watch.remove(&victim.program()).expect("removed");
        assert_eq!(victim.traces(), traces);
    }
}
