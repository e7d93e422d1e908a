//! Tests of keepers: descriptors outlive their process until its keeper has ended.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::Duration;

use refit_sys::keeper::keep_descriptors;
use refit_sys::memory::SharedMapping;
use refit_sys::pidfd::Pidfd;
use refit_sys::process;
use refit_sys::trace::{Options, Tracee};

use crate::common::{Child, LONG, PAGE_SIZE, idle, offered, until};

fn word(shared: &SharedMapping, at: usize) -> u32 {
    let mut word = [0; 4];
    shared.read_at(at, &mut word);
    u32::from_ne_bytes(word)
}

/// Continues a stopped keeper on drop, so also when a test fails.
struct Stopped(Pidfd);

impl Stopped {
    fn of(process: Pidfd, id: u32) -> Self {
        process.signal(libc::SIGSTOP).expect("it is there");
        until("the stop", || process::life(id).is_some_and(|life| life.stopped()));
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.signal(libc::SIGCONT);
    }
}

/// The child creates a keeper, then a pipe, and traces a child of its own. It is killed while the
/// keeper cannot run: its tracee is killed with it, and the pipe stays open.
#[test]
fn descriptors_of_one_that_was_killed_stay_open_until_its_keeper_ends() {
    let shared = SharedMapping::new(c"refit-test", PAGE_SIZE).expect("a memfd");
    let child = Child::of(|| {
        let traced = idle();
        let Ok(held) = Tracee::seize_with(traced.id(), Options::EXIT_KILL) else { return 4 };
        let Ok(keeper) = keep_descriptors() else { return 2 };
        let Ok((reader, writer)) = std::io::pipe() else { return 3 };
        let end = |of: i32| (of + 1).to_ne_bytes();
        shared.write_at(0, &keeper.id().to_ne_bytes());
        shared.write_at(4, &end(reader.as_raw_fd()));
        shared.write_at(12, &held.thread().to_ne_bytes());
        // Written last, because it announces that the rest is there.
        shared.write_at(8, &end(writer.as_raw_fd()));
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    });
    until("what the child tells", || word(&shared, 8) != 0);
    let (keeper, reader, traced) = (word(&shared, 0), word(&shared, 4) - 1, word(&shared, 12));
    let its = Pidfd::open(keeper).expect("it is there");
    let Some(fd) = offered("pidfd_getfd", its.get_fd(reader)) else { return };
    let status = || std::fs::read_to_string(format!("/proc/{keeper}/status")).expect("it is there");
    assert!(status().contains("SigBlk:\tfffffffffffbfeff\n"), "all but KILL and STOP");
    until("its name", || status().starts_with("Name:\trefit keeper\n"));
    for ignored in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        its.signal(ignored).expect("it is there");
    }
    let stopped = Stopped::of(Pidfd::open(keeper).expect("it is there"), keeper);
    child.signal(libc::SIGKILL);
    assert_eq!(child.wait(), -libc::SIGKILL);
    until("the end of what it traced", || process::life(traced).is_none_or(|life| life.ended()));
    let mut pipe = File::from(fd);
    assert_eq!(ready(&pipe), 0, "nothing to be read, and nobody has closed it");
    drop(stopped);
    assert!(its.wait_for_end(LONG).expect("it polls"));
    assert_eq!(pipe.read(&mut [0]).expect("a pipe"), 0);
    until("the end", || process::life(keeper).is_none_or(|life| life.ended()));
}

/// Returns the poll events of a pipe.
fn ready(pipe: &File) -> i16 {
    let mut polled = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, as is told.
    assert!(unsafe { libc::poll(&raw mut polled, 1, 0) } >= 0);
    polled.revents
}

#[test]
fn a_keeper_that_is_dropped_is_gone_and_the_descriptors_are_there() {
    let child = Child::of(|| {
        let Ok((mut reader, mut writer)) = std::io::pipe() else { return 2 };
        let before = mask();
        let Ok(keeper) = keep_descriptors() else { return 3 };
        let id = keeper.id();
        if mask() != before || !process::exists(id) {
            return 4;
        }
        drop(keeper);
        let sent = std::io::Write::write_all(&mut writer, b"x");
        let received = reader.read_exact(&mut [0]);
        if sent.is_err() || received.is_err() || process::exists(id) {
            return 5;
        }
        // SAFETY: asks for any child, of whatever kind; no status is wanted.
        let any = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) };
        if any == -1 { 0 } else { 6 }
    });
    assert_eq!(child.wait(), 0);
}

/// Returns, for each signal, whether the calling thread blocks it.
fn mask() -> Vec<bool> {
    // SAFETY: the set is a valid place; nothing is changed.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        (1..=64).map(|signal| libc::sigismember(&raw const set, signal) == 1).collect()
    }
}

#[test]
fn a_keeper_that_was_killed_is_dropped_in_peace() {
    let child = Child::of(|| {
        let Ok(keeper) = keep_descriptors() else { return 2 };
        let Ok(process) = Pidfd::open(keeper.id()) else { return 3 };
        if process.signal(libc::SIGKILL).is_err() || !process.wait_for_end(LONG).is_ok_and(|e| e) {
            return 4;
        }
        drop(keeper);
        i32::from(!process.wait_for_end(Duration::ZERO).is_ok_and(|ended| ended))
    });
    assert_eq!(child.wait(), 0);
}
