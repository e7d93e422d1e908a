//! Processes and threads: whether they still exist ([`life`] and [`exists`], which never wait,
//! allocate nothing, and are safe in signal handlers), their threads, the resources that they use,
//! and whether two share their memory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use crate::status::Status;
use crate::text;

/// The state of a process or thread, from `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The letter of its state: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, …
    pub state: u8,
    /// Its start time in clock ticks since the host booted, which distinguishes it from a later one
    /// with the same number.
    pub began: u64,
}

impl Life {
    /// Returns whether it will never run again, though its number is still taken.
    pub fn ended(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Returns whether it is stopped (`SIGSTOP`, a debugger).
    pub fn stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// Returns the state of the process or thread with this number, or `None` if there is none.
pub fn life(id: u32) -> Option<Life> {
    let mut path = [0; 24];
    let text = stat_path(id, &mut path);
    let mut buffer = [0; 1024];
    let length = read(text, &mut buffer)?;
    parse(&buffer[..length])
}

/// The resources that a process uses, from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The letter of its state ([`Life::state`]).
    pub state: u8,
    /// The parent's number; 0 if the parent is outside of this PID namespace.
    pub parent: u32,
    /// The number of threads, which includes the first one until all have ended.
    pub threads: u64,
    /// The processor time of all its threads so far.
    pub cpu: Duration,
    /// The resident memory, in bytes. The kernel counts it in batches, so it can lag behind by
    /// some pages for each thread.
    pub resident: u64,
}

/// Returns the resources that a process uses, or `None` if there is no such process.
pub fn usage(process: u32) -> Option<Usage> {
    parse_usage(&text::read(format!("/proc/{process}/stat")).ok()?)
}

/// Returns the arguments that a process was started with, without empty ones; none if it has ended,
/// has overwritten them, or is a thread of the kernel.
pub fn arguments(process: u32) -> Vec<OsString> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Returns the process that a task belongs to and that process's parent, or `None` if the task has
/// ended.
pub fn process_and_parent(task: u32) -> Option<(u32, u32)> {
    let status = Status::of(task).ok()?;
    Some((status.number("Tgid")?, status.number("PPid")?))
}

/// Returns whether there is a process with this number, ended or not. A later process may have the
/// number.
pub fn exists(id: u32) -> bool {
    // Negative numbers would denote process groups.
    let number = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    let result = number.map(rustix::process::test_kill_process);
    result.is_some_and(|result| result != Err(rustix::io::Errno::SRCH))
}

/// Returns the processes of the host that this one can see; none where there is no `/proc`.
pub fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the threads of a process; none if there is no such process.
///
/// A single listing by the kernel can lack threads that exist: if the thread at which it continues
/// has ended, the kernel starts over by counting, and skips some threads, or stops
/// (`proc_task_readdir` in `fs/proc/base.c`). So this function takes two listings and, between
/// them, reads the number of threads, which the kernel counts under the lock under which threads
/// come and go. A thread in both listings existed at that moment; if there are as many of these as
/// the number says, they were all. If threads come and go without pause, the function returns all
/// that it has seen.
pub fn threads(process: u32) -> Vec<u32> {
    const TIMES: usize = 100;
    let mut seen = BTreeSet::new();
    let mut before = listed(process);
    for _ in 0..TIMES {
        let Some(count) = counted(process) else { return Vec::new() };
        let now = listed(process);
        if now == before && now.len() == count {
            return now;
        }
        seen.extend(now.iter().copied());
        before = now;
    }
    seen.into_iter().collect()
}

/// Returns the number of threads of a process, which includes the first one until all have ended;
/// `None` if there is no such process.
fn counted(process: u32) -> Option<usize> {
    let stat = text::read(format!("/proc/{process}/stat")).ok()?;
    fields(&stat)?.nth(fields::THREADS).and_then(number).filter(|count| *count > 0)
}

fn listed(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns a thread of a process that has not ended, preferably the first. `None`: all have ended,
/// or there is no such process.
///
/// A process continues when its first thread has ended. The kernel then shows that thread as a
/// zombie, without memory or files of its own.
pub fn living(process: u32) -> Option<u32> {
    let lives = |thread: &u32| life(*thread).is_some_and(|life| !life.ended());
    if lives(&process) {
        return Some(process);
    }
    threads(process).into_iter().find(lives)
}

/// Returns whether each thread of a process has stopped or ended. `SIGSTOP` stops the threads one
/// by one, as each handles the signal.
pub fn stands(process: u32) -> bool {
    let stands = |thread: u32| life(thread).is_none_or(|life| life.stopped() || life.ended());
    threads(process).into_iter().all(stands)
}

/// Returns whether a thread's system calls are filtered (seccomp(2)); false for one that has ended.
pub fn is_filtered(thread: u32) -> bool {
    let mode = Status::of(thread).ok().and_then(|status| status.number("Seccomp"));
    mode.is_some_and(|mode| mode != 0)
}

/// The place where a thread waits in the kernel, and returns to in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The system call that it waits in; `None`: it waits for a page.
    pub call: Option<i64>,
    /// Its program counter.
    pub counter: u64,
    /// Its stack pointer.
    pub stack: u64,
}

/// Returns where a thread waits; `None`: it is running or runnable, or has ended. The caller needs
/// the right to trace it.
pub fn waits(thread: u32) -> Option<Waits> {
    let line = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (first, last) = (words.first()?, words.split_at_checked(words.len().checked_sub(2)?)?.1);
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let call = first.parse::<i64>().ok()?;
    Some(Waits {
        call: (call >= 0).then_some(call),
        stack: number(last[0])?,
        counter: number(last[1])?,
    })
}

/// The activity of a thread at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The thread was running or runnable, in a system call or not.
    Running,
    /// The thread waited in this system call.
    Call(i64),
    /// The thread waited elsewhere: for a page, or because it was stopped.
    Waiting,
    /// The thread is a kernel thread that works for the process (`io_uring`).
    Kernels,
}

