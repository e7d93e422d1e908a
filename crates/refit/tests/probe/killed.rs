//! Refit is killed at any of its steps: the watched program continues, and the remains are removed.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use refit_sys::launch;
use refit_sys::process::exists;
use refit_sys::trace::{self, Event, Options, Tracee};
use rustix::process::{Pid, Signal, kill_process};

use crate::shell::{refit, run, text, verified};

/// The watched program; killed on drop.
struct Victim {
    child: Child,
    answers: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Victim {
    /// Builds and starts the program with this source.
    fn start(source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("victim");
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/probe").join(source);
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
            .args([&path, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        let mut child = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the victim");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut victim = Self { child, answers, _folder: folder };
        assert_eq!(victim.line(), "begun");
        victim
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        assert!(!line.is_empty(), "it has ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    /// Lets it check that all its threads continue, and that all results are right.
    fn check(&mut self) {
        assert_eq!(self.ask(), "right");
    }

    /// Lets it check itself, and returns its answer.
    fn ask(&mut self) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe")).expect("it listens");
        self.line()
    }

    /// Sends it a signal, and waits until it gives this answer.
    fn signal(&mut self, signal: Signal, answer: &str) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).expect("it is there");
        while self.ask() != answer {}
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs refit up to its step with this number, at which it is killed: before a system call by which
/// it changes, stops or examines another process. Just before that, `last` is done. Returns the
/// number of its steps.
fn killed_at(arguments: &[&str], step: usize, last: impl Fn()) -> usize {
    let mut command = refit(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let options = Options::CLONE | Options::SYSTEM_CALL | Options::EXIT_KILL;
    let (mut child, held) = launch::at_exec(&mut command, options).expect("refit");
    let id = held.thread();
    held.resume_to_system_call(0).expect("it stands");
    held.leave();
    let mut steps = 0;
    while exists(id) {
        let Ok(Some((thread, event))) = trace::next(true) else { break };
        let held = Tracee::of(thread);
        let signal = match event {
            Event::Exited(_) | Event::Killed(_) if thread == id => break,
            Event::Exited(_) | Event::Killed(_) => {
                held.leave();
                continue;
            }
            Event::Signal(signal) => signal,
            Event::SystemCall => {
                if is_step(&held) {
                    steps += 1;
                    if steps == step {
                        last();
                        child.kill().expect("it is there");
                    }
                }
                0
            }
            _ => 0,
        };
        // A killed process cannot be resumed.
        let _ = held.resume_to_system_call(signal);
        held.leave();
    }
    // Its end may have been reported already.
    let _ = child.wait();
    steps
}

/// Returns whether a thread is about to make such a call.
fn is_step(held: &Tracee) -> bool {
    let steps = [
        libc::SYS_ptrace,
        libc::SYS_pwrite64,
        libc::SYS_waitid,
        libc::SYS_pidfd_getfd,
        libc::SYS_ftruncate,
    ];
    match held.system_call() {
        Ok(trace::SystemCall::Entry { number, .. }) => steps.contains(&number.cast_signed()),
        _ => false,
    }
}

/// Kills refit at each of its steps, every `apart`th of them, from `first` on; the remains are
/// removed each time.
fn kill_everywhere(probe: &str, first: usize, apart: usize) {
    let mut victim = Victim::start("killed.c");
    let id = victim.id();
    let arguments = ["probe", "-p", &id, "-e", probe, "--for", "5ms"];
    victim.check();
    let files = || std::fs::read_dir(format!("/proc/{id}/fd")).expect("its files").count();
    let before = files();
    let mut step = first;
    loop {
        let made = killed_at(&arguments, step, || {});
        victim.check();
        let repaired = run(&["repair", "-p", &id]);
        assert!(repaired.status.success(), "at step {step}: {}", text(&repaired.stderr));
        verified(&id);
        if made < step {
            // Refit ended before that step.
            assert!(step > 100, "{made}");
            break;
        }
        step += apart;
    }
    victim.check();
    assert_eq!(files(), before);
}

#[test]
fn whenever_refit_is_killed_the_program_goes_on() {
    kill_everywhere("uprobe:victim:* { count, latency }", 1, 5);
}

#[test]
fn whenever_refit_is_killed_the_program_goes_on_although_functions_are_copied() {
    kill_everywhere("uprobe:victim:* { count, histogram latency, poison }", 3, 7);
}

#[test]
fn threads_that_are_switched_out_in_a_call_of_a_killed_refit_go_on() {
    let mut victim = Victim::start("parked.c");
    let id = victim.id();
    let process = Pid::from_child(&victim.child);
    let probe = "uprobe:victim:work { count }";
    let arguments = ["probe", "-p", &id, "-e", probe, "--for", "5ms"];
    let repaired = |step: usize| {
        let repaired = run(&["repair", "-p", &id]);
        let told = text(&repaired.stderr);
        // The patch area stays if the context, or the remains of it on a stack, are in there.
        let kept = told.contains("the program has saved the context of a thread");
        assert!(repaired.status.success() || kept, "at step {step}: {told}");
        kept
    };
    for step in (1..).step_by(7) {
        // The thread that makes refit's calls is switched out wherever it is when refit is killed.
        let aside = || kill_process(process, Signal::USR1).expect("it is there");
        if killed_at(&arguments, step, aside) < step {
            assert!(step > 100, "{step}");
            break;
        }
        victim.signal(Signal::USR1, "aside");
        repaired(step);
        victim.signal(Signal::USR2, "right");
        if !repaired(step) {
            verified(&id);
        }
    }
}
