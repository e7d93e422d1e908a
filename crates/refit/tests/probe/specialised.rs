//! `refit specialize` on a program that checks what its functions compute.

use serde_json::Value;

use crate::shell::{restored, run, text, verified};
use crate::victim::Victim;

#[test]
fn a_function_gets_versions_for_its_hot_values_and_is_taken_back() {
    let mut victim = Victim::start("specialised.c");
    let id = victim.id();
    let specialize = |more: &[&str]| run(&[&["specialize", "-p", &id], more].concat());
    let rehearsed = specialize(&["power(arg1)", "--for", "100ms", "--dry-run"]);
    let told = text(&rehearsed.stdout);
    assert!(told.contains("version for 0xd: "), "{told}{}", text(&rehearsed.stderr));
    assert!(told.ends_with("nothing changed\n"), "{told}");
    verified(&id);
    let kept = specialize(&["power(arg1)", "--for", "100ms", "--unproved", "--json"]);
    let kept: Value = serde_json::from_slice(&kept.stdout).expect("an object");
    assert_eq!(kept["verdict"], "unproved");
    let version = &kept["versions"][0];
    assert_eq!(version["value"], 13);
    // Each round of the loop has two branches.
    assert!(version["branches"].as_u64() >= Some(8), "{version}");
    victim.check();
    let again = specialize(&["power(arg1=13)", "--unproved"]);
    assert!(text(&again.stderr).contains("has versions already"), "{}", text(&again.stderr));
    let other = specialize(&["mixed(arg1=7)", "--unproved"]);
    assert!(text(&other.stdout).ends_with("kept, unproved\n"), "{}", text(&other.stderr));
    victim.check();
    let undone = specialize(&["--undo"]);
    let told = text(&undone.stdout);
    assert!(told.starts_with("undone: 2 functions restored"), "{told}{}", text(&undone.stderr));
    victim.check();
    restored(&id);
    let nothing = text(&specialize(&["--undo"]).stdout);
    assert!(nothing.contains("no function") || nothing.contains("0 functions"), "{nothing}");
}

/// Versions come and go a hundred times while threads are in them.
#[test]
fn threads_compute_the_same_while_versions_come_and_go() {
    let mut victim = Victim::start("specialised.c");
    let id = victim.id();
    for round in 0..12 {
        let target = ["power(arg1=13)", "mixed(arg1=7)", "mixed(arg1=120)"][round % 3];
        let kept = run(&["specialize", "-p", &id, target, "--unproved"]);
        assert!(kept.status.success(), "{target}: {}", text(&kept.stderr));
        victim.check();
        let undone = run(&["specialize", "-p", &id, "--undo"]);
        assert!(text(&undone.stdout).contains("1 function restored"), "{}", text(&undone.stderr));
        victim.check();
    }
    restored(&id);
}

#[test]
fn versions_are_measured_and_kept_or_undone() {
    let mut victim = Victim::start("specialised.c");
    let id = victim.id();
    let progress = ["--progress", "uprobe:victim:mixed", "--for", "100ms", "--slot", "120ms"];
    let proved = run(&[&["specialize", "-p", &id, "power(arg1)"], &progress[..]].concat());
    let told = text(&proved.stdout);
    let failed = text(&proved.stderr);
    assert!(told.contains("measured: ") && told.contains(" rounds"), "{told}{failed}");
    let kept = told.contains("\nkept: ");
    assert!(kept || told.contains("\nundone, "), "{told}{failed}");
    victim.check();
    let undone = text(&run(&["specialize", "-p", &id, "--undo"]).stdout);
    assert_eq!(undone.contains("1 function restored"), kept, "{undone}");
    victim.check();
    restored(&id);
}

#[test]
fn what_is_asked_for_wrongly_is_told() {
    let victim = Victim::start("specialised.c");
    let id = victim.id();
    for (arguments, wanted) in [
        (&["power"][..], "is not of the form"),
        (&["power(arg9)"], "no argument in a register"),
        (&["power(arg1=many)"], "no number"),
        (&["nosuchfunction(arg0)"], "nosuchfunction"),
        (&["even(arg1)", "--for", "100ms"], "no value is frequent enough"),
        (&["power(arg1)", "--progress", "uprobe:"], "name a place"),
        (&["main(arg0)", "--for", "50ms"], "was not called"),
    ] {
        let told = run(&[&["specialize", "-p", &id], arguments].concat());
        assert!(!told.status.success(), "{arguments:?}");
        assert!(text(&told.stderr).contains(wanted), "{arguments:?}: {}", text(&told.stderr));
        verified(&id);
    }
    assert!(!run(&["specialize", "-p", &id]).status.success());
    assert!(!run(&["specialize", "-p", "999999999", "f(arg0)"]).status.success());
}