/// Returns the activities of a process's threads (`/proc/PID/task/TID/syscall`, which needs the
/// right to trace it). A thread that cannot be read counts as running, unless it has ended.
pub fn doing(process: u32) -> Vec<Doing> {
    let text = |thread: u32, what: &str| {
        std::fs::read_to_string(format!("/proc/{process}/task/{thread}/{what}"))
    };
    let doing = |thread: u32| {
        if text(thread, "comm").is_ok_and(|name| name.starts_with("iou-")) {
            return Some(Doing::Kernels);
        }
        match text(thread, "syscall") {
            Ok(line) => match line.split_ascii_whitespace().next().map(str::parse) {
                Some(Ok(-1)) => Some(Doing::Waiting),
                Some(Ok(number)) => Some(Doing::Call(number)),
                _ => Some(Doing::Running),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            Err(_) => Some(Doing::Running),
        }
    };
    threads(process).into_iter().filter_map(doing).collect()
}

/// Returns whether two processes or threads share their memory (kcmp(2)).
///
/// # Errors
/// `ESRCH`: one has ended. `EPERM`: the caller may not trace both. `ENOSYS`: the kernel lacks the
/// call (`CONFIG_KCMP`).
pub fn same_memory(a: u32, b: u32) -> io::Result<bool> {
    /// From the kernel's `linux/kcmp.h`.
    const KCMP_VM: i32 = 1;
    // SAFETY: numbers only. The last two name descriptors, and are ignored for this comparison.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // Any other result is an order of the two.
        compared => Ok(compared == 0),
    }
}

/// Returns whether a process may write files of any size (`RLIMIT_FSIZE`); otherwise a write may
/// raise `SIGXFSZ`.
///
/// # Errors
/// `ESRCH`: the process has ended. `EPERM`: it belongs to another user.
pub fn writes_without_limit(process: u32) -> io::Result<bool> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null();
    let process = process.cast_signed();
    // SAFETY: the kernel writes the limit to `limit`, which outlives the call, and sets none.
    match unsafe { libc::prlimit64(process, libc::RLIMIT_FSIZE, none, &raw mut limit) } {
        0 => Ok(limit.rlim_cur == libc::RLIM64_INFINITY),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Formats `/proc/ID/stat` with a terminating zero.
fn stat_path(id: u32, path: &mut [u8; 24]) -> &[u8] {
    use std::io::Write;
    let mut rest = &mut path[..];
    // Even the longest number leaves room for everything.
    let _ = write!(rest, "/proc/{id}/stat\0");
    let left = rest.len();
    &path[..24 - left]
}

fn read(path: &[u8], buffer: &mut [u8]) -> Option<usize> {
    use rustix::fs::{Mode, OFlags};
    let path = std::ffi::CStr::from_bytes_with_nul(path).ok()?;
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    rustix::io::read(&fd, buffer).ok()
}

/// Indices of fields after the name (proc_pid_stat(5)).
mod fields {
    pub(super) const PARENT: usize = 1;
    pub(super) const USER_TIME: usize = 11;
    pub(super) const SYSTEM_TIME: usize = 12;
    pub(super) const THREADS: usize = 17;
    pub(super) const BEGAN: usize = 19;
    pub(super) const RESIDENT: usize = 21;
}

/// Returns the fields after the name, the state first. The name, in parentheses, can contain
/// anything.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(stat.get(name_end + 2..)?.split(|byte| *byte == b' '))
}

fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn parse(stat: &[u8]) -> Option<Life> {
    let mut fields = fields(stat)?;
    let state = *fields.next()?.first()?;
    let began = number(fields.nth(fields::BEGAN - 1)?)?;
    Some(Life { state, began })
}

