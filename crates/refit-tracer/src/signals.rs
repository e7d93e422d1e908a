//! Reports of the kernel on the signals of a thread.

use refit_sys::status::Status;
use refit_sys::trace::Tracee;

/// Returns whether a thread has a handler for a signal.
pub fn caught(task: u32, signal: i32) -> bool {
    is_among(task, signal, "SigCgt")
}

/// Returns whether a thread ignores a signal, by its own choice or by the signal's default action.
pub fn ignored(task: u32, signal: i32) -> bool {
    let by_nature = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT].contains(&signal);
    is_among(task, signal, "SigIgn") || by_nature && !caught(task, signal)
}

/// Returns whether a signal ends the process of a thread with a core dump (signal(7): Core).
pub fn dumps(task: u32, signal: i32) -> bool {
    const CORE: [i32; 10] = [
        libc::SIGQUIT,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGSYS,
    ];
    CORE.contains(&signal) && !caught(task, signal) && !is_among(task, signal, "SigIgn")
}

/// Returns whether a signal stops the process of a thread, unless the kernel finds that nobody
/// could continue it.
pub fn stops(task: u32, signal: i32) -> bool {
    let stop = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
    stop && !caught(task, signal) && !is_among(task, signal, "SigIgn")
}

/// Returns whether a signal is in one of the sets that the kernel reports of a thread.
fn is_among(task: u32, signal: i32, set: &str) -> bool {
    let mask = Status::of(task).ok().and_then(|status| status.set(set));
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Returns whether a signal will be delivered to a thread when it goes on.
pub fn are_pending(tracee: &Tracee) -> bool {
    // Usually there is none, and reading the text takes ten times as long.
    if tracee.has_signals().is_ok_and(|some| !some) {
        return false;
    }
    let Ok(status) = Status::of(tracee.thread()) else { return false };
    let set = |name| status.set(name).unwrap_or_default();
    (set("SigPnd") | set("ShdPnd")) & !set("SigBlk") != 0
}
