//! Tests that the table of calls describes the state in which a stop without a signal leaves a
//! blocking call.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use refit_sys::process;
use refit_sys::restart::{self, RESTARTS, Restart};
use refit_sys::trace::Tracee;

use crate::common::{Child, LONG, offered, until};

/// A call that waits for long: its number and arguments.
type Call = (i64, [u64; 6]);
/// The name of a call, and the function that prepares its arguments in the child.
type Case = (&'static str, fn() -> Call);

/// Has a child make the call that `prepare` sets up, and stops it while it waits. Returns the
/// registers at that moment. If `again`, the child has to wait in that call again afterwards.
fn stopped(
    name: &str,
    again: bool,
    prepare: impl FnOnce() -> Call,
) -> Option<refit_sys::trace::Registers> {
    let child = Child::of(|| {
        let (number, [a, b, c, d, e, f]) = prepare();
        // SAFETY: the arguments are of memory that lives until the child ends, in which nobody else
        // runs.
        unsafe { libc::syscall(number, a, b, c, d, e, f) };
        0
    });
    let waiting = || process::waits(child.id()).and_then(|waits| waits.call);
    // None of the calls that prepare it blocks.
    let sleeps = || process::life(child.id()).is_some_and(|life| life.state == b'S');
    until(name, || sleeps() && waiting().is_some());
    let call = waiting().expect("it waits");
    let mut held = offered("ptrace", Tracee::seize(child.id()))?;
    held.interrupt().expect("it is there");
    held.settle(Instant::now() + LONG).expect("it stops");
    let registers = held.registers().expect("it is stopped");
    assert_eq!(registers.orig_rax, call.cast_unsigned(), "{name}");
    if let Some(redone) = restart::redo(&registers) {
        held.set_registers(&redone).expect("it is stopped");
    }
    held.let_go().expect("it goes on");
    if again {
        let same = [call, libc::SYS_restart_syscall];
        until(name, || sleeps() && waiting().is_some_and(|now| same.contains(&now)));
    }
    Some(registers)
}

fn pair(limit: Option<i32>) -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: there is place for two numbers, which are nobody's else.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0);
    // SAFETY: they were made a moment ago.
    let ends = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].into_iter().filter(|_| limit.is_some()) {
        let time = libc::timeval { tv_sec: limit.unwrap_or(0).into(), tv_usec: 0 };
        let (size, place) = (size_of_val(&time) as u32, (&raw const time).cast());
        // SAFETY: the option is read from `time`.
        let set =
            unsafe { libc::setsockopt(ends[0].as_raw_fd(), libc::SOL_SOCKET, option, place, size) };
        assert_eq!(set, 0);
    }
    let [one, other] = ends;
    (one, other)
}

fn memory(bytes: usize) -> u64 {
    Vec::leak(vec![0_u8; bytes]).as_mut_ptr() as u64
}

fn number(fd: OwnedFd) -> u64 {
    let number = fd.as_raw_fd() as u64;
    std::mem::forget(fd);
    number
}

/// Returns one end of a pair of sockets, the other of which stays open and silent.
fn silent(limit: Option<i32>) -> u64 {
    let (one, other) = pair(limit);
    std::mem::forget(other);
    number(one)
}

fn set() -> u64 {
    // SAFETY: no memory is passed.
    unsafe { libc::epoll_create1(0) as u64 }
}

#[test]
fn the_kernel_makes_these_again_by_itself() {
    let cases: [Case; 7] = [
        ("read", || (libc::SYS_read, [silent(None), memory(8), 8, 0, 0, 0])),
        ("pause", || (libc::SYS_pause, [0; 6])),
        ("poll", || (libc::SYS_poll, [0, 0, 60_000, 0, 0, 0])),
        ("select", || (libc::SYS_select, [0; 6])),
        ("futex", || (libc::SYS_futex, [memory(8), 0, 0, 0, 0, 0])),
        ("nanosleep", || {
            let time = Box::leak(Box::new([60_i64, 0]));
            (libc::SYS_nanosleep, [time.as_ptr() as u64, 0, 0, 0, 0, 0])
        }),
        ("recvfrom", || (libc::SYS_recvfrom, [silent(None), memory(8), 8, 0, 0, 0])),
    ];
    for (name, case) in cases {
        let Some(found) = stopped(name, true, case) else { return };
        assert!(RESTARTS.contains(&found.rax.cast_signed()), "{name}: {}", found.rax.cast_signed());
    }
}

