//! `refit optimize` on programs that have something to gain, or nothing.

use std::fs;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::shell::{Shell, refit, restored, run, text, verified, watching};
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

/// The thread's call was continued in a slot, which returns to a copy, and which it has left.
#[test]
fn copies_that_a_continued_call_has_returned_to_are_unmapped() {
    let mut victim = Victim::start("polls.c");
    let id = victim.id();
    let optimize = ["optimize", "-p", &id, "--file", "libc.so", "--for", "100ms", "--unproved"];
    let kept = run(&optimize);
    assert!(text(&kept.stdout).ends_with("kept, unproved\n"), "{}", text(&kept.stderr));
    victim.tell("wait");
    victim.until_a_thread_waits_in(libc::SYS_poll);
    let probed = run(&["probe", "-p", &id, "-e", "uprobe:victim:polls { count }", "--for", "1ms"]);
    assert!(probed.status.success(), "{}", text(&probed.stderr));
    victim.tell("wake");
    let repaired = run(&["repair", "-p", &id]);
    assert!(repaired.status.success(), "{}", text(&repaired.stderr));
    verified(&id);
    victim.check();
}

#[test]
fn functions_that_are_probed_meanwhile_stay_where_they_are() {
    let mut victim = Victim::start("killed.c");
    let id = victim.id();
    let mut probe = refit(&["probe", "-p", &id, "-e", "uprobe:libc.so.6:mprotect { count }"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let told = watching(&mut probe);
    let optimize = ["optimize", "-p", &id, "--file", "libc.so", "--for", "400ms", "--unproved"];
    let kept = run(&optimize);
    let (steps, errors) = (text(&kept.stdout), text(&kept.stderr));
    assert!(steps.ends_with("kept, unproved\n"), "{steps}{errors}");
    assert!(
        // The probed one, and the one by which unwinders learn of the probe.
        [&steps, &errors].iter().any(|said| said.contains("2 functions left out")),
        "{steps}{errors}"
    );
    victim.check();
    kill_process(Pid::from_child(&probe), Signal::INT).expect("it is there");
    assert!(probe.wait().expect("its end").success());
    drop(told);
    victim.check();
    assert!(run(&["optimize", "-p", &id, "--undo"]).status.success());
    victim.check();
    restored(&id);
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

/// Runs refit with profiles and a journal of its own, without instances.
fn alone(state: &tempfile::TempDir, arguments: &[&str]) -> Command {
    let mut command = refit(arguments);
    command.env("XDG_STATE_HOME", state.path()).env("REFIT_RUNTIME_DIR", state.path().join("run"));
    command
}

#[test]
fn a_profile_is_stored_summed_and_used_and_changes_are_in_the_journal() {
    let state = tempfile::tempdir().expect("a folder");
    let mut victim = Victim::start("killed.c");
    let id = victim.id();
    let file = ["-p", &id, "--file", "libc.so", "--for", "400ms"];
    let optimize = |more: &[&str]| {
        let arguments = [&["optimize"], &file[..], more].concat();
        alone(&state, &arguments).output().expect("refit")
    };
    let none = optimize(&["--from-profile", "--unproved"]);
    assert!(!none.status.success());
    assert!(text(&none.stderr).contains("no profile of libc.so"), "{}", text(&none.stderr));
    for stored in ["the first of this binary", "the sum of 2 profiles"] {
        let counted = text(&optimize(&["--dry-run"]).stdout);
        assert!(counted.contains(stored), "{counted}");
    }
    assert_eq!(fs::read_dir(state.path().join("refit/profiles")).expect("a folder").count(), 1);
    victim.check();
    let svg = state.path().join("lines.svg");
    let draw = ["--svg", svg.to_str().expect("UTF-8")];
    let used = optimize(&[&["--from-profile", "--unproved"], &draw[..]].concat());
    let told = text(&used.stdout);
    assert!(told.starts_with("the sum of 2 profiles: "), "{told}{}", text(&used.stderr));
    assert!(!told.contains("counted for") && told.ends_with("kept, from the profile\n"), "{told}");
    victim.check();
    let drawn = fs::read_to_string(&svg).expect("drawn");
    assert!(drawn.contains("as linked") && drawn.matches("class=\"c").count() > 20, "{drawn}");
    let undone = alone(&state, &["optimize", "-p", &id, "--undo"]).output().expect("refit");
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    victim.check();
    restored(&id);
    let changes = alone(&state, &["changes", "--json"]).output().expect("refit");
    let changes: Vec<serde_json::Value> = text(&changes.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let of = |number: usize| &changes[number]["change"];
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(changes[0]["effect"], "from the profile");
    assert_eq!((&of(0)["mechanism"], &of(0)["to"]), (&"splice".into(), &"laid out anew".into()));
    assert_eq!((&of(1)["from"], &of(1)["to"]), (&of(0)["to"], &of(0)["from"]));
    assert_eq!(of(1)["target"], format!("process {id} (victim)"));
    assert!(changes[0]["instance"].is_null());
}

#[test]
fn a_command_runs_laid_out_from_its_profile_or_as_it_was_linked() {
    let state = tempfile::tempdir().expect("a folder");
    let script = "n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done; echo $n; exit 3";
    let launched = |how: &[&str]| -> Output {
        let arguments = [&["optimize"], how, &["--", "/bin/bash", "-c", script]].concat();
        alone(&state, &arguments).output().expect("refit")
    };
    let plain = launched(&["--run"]);
    assert_eq!((plain.status.code(), &*text(&plain.stdout)), (Some(3), "200000\n"));
    assert!(text(&plain.stderr).contains("it runs as it was linked"), "{}", text(&plain.stderr));
    let endless = "while :; do n=$((n + 1)); done";
    let mut loops = Command::new("/bin/bash").args(["-c", endless]).spawn().expect("a shell");
    let id = loops.id().to_string();
    let profile = ["optimize", "-p", &id, "--dry-run", "--for", "400ms"];
    let profiled = alone(&state, &profile).output().expect("refit");
    let _ = loops.kill();
    let _ = loops.wait();
    assert!(profiled.status.success(), "{}", text(&profiled.stderr));
    let laid_out = launched(&["--run"]);
    assert_eq!((laid_out.status.code(), &*text(&laid_out.stdout)), (Some(3), "200000\n"));
    let told = text(&laid_out.stderr);
    assert!(told.contains("kept, from the profile"), "{told}");
}
