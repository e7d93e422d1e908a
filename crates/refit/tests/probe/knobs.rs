//! `refit knob`: constants of a running program are found, set, saved, and restored.

use std::path::Path;

use serde_json::Value;

use crate::killed::killed_at;
use crate::shell::{Shell, refit, run, text, verified};
use crate::victim::Victim;

fn knob(id: &str, arguments: &[&str]) -> std::process::Output {
    run(&[&["knob", "-p", id], arguments].concat())
}

/// Returns the knobs of a function.
fn listed(id: &str, function: &str) -> Vec<Value> {
    let listed = knob(id, &["list", "--all", "--json", "--func", function]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let lines = text(&listed.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// Returns the name of the knob of a function that has this number.
fn name(id: &str, function: &str, number: i64) -> String {
    let all = listed(id, function);
    let found = all.iter().find(|knob| knob["original"] == number);
    let found = found.unwrap_or_else(|| panic!("{function}: {all:?}"));
    found["name"].as_str().expect("a text").to_owned()
}

fn refused(id: &str, arguments: &[&str], wanted: &str) {
    let told = knob(id, arguments);
    assert!(!told.status.success(), "{arguments:?}");
    assert!(text(&told.stderr).contains(wanted), "{arguments:?}: {}", text(&told.stderr));
}

#[test]
fn a_knob_is_listed_set_again_and_restored() {
    let mut victim = Victim::start("knobs.c");
    let id = victim.id();
    let spins = name(&id, "spins", 300);
    assert!(spins.ends_with(":spin"), "{spins}");
    // It comes first, whatever else the program has.
    let table = text(&knob(&id, &["list"]).stdout);
    let first = table.lines().nth(1).expect("a knob");
    assert!(first.contains(&spins) && first.contains("spin: at most 300 rounds"), "{table}");
    assert_eq!(victim.tell("?"), "300");
    for number in ["1000", "7", "0x100"] {
        let set = knob(&id, &["set", &spins, number]);
        assert!(set.status.success(), "{}", text(&set.stderr));
        let number = if number == "0x100" { "256" } else { number };
        assert!(text(&set.stdout).contains(&format!("→ {number}")), "{}", text(&set.stdout));
        assert_eq!(victim.tell("?"), number);
        let now = &listed(&id, "spins")[0]["value"];
        assert_eq!(now.to_string(), number);
    }
    let shown = text(&knob(&id, &["get", &spins]).stdout);
    assert!(shown.starts_with(&format!("{spins}: 256 (0x100); 300 in the file")), "{shown}");
    assert!(text(&knob(&id, &["list", "--set"]).stdout).contains("00 01 00 00"));
    // Its comparison, or the first instruction of the loop, is executed meanwhile.
    let small = name(&id, "small", 50);
    let seen = text(&knob(&id, &["get", &small, "--for", "50ms"]).stdout);
    assert!(seen.contains("executed: 0 times in 50"), "{seen}");
    // A counter at the entry would displace the number, so there is none.
    let listed = knob(&id, &["list", "--for", "50ms"]);
    assert!(listed.status.success() && text(&listed.stdout).contains(&spins));
    let told = text(&listed.stderr);
    assert!(told.contains("of 1 function with other code than the file are not counted"), "{told}");
    let unset = knob(&id, &["unset", &spins]);
    assert_eq!(text(&unset.stdout), format!("{spins}: 300\n"), "{}", text(&unset.stderr));
    assert_eq!(victim.tell("?"), "300");
    verified(&id);
    let hot = text(&knob(&id, &["list", "--for", "300ms"]).stdout);
    let first = hot.lines().nth(1).expect("a knob");
    assert!(first.contains(&spins) && !hot.contains("limited+"), "{hot}");
    // All of them are restored at once, and by a repair.
    let limited = name(&id, "limited", 5000);
    for last in [&["knob", "-p", &id, "unset", "--all"][..], &["repair", "-p", &id]] {
        assert!(knob(&id, &["set", &spins, "20"]).status.success());
        assert!(knob(&id, &["set", &limited, "6000"]).status.success());
        assert_eq!([victim.tell("?"), victim.tell("l 5500")], ["20", "-1"]);
        assert!(run(last).status.success());
        assert_eq!([victim.tell("?"), victim.tell("l 5500")], ["300", "1"]);
        verified(&id);
    }
    assert_eq!(text(&knob(&id, &["list", "--set"]).stdout), "no knob is set\n");
}

#[test]
fn what_cannot_be_set_is_told() {
    let mut victim = Victim::start("knobs.c");
    let id = victim.id();
    let stores = name(&id, "stores", 77777);
    refused(&id, &["set", &stores, "1", "--unchecked"], "it is stored in memory");
    let bounded = name(&id, "bounded", 119);
    refused(&id, &["set", &bounded, "125"], "check of bounds");
    assert!(knob(&id, &["set", &bounded, "100", "--unchecked"]).status.success());
    assert_eq!(victim.tell("b 110"), "-2");
    assert!(knob(&id, &["unset", &bounded]).status.success());
    let small = name(&id, "small", 50);
    refused(&id, &["set", &small, "5000"], "it takes -128 to 127");
    let spins = name(&id, "spins", 300);
    refused(&id, &["set", &spins, "0"], "would not end");
    refused(&id, &["set", "spinning+0x1", "5"], "no function spinning");
    refused(&id, &["set", "spins+0xfff", "5"], &spins);
    refused(&id, &["set", "spins", "5"], "is not the name of a knob");
    refused(&id, &["set", &spins, "many"], "give a number");
    refused(&id, &["get", &spins, "--file", "nosuchlib"], "runs no file nosuchlib");
    refused("999999999", &["list"], "no process");
    assert_eq!(victim.tell("?"), "300");
    verified(&id);
}

#[test]
fn probes_and_knobs_do_not_get_into_each_others_way() {
    let mut victim = Victim::start("knobs.c");
    let id = victim.id();
    let spins = name(&id, "spins", 300);
    let limited = name(&id, "limited", 5000);
    assert!(knob(&id, &["set", &limited, "6000"]).status.success());
    // Elsewhere, and at the entry of the same function, where the number is not displaced.
    for place in ["spins", "main"] {
        let probe = format!("uprobe:victim:{place} {{ count }}");
        let probed = run(&["probe", "-p", &id, "-e", &probe, "--for", "20ms"]);
        assert!(probed.status.success(), "{}", text(&probed.stderr));
    }
    // A function that is copied as a whole would run with the number of the file.
    let probe = "uprobe:victim:limited { count, poison }";
    let probed = run(&["probe", "-p", &id, "-e", probe, "--for", "20ms"]);
    let told = text(&probed.stderr);
    assert!(probed.status.success() || told.contains("unset it first"), "{told}");
    assert_eq!(victim.tell("l 5500"), "-1");
    assert!(knob(&id, &["unset", &limited]).status.success());
    // The opposite: an instruction that runs in a copy.
    let place = spins.strip_suffix(":spin").expect("a use");
    let probe = format!("insn:victim:{place} {{ count }}");
    let mut watching = refit(&["probe", "-p", &id, "-e", &probe])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("refit");
    let _told = crate::shell::watching(&mut watching);
    refused(&id, &["set", &spins, "20"], "take");
    crate::shell::interrupt(&watching);
    assert!(watching.wait().expect("it ends").success());
    assert!(knob(&id, &["set", &spins, "20"]).status.success());
    assert_eq!(victim.tell("?"), "20");
    assert!(run(&["repair", "-p", &id]).status.success());
    verified(&id);
}

/// Refit is killed at each of its steps while it sets a knob: the program has the old number or the
/// new one, and goes on.
#[test]
fn whenever_refit_is_killed_a_number_is_the_old_or_the_new_one() {
    let mut victim = Victim::start("knobs.c");
    let id = victim.id();
    let spins = name(&id, "spins", 300);
    let (mut old, mut new) = (0, 0);
    for step in (1..).step_by(3) {
        let made = killed_at(&["knob", "-p", &id, "set", &spins, "1000"], step, || {});
        match victim.tell("?").as_str() {
            "300" => old += 1,
            "1000" => new += 1,
            other => panic!("{other} at step {step}"),
        }
        let repaired = run(&["repair", "-p", &id]);
        assert!(repaired.status.success(), "at step {step}: {}", text(&repaired.stderr));
        assert_eq!(victim.tell("?"), "300");
        verified(&id);
        if made < step {
            break;
        }
    }
    assert!(old > 5 && new > 0, "{old} {new}");
    // The same while it replaces another setting, and while that is undone.
    for arguments in [&["set", &spins, "1000"][..], &["unset", &spins]] {
        for step in (1..).step_by(7) {
            assert!(knob(&id, &["set", &spins, "50"]).status.success());
            let all = [&["knob", "-p", &id], arguments].concat();
            let made = killed_at(&all, step, || {});
            let now = victim.tell("?");
            assert!(["50", "300", "1000"].contains(&now.as_str()), "{now} at step {step}");
            assert!(run(&["repair", "-p", &id]).status.success());
            assert_eq!(victim.tell("?"), "300");
            verified(&id);
            if made < step {
                break;
            }
        }
    }
}

#[test]
fn saved_knobs_are_applied_by_build_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_in = |arguments: &[&str]| {
        let mut command = refit(arguments);
        command.env("XDG_STATE_HOME", folder.path()).output().expect("refit")
    };
    let saved = folder.path().join("refit/knobs.json");
    let victim = Victim::start("knobs.c");
    let id = victim.id();
    let spins = name(&id, "spins", 300);
    let none = run_in(&["knob", "-p", &id, "apply"]);
    assert_eq!(text(&none.stdout), "no knob was saved for its files\n");
    let set = run_in(&["knob", "-p", &id, "set", &spins, "40", "--save"]);
    assert!(set.status.success() && Path::new(&saved).exists(), "{}", text(&set.stderr));
    // Another process of the same build, whose file is another one.
    let mut other = Victim::start("knobs.c");
    assert_eq!(other.tell("?"), "300");
    let applied = run_in(&["knob", "-p", &other.id(), "apply"]);
    let told = text(&applied.stdout);
    assert!(told.contains(&format!("{spins}: 300 → 40")), "{told}{}", text(&applied.stderr));
    assert_eq!(other.tell("?"), "40");
    // A program without the file.
    let shell = Shell::start();
    let applied = run_in(&["knob", "-p", &shell.id(), "apply"]);
    assert_eq!(text(&applied.stdout), "no knob was saved for its files\n");
    let unset = run_in(&["knob", "-p", &id, "unset", &spins, "--forget"]);
    assert!(unset.status.success(), "{}", text(&unset.stderr));
    assert_eq!(std::fs::read_to_string(&saved).expect("a file").trim(), "[]");
    std::fs::write(&saved, "[{").expect("written");
    let damaged = run_in(&["knob", "-p", &id, "apply"]);
    assert!(text(&damaged.stderr).contains("not a list of settings"), "{}", text(&damaged.stderr));
    verified(&id);
}
