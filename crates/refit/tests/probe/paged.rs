//! Sites that come into a program in several stops, and are taken out in several.

use std::io::Read;
use std::process::Stdio;

use crate::killed::{kill_each, kill_everywhere};
use crate::probes::objects;
use crate::shell::{interrupt, refit, text, verified, watching};
use crate::victim::Victim;

const PROBE: &str = "uprobe:victim:paged_* { count }";

#[test]
fn all_functions_are_counted_from_one_moment_on() {
    let mut victim = Victim::start("paged.c");
    let id = victim.id();
    victim.check();
    let mut command = refit(&["probe", "-p", &id, "-e", PROBE, "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refit");
    let _told = watching(&mut child);
    victim.check();
    let rounds: u64 = victim.tell("end").parse().expect("a number");
    interrupt(&child);
    let mut counts = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut counts).expect("the counts");
    assert!(child.wait().expect("it ends").success());
    let mut counts: Vec<(u64, u64)> = objects(&counts)
        .iter()
        .map(|one| ["address", "count"].map(|key| one[key].as_u64().expect("a number")).into())
        .collect();
    assert_eq!(counts.len(), 1300);
    counts.sort_unstable();
    // Each thread was somewhere in its round: functions behind it are called once more.
    let (first, last) = (counts[0].1, counts[counts.len() - 1].1);
    assert!(counts.is_sorted_by_key(|(_, count)| *count), "{counts:x?}");
    assert!(first > 0 && last - first <= 2 && last <= rounds, "{first} {last} of {rounds}");
    verified(&id);
}

#[test]
fn whenever_refit_is_killed_between_stops_the_program_goes_on() {
    kill_everywhere(&mut Victim::start("paged.c"), PROBE, "5ms", 1, 31);
}

#[test]
fn many_sites_are_taken_out_in_several_stops() {
    let mut victim = Victim::start("paged.c");
    let id = victim.id();
    victim.check();
    let mut command = refit(&["probe", "-p", &id, "-e", PROBE]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("refit");
    let _told = watching(&mut child);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let mut repair = refit(&["repair", "-p", &id]);
    let repaired = repair.env("REFIT_LOG", "refit_splice=debug").output().expect("it runs");
    let told = text(&repaired.stderr);
    assert!(repaired.status.success(), "{told}");
    // Those of three times 384 pages, before the stop for the rest.
    assert_eq!(told.matches("restored before the last stop").count(), 3, "{told}");
    assert!(text(&repaired.stdout).contains("300 sites removed"), "{}", text(&repaired.stdout));
    victim.check();
    verified(&id);
}

#[test]
fn whenever_refit_is_killed_while_it_takes_sites_out_the_program_goes_on() {
    let mut victim = Victim::start("paged.c");
    let id = victim.id();
    kill_each(&mut victim, &["cover", "-p", &id, "--for", "5ms"], 1, 31, false);
}
