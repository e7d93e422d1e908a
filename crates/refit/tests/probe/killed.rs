//! Refit is killed at any of its steps: the watched program continues, and the remains are removed.

use std::process::Stdio;

use refit_sys::launch;
use refit_sys::process::exists;
use refit_sys::trace::{self, Event, Options, Tracee};
use rustix::process::{Pid, Signal, kill_process};

use crate::shell::{refit, restored, run, text, verified};
use crate::victim::Victim;

/// Runs refit up to its step with this number, at which it is killed: before a system call by which
/// it changes, stops or examines another process. Just before that, `last` is done. Returns the
/// number of its steps.
pub(crate) fn killed_at(arguments: &[&str], step: usize, last: impl Fn()) -> usize {
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
        // By these, refit asks the tracer of a program that it borrows.
        libc::SYS_sendto,
        libc::SYS_write,
        libc::SYS_writev,
    ];
    match held.system_call() {
        Ok(trace::SystemCall::Entry { number, .. }) => steps.contains(&number.cast_signed()),
        _ => false,
    }
}

/// Kills refit at each of its steps, every `apart`th of them, from `first` on, where it watches
/// for this time; the remains are removed each time.
pub(crate) fn kill_everywhere(
    victim: &mut Victim,
    probe: &str,
    time: &str,
    first: usize,
    apart: usize,
) {
    let id = victim.id();
    kill_each(victim, &["probe", "-p", &id, "-e", probe, "--for", time], first, apart, false);
}

/// Kills refit with these arguments at each of its steps, as [`kill_everywhere`] does. Memory of
/// the remains may stay mapped if `stays`, but not because it is in use.
pub(crate) fn kill_each(
    victim: &mut Victim,
    arguments: &[&str],
    first: usize,
    apart: usize,
    stays: bool,
) {
    let id = victim.id();
    victim.check();
    let files = || std::fs::read_dir(format!("/proc/{id}/fd")).expect("its files").count();
    let before = files();
    let mut step = first;
    loop {
        let made = killed_at(arguments, step, || {});
        victim.check();
        let repair = || run(&["repair", "-p", &id]);
        let (mut repaired, mut again) = (repair(), 0);
        // On a busy machine, the handler of the timer may run at each of the stops.
        while !stays
            && again < 5
            && text(&repaired.stderr).contains("handler was running each time")
        {
            (repaired, again) = (repair(), again + 1);
        }
        let told = text(&repaired.stderr);
        let left = stays && told.contains("left mapped") && !told.contains("is executing it");
        let clean = repaired.status.success() || left;
        assert!(clean, "at step {step}: {told}");
        if stays {
            restored(&id)
        } else {
            verified(&id)
        }
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
    let probe = "uprobe:victim:* { count, latency }";
    kill_everywhere(&mut Victim::start("killed.c"), probe, "5ms", 1, 5);
}

#[test]
fn whenever_refit_is_killed_the_program_goes_on_although_functions_are_copied() {
    let probe = "uprobe:victim:* { count, histogram latency, poison }";
    kill_everywhere(&mut Victim::start("killed.c"), probe, "5ms", 3, 7);
}

/// Handlers leave addresses of the copies on stacks of threads that have ended.
#[test]
fn whenever_refit_is_killed_the_program_goes_on_although_its_calls_are_made_by_copies() {
    let mut victim = Victim::start("killed.c");
    let id = victim.id();
    let optimize = ["optimize", "-p", &id, "--file", "libc.so", "--for", "80ms", "--unproved"];
    kill_each(&mut victim, &optimize, 7, 173, true);
}

/// A killed refit leaves versions, or a part of them.
#[test]
fn whenever_refit_is_killed_the_program_goes_on_although_functions_have_versions() {
    let mut victim = Victim::start("specialised.c");
    let id = victim.id();
    let specialize = ["specialize", "-p", &id, "power(arg1)", "--for", "20ms", "--unproved"];
    kill_each(&mut victim, &specialize, 5, 31, true);
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