fn parse_usage(stat: &[u8]) -> Option<Usage> {
    let fields: Vec<&[u8]> = fields(stat)?.collect();
    let count = |index: usize| fields.get(index).copied().and_then(number::<u64>);
    let ticks = count(fields::USER_TIME)? + count(fields::SYSTEM_TIME)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Usage {
        state: *fields.first()?.first()?,
        parent: number(fields.get(fields::PARENT)?)?,
        threads: count(fields::THREADS)?,
        cpu: Duration::from_secs_f64(ticks as f64 / per_second as f64),
        resident: count(fields::RESIDENT)? * rustix::param::page_size() as u64,
    })
}

/// Returns the kernel's name of a process; empty if it has ended.
pub fn name(process: u32) -> String {
    let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Returns the number of a process in its own, innermost PID namespace.
///
/// # Errors
/// The process has ended.
pub fn number_within(process: u32) -> io::Result<u32> {
    let status = Status::of(process)?;
    let innermost = status.line("NSpid").and_then(|all| all.split_whitespace().next_back());
    // A kernel without namespaces has no such line.
    Ok(innermost.and_then(|number| number.parse().ok()).unwrap_or(process))
}

/// Sends `SIGURG`, which is ignored by default, to a thread of another process, so that its tracer
/// sees a stop.
pub fn interrupt_thread(process: u32, thread: u32) {
    // SAFETY: a system call without memory; a thread that is gone is not found.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
}

/// Returns whether a process has a thread with this number that the caller may signal.
pub fn has_thread(process: u32, thread: u32) -> bool {
    // SAFETY: a system call without memory; no signal is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_is_one_of_its_process() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        assert!(has_thread(own, crate::thread::id()));
        assert!(!has_thread(own, parent) && !has_thread(parent, crate::thread::id()));
    }

    #[test]
    fn one_sees_oneself_and_nobody_where_nobody_is() {
        let me = life(std::process::id()).expect("this process is there");
        assert!(!me.ended() && !me.stopped() && me.began > 0);
        assert_eq!(life(u32::MAX), None);
        assert!(exists(std::process::id()) && !exists(u32::MAX) && !exists(0));
    }

    #[test]
    fn a_child_that_nobody_has_asked_for_has_ended() {
        let mut child = std::process::Command::new("true").spawn().expect("true can be run");
        let id = child.id();
        while !life(id).expect("its number is taken until it is asked for").ended() {
            std::thread::yield_now();
        }
        child.wait().expect("it can be asked for");
    }

    #[test]
    fn a_thread_is_listed_behind_those_that_end() {
        const ENDING: usize = 4;
        for _ in 0..300 {
            let (say, said) = mpsc::channel();
            let stand = |say: mpsc::Sender<u32>| {
                let (end, ends) = mpsc::channel::<()>();
                let standing = thread::spawn(move || {
                    say.send(crate::thread::id()).expect("it is heard");
                    ends.recv().is_err()
                });
                (end, standing)
            };
            let before: Vec<_> = (0..ENDING).map(|_| stand(say.clone())).collect();
            said.iter().take(ENDING).for_each(drop);
            let (stop, behind) = stand(say);
            let behind_it = said.recv().expect("it is said");
            let listed = || threads(std::process::id()).contains(&behind_it);
            let (ends, before): (Vec<_>, Vec<_>) = before.into_iter().unzip();
            drop(ends);
            while !before.iter().all(thread::JoinHandle::is_finished) {
                assert!(listed());
            }
            for _ in 0..20 {
                assert!(listed());
            }
            drop(stop);
            for thread in before.into_iter().chain([behind]) {
                thread.join().expect("no panic");
            }
        }
    }

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let line = b"7 (a) b) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse(line), Some(Life { state: b'S', began: 4711 }));
        assert_eq!(parse(b"7 (cut"), None);
    }

    #[test]
    fn usage_is_that_of_the_process() {
        let line = b"7 (a) b) S 5 7 7 0 -1 4 0 0 0 0 130 20 0 0 20 0 3 0 4711 0 2";
        let usage = parse_usage(line).expect("the line has all fields");
        assert_eq!((usage.state, usage.parent, usage.threads), (b'S', 5, 3));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(usage.cpu, Duration::from_secs_f64(150.0 / ticks));
        assert_eq!(usage.resident, 2 * rustix::param::page_size() as u64);
        assert_eq!(parse_usage(b"7 (a) S 5 7 7 0 -1 4"), None);
    }

    #[test]
    fn arguments_are_those_of_the_start() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
        // The kernel lets the parent go on before it has set the child's arguments.
        while arguments(child.id()).is_empty() {
            std::thread::yield_now();
        }
        let found = (arguments(child.id()), process_and_parent(child.id()));
        child.kill().and_then(|()| child.wait()).expect("it can be ended");
        assert_eq!(found.0, ["sleep", "1000"]);
        assert_eq!(found.1, Some((child.id(), std::process::id())));
        assert_eq!((arguments(u32::MAX), process_and_parent(u32::MAX)), (Vec::new(), None));
    }
}
