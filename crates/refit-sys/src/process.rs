//! Whether a process or thread is still there, for those who must not wait for the dead ([`life`], [`exists`]: safe in
//! signal handlers, nothing is allocated), its threads, and whether two share their memory.

use std::collections::BTreeSet;
use std::io;

use crate::status::Status;
use crate::text;

/// What `/proc` says of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The letter of its state: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, …
    pub state: u8,
    /// When it began, in clock ticks since the host did: tells it from a later one with the same number.
    pub began: u64,
}

impl Life {
    /// Whether it will never run again, though its number is still taken.
    pub fn ended(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether somebody has stopped it (`SIGSTOP`, a debugger).
    pub fn stopped(self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// What is known of the process or thread with this number; `None`: there is none.
pub fn life(id: u32) -> Option<Life> {
    let mut path = [0; 24];
    let text = stat_path(id, &mut path);
    let mut buffer = [0; 1024];
    let length = read(text, &mut buffer)?;
    parse(&buffer[..length])
}

/// Whether there is a process with this number, ended or not; asks for nothing but its number.
pub fn exists(id: u32) -> bool {
    // Numbers below zero stand for groups.
    let number = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    let asked = number.map(rustix::process::test_kill_process);
    asked.is_some_and(|asked| asked != Err(rustix::io::Errno::SRCH))
}

/// The processes of the host that this one sees now; none where there is no `/proc`.
pub fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The threads of a process now; none if there is no such process.
///
/// One list of the kernel's can lack threads that are there: behind one that ends meanwhile it begins anew by counting, and passes over
/// some, or ends (`proc_task_readdir` in `fs/proc/base.c`). So there are two lists, and between them the kernel says how many threads
/// there are, which it counts under the lock that they come and go under. Threads that both lists hold were there at that moment; when
/// there were as many as that, they were all. Where threads come and go without pause, all that have been seen are told.
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

/// How many threads a process has, the first one until all have ended; `None`: there is no such process.
fn counted(process: u32) -> Option<usize> {
    let stat = text::read(format!("/proc/{process}/stat")).ok()?;
    fields(&stat)?.nth(fields::THREADS).and_then(number).filter(|count| *count > 0)
}

fn listed(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A thread of a process that has not ended; the process itself if its first thread has not. `None`: all have, or there is none.
///
/// A process goes on when its first thread has ended, which is then told as a zombie, without memory or files of its own.
pub fn living(process: u32) -> Option<u32> {
    let lives = |thread: &u32| life(*thread).is_some_and(|life| !life.ended());
    if lives(&process) {
        return Some(process);
    }
    threads(process).into_iter().find(lives)
}

/// Whether each thread of a process has stopped or ended. `SIGSTOP` stops them one by one, each
/// when it is told of the signal.
pub fn stands(process: u32) -> bool {
    let stands = |thread: u32| life(thread).is_none_or(|life| life.stopped() || life.ended());
    threads(process).into_iter().all(stands)
}

/// Whether a thread's system calls are limited (seccomp(2)). One that is gone makes none.
pub fn is_filtered(thread: u32) -> bool {
    let mode = Status::of(thread).ok().and_then(|status| status.number("Seccomp"));
    mode.is_some_and(|mode| mode != 0)
}

/// Where a thread that waits in the kernel goes on in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The system call that it waits in; `None`: it waits for a page.
    pub call: Option<i64>,
    /// Its program counter.
    pub counter: u64,
    /// Its stack pointer.
    pub stack: u64,
}

/// Where a thread waits; `None`: it has a processor or is about to have one, or it is gone. The caller needs the right to trace it.
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

/// What a thread was doing when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It had a processor, or was about to have one: in a system call or not.
    Running,
    /// It waited in this system call.
    Call(i64),
    /// It waited somewhere else: for a page, or since it was stopped.
    Waiting,
    /// It is the kernel's own, which works for the process (`io_uring`).
    Kernels,
}

/// What the threads of a process are doing (`/proc/PID/task/TID/syscall`; asks for the right to trace it). One that cannot be
/// asked is told as running, unless it has ended.
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

/// Whether two processes, or threads, share one memory (kcmp(2)).
///
/// # Errors
/// `ESRCH`: one has ended. `EPERM`: the caller may not trace both. `ENOSYS`: the kernel lacks it (`CONFIG_KCMP`).
pub fn same_memory(a: u32, b: u32) -> io::Result<bool> {
    /// Of the kernel's `linux/kcmp.h`.
    const KCMP_VM: i32 = 1;
    // SAFETY: numbers only. The last two say which descriptors, and are not looked at.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // Else it tells an order.
        compared => Ok(compared == 0),
    }
}

/// Whether files may become as large as they can when a process writes to them (`RLIMIT_FSIZE`); else it might be sent `SIGXFSZ`.
///
/// # Errors
/// `ESRCH`: it has ended. `EPERM`: it is somebody else's.
pub fn writes_without_limit(process: u32) -> io::Result<bool> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null();
    let process = process.cast_signed();
    // SAFETY: the limit is put to `limit`, which lives over the call, and none is set.
    match unsafe { libc::prlimit64(process, libc::RLIMIT_FSIZE, none, &raw mut limit) } {
        0 => Ok(limit.rlim_cur == libc::RLIM64_INFINITY),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `/proc/ID/stat`, with a zero at its end.
fn stat_path(id: u32, path: &mut [u8; 24]) -> &[u8] {
    use std::io::Write;
    let mut rest = &mut path[..];
    // The longest number leaves room for everything.
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

/// Where fields stand behind the name (proc_pid_stat(5)).
mod fields {
    pub(super) const THREADS: usize = 17;
    pub(super) const BEGAN: usize = 19;
}

/// What stands behind the name, which in its parentheses can hold anything: the state comes first.
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

/// What the kernel calls a process; empty if it has ended.
pub fn name(process: u32) -> String {
    let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// The number that a process has for itself: in its own namespace of processes.
///
/// # Errors
/// It has ended.
pub fn number_within(process: u32) -> io::Result<u32> {
    let status = Status::of(process)?;
    let innermost = status.line("NSpid").and_then(|all| all.split_whitespace().next_back());
    // A kernel without namespaces.
    Ok(innermost.and_then(|number| number.parse().ok()).unwrap_or(process))
}

/// Sends a thread of another process the signal that nobody misses (`SIGURG`), so that whoever traces it is told of a stop.
pub fn interrupt_thread(process: u32, thread: u32) {
    // SAFETY: a system call without memory; a thread that is gone is not found.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
}

/// Whether a process has a thread with this number, as far as it may be sent signals.
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
}
