//! What the kernel tells of the signals of a thread.

use refit_sys::status::Status;
use refit_sys::trace::Tracee;

/// Whether a thread has a handler for a signal.
pub fn caught(task: u32, signal: i32) -> bool {
    is_among(task, signal, "SigCgt")
}

/// Whether a thread ignores a signal, by its choice or by the signal's nature.
pub fn ignored(task: u32, signal: i32) -> bool {
    let by_nature = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT].contains(&signal);
    is_among(task, signal, "SigIgn") || by_nature && !caught(task, signal)
}

/// Whether a signal ends the process of a thread with an image of its memory (signal(7): Core).
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

/// Whether a signal stops the process of a thread, unless the kernel finds that nobody could continue it.
pub fn stops(task: u32, signal: i32) -> bool {
    let stop = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
    stop && !caught(task, signal) && !is_among(task, signal, "SigIgn")
}

/// Whether a signal is in one of the sets that the kernel tells of a thread.
fn is_among(task: u32, signal: i32, set: &str) -> bool {
    let mask = Status::of(task).ok().and_then(|status| status.set(set));
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Whether a thread is about to be given signals when it goes on.
pub fn are_pending(held: &Tracee) -> bool {
    // As a rule there are none, and to read the text takes ten times as long.
    if held.has_signals().is_ok_and(|some| !some) {
        return false;
    }
    let Ok(status) = Status::of(held.thread()) else { return false };
    let set = |name| status.set(name).unwrap_or_default();
    (set("SigPnd") | set("ShdPnd")) & !set("SigBlk") != 0
}
