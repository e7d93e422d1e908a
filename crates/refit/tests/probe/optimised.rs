//! `refit optimize` on programs that have something to gain, or nothing.

use crate::shell::{Shell, restored, run, text, verified};
use crate::victim::Victim;

#[test]
fn a_program_is_optimised_probed_and_taken_back() {
    let mut victim = Victim::start("killed.c");
    let id = victim.id();
    let optimize = |more: &[&str]| run(&[&["optimize", "-p", &id], more].concat());
    assert_eq!(text(&optimize(&["--status"]).stdout), "not optimised\n");
    let small = optimize(&[]);
    assert!(!small.status.success());
    assert!(text(&small.stderr).contains("nothing to gain"), "{}", text(&small.stderr));
    let file = ["--file", "libc.so", "--for", "400ms"];
    let rehearsed = optimize(&[&file[..], &["--dry-run"]].concat());
    assert!(text(&rehearsed.stdout).ends_with("nothing changed\n"), "{}", text(&rehearsed.stderr));
    verified(&id);
    let kept = optimize(&[&file[..], &["--unproved"]].concat());
    assert!(text(&kept.stdout).ends_with("kept, unproved\n"), "{}", text(&kept.stderr));
    victim.check();
    assert!(text(&optimize(&["--status"]).stdout).starts_with("optimised: control enters "));
    assert!(text(&optimize(&file).stderr).contains("optimised already"));
    // Probes come and go while the copies stay.
    let probed = run(&["probe", "-p", &id, "-e", "uprobe:victim:work { count }", "--for", "20ms"]);
    assert!(probed.status.success(), "{}", text(&probed.stderr));
    let status = optimize(&["--status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("an object");
    assert_eq!(status["optimised"], true);
    victim.check();
    let undone = optimize(&["--undo"]);
    assert!(text(&undone.stdout).starts_with("undone: "), "{}", text(&undone.stderr));
    victim.check();
    restored(&id);
    assert_eq!(text(&optimize(&["--status"]).stdout), "not optimised\n");
}

#[test]
fn what_is_asked_for_wrongly_is_told() {
    let shell = Shell::start();
    let id = shell.id();
    for (arguments, wanted) in [
        (&["--file", "nosuchlib"][..], "runs no file nosuchlib"),
        (&["--progress", "uprobe:"], "name a place"),
        (&["--for", "100ms"], "put load on it"),
    ] {
        let told = run(&[&["optimize", "-p", &id], arguments].concat());
        assert!(!told.status.success(), "{arguments:?}");
        assert!(text(&told.stderr).contains(wanted), "{arguments:?}: {}", text(&told.stderr));
        verified(&id);
    }
    assert!(!run(&["optimize", "-p", "999999999"]).status.success());
}