#[test]
fn these_end_for_a_stop_and_are_made_again() {
    let time = || Box::leak(Box::new([60_i64, 0])).as_ptr() as u64;
    let message = || {
        let vector = Box::leak(Box::new([memory(8), 8]));
        Box::leak(Box::new([0, 0, vector.as_ptr() as u64, 1, 0, 0, 0, 0])).as_ptr() as u64
    };
    let vector = || Box::leak(Box::new([memory(8), 8])).as_ptr() as u64;
    let signals = || Box::leak(Box::new(1_u64 << (libc::SIGUSR1 - 1))) as *const u64 as u64;
    let listening = || {
        // SAFETY: no memory is passed but the address, which the kernel reads.
        unsafe {
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            let family = libc::AF_UNIX as u16;
            libc::bind(socket, (&raw const family).cast(), 2);
            libc::listen(socket, 1);
            let limit = libc::timeval { tv_sec: 60, tv_usec: 0 };
            let (size, place) = (size_of_val(&limit) as u32, (&raw const limit).cast());
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, place, size);
            socket as u64
        }
    };
    let semaphore = || {
        // SAFETY: numbers only.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        set as u64
    };
    let operation = || Box::leak(Box::new([0_u16, u16::MAX, 0])).as_ptr() as u64;
    let limit = Some(60);
    let cases: [(&str, &dyn Fn() -> Call); 12] = [
        ("epoll_wait", &|| (libc::SYS_epoll_wait, [set(), memory(12), 1, 60_000, 0, 0])),
        ("epoll_pwait", &|| (libc::SYS_epoll_pwait, [set(), memory(12), 1, 60_000, 0, 8])),
        ("epoll_pwait2", &|| (libc::SYS_epoll_pwait2, [set(), memory(12), 1, time(), 0, 8])),
        ("rt_sigtimedwait", &|| (libc::SYS_rt_sigtimedwait, [signals(), 0, time(), 8, 0, 0])),
        ("semtimedop", &|| (libc::SYS_semtimedop, [semaphore(), operation(), 1, time(), 0, 0])),
        ("read", &|| (libc::SYS_read, [silent(limit), memory(8), 8, 0, 0, 0])),
        ("readv", &|| (libc::SYS_readv, [silent(limit), vector(), 1, 0, 0, 0])),
        ("recvfrom", &|| (libc::SYS_recvfrom, [silent(limit), memory(8), 8, 0, 0, 0])),
        ("recvmsg", &|| (libc::SYS_recvmsg, [silent(limit), message(), 0, 0, 0, 0])),
        ("recvmmsg", &|| (libc::SYS_recvmmsg, [silent(limit), message(), 1, 0, 0, 0])),
        ("accept", &|| (libc::SYS_accept, [listening(), 0, 0, 0, 0, 0])),
        ("accept4", &|| (libc::SYS_accept4, [listening(), 0, 0, 0, 0, 0])),
    ];
    for (name, case) in cases {
        let Some(found) = stopped(name, true, case) else { return };
        assert_eq!(found.rax.cast_signed(), -i64::from(libc::EINTR), "{name}");
        assert_ne!(restart::of(found.orig_rax), Some(Restart::Kernel), "{name}");
        if found.orig_rax == libc::SYS_semtimedop as u64 {
            // The semaphore set would otherwise stay for ever. SAFETY: numbers only; no thread
            // waits for the set any more.
            unsafe { libc::semctl(found.rdi as i32, 0, libc::IPC_RMID) };
        }
    }
}

/// Calls end with `EINTR` where the kernel cannot write the remaining time.
#[test]
fn these_end_for_a_stop_where_their_limit_cannot_be_written() {
    static TIME: [i64; 2] = [60, 0];
    let time = || TIME.as_ptr() as u64;
    let cases: [(&str, &dyn Fn() -> Call); 3] = [
        ("ppoll", &|| (libc::SYS_ppoll, [0, 0, time(), 0, 8, 0])),
        ("pselect6", &|| (libc::SYS_pselect6, [0, 0, 0, 0, time(), 0])),
        ("select", &|| (libc::SYS_select, [0, 0, 0, 0, time(), 0])),
    ];
    for (name, case) in cases {
        let Some(found) = stopped(name, true, case) else { return };
        assert_eq!(found.rax.cast_signed(), -i64::from(libc::EINTR), "{name}");
    }
}

#[test]
fn of_these_a_part_is_done_and_the_rest_is_known() {
    const WHOLE: u64 = 4 << 20;
    let cases: [Case; 4] = [
        ("write", || (libc::SYS_write, [silent(None), memory(WHOLE as usize), WHOLE, 0, 0, 0])),
        ("write to a pipe", || {
            let mut ends = [0; 2];
            // SAFETY: there is place for two numbers.
            assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
            (libc::SYS_write, [ends[1] as u64, memory(WHOLE as usize), WHOLE, 0, 0, 0])
        }),
        ("sendto", || (libc::SYS_sendto, [silent(None), memory(WHOLE as usize), WHOLE, 0, 0, 0])),
        ("recvfrom", || {
            let (one, other) = pair(None);
            // SAFETY: the kernel reads three bytes of a constant.
            assert_eq!(unsafe { libc::write(other.as_raw_fd(), c"abc".as_ptr().cast(), 3) }, 3);
            std::mem::forget(other);
            let all = libc::MSG_WAITALL as u64;
            (libc::SYS_recvfrom, [number(one), memory(WHOLE as usize), WHOLE, all, 0, 0])
        }),
    ];
    for (name, case) in cases {
        let Some(found) = stopped(name, false, case) else { return };
        let left = restart::left(&found, |_| None).expect("some is left");
        let (arguments, done) = (left.next.arguments, left.done);
        assert!(done > 0 && done < WHOLE, "{name}: {done}");
        assert_eq!((arguments[1], arguments[2]), (found.rsi + done, WHOLE - done), "{name}");
    }
}
