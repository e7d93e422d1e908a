//! Probes of programs that an instance of refit follows, and lends.

use std::process::Command;

use crate::killed::kill_everywhere;
use crate::shell::{run, text, verified};
use crate::victim::Victim;

/// The ways in which an instance follows a program: only so, with a filter, and with its memory
/// limited, so that pages are evicted.
const WAYS: [&[&str]; 3] =
    [&["run", "--"], &["run", "--movable", "--"], &["run", "--memory", "1M", "--"]];

fn files(id: &str) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).expect("its files").count()
}

fn code(id: &str) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).expect("its mappings");
    maps.lines().filter(|line| line.contains(" r-x")).map(str::to_owned).collect()
}

/// Returns the number of refit's agents in the memory of a process.
fn agents(id: &str) -> usize {
    let id: u32 = id.parse().expect("a number");
    let all = refit_sys::process::all().filter(|&one| {
        refit_sys::process::name(one) == refit_sys::agent::TASK_NAME
            && refit_sys::process::same_memory(one, id).unwrap_or(false)
    });
    all.count()
}

/// Removes what refit has left in a program, as it says to: on a busy host, each of its stops may
/// have been in a signal handler.
fn repaired(id: &str) {
    let gone = (0..100).any(|_| {
        let repaired = run(&["repair", "-p", id]);
        text(&repaired.stdout).trim() == "nothing of refit is in the process"
    });
    assert!(gone, "what refit has left stays");
}

#[test]
fn a_program_that_an_instance_follows_can_be_probed() {
    for way in WAYS {
        let mut victim = Victim::start_under("killed.c", way);
        let id = victim.id();
        victim.check();
        // The instance begins to serve memory while the program runs.
        let served = usize::from(way.contains(&"--memory"));
        let begun = (0..1000).any(|_| {
            victim.check();
            agents(&id) == served
        });
        assert!(begun, "{way:?}");
        let before = (files(&id), code(&id), served);
        for probe in [
            "uprobe:victim:work { count, latency }",
            "uprobe:victim:work { @[ustack] = count() }",
            "uprobe:victim:touch { @[str(arg0), comm] = count() }",
            "uprobe:victim:* { count, histogram latency, poison }",
            "uretprobe:victim:work /retval > 0/ { @ = count(); printf(\"%d\\n\", retval) }",
        ] {
            let probed = run(&["probe", "-p", &id, "--for", "50ms", "-e", probe]);
            let said = text(&probed.stderr);
            assert!(probed.status.success(), "{way:?} {probe}: {said}");
            assert!(!probed.stdout.is_empty(), "{way:?} {probe}: {said}");
            victim.check();
            eprintln!("{way:?} {probe}: {said}");
            if said.contains(" left mapped, which no code enters") {
                repaired(&id);
            }
            verified(&id);
        }
        assert_eq!((files(&id), code(&id), agents(&id)), before, "{way:?}");
        let repaired = run(&["repair", "-p", &id]);
        assert_eq!(text(&repaired.stdout).trim(), "nothing of refit is in the process");
    }
}

#[test]
fn whenever_refit_is_killed_a_program_that_it_borrows_goes_on() {
    let mut victim = Victim::start_under("killed.c", WAYS[0]);
    kill_everywhere(&mut victim, "uprobe:victim:* { count, latency }", "5ms", 1, 9);
}

#[test]
fn a_program_that_another_program_traces_is_refused() {
    let mut victim = Victim::start("killed.c");
    let id = victim.id();
    let mut tracer = Command::new("strace");
    tracer.args(["-f", "-p", &id, "-e", "trace=none", "-o", "/dev/null"]);
    let Ok(mut tracer) = tracer.stderr(std::process::Stdio::null()).spawn() else {
        eprintln!("skipped: there is no strace");
        return;
    };
    let traced = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        !status.contains("TracerPid:\t0")
    };
    while !traced() {
        std::thread::yield_now();
    }
    let refused = run(&["probe", "-p", &id, "--for", "1ms", "-e", "uprobe:victim:work { count }"]);
    let said = text(&refused.stderr);
    tracer.kill().expect("it is ours");
    tracer.wait().expect("its end");
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("is traced by process"), "{said}");
    victim.check();
}
