//! Tests with many threads, threads that migrate, threads that are interrupted, and children of
//! `fork`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use refit_instruments::instrument::{self, Event, Instrument};
use refit_instruments::session::{Geometry, Session};
use refit_instruments::write::{Mode, Options, Recorder};

use super::Turn;
use super::helper::Helper;
use super::trace::Trace;

static STEP: Event = Event::new("threads", "step");
static SIGNAL: Event = Event::new("threads", "signal");

#[test]
fn ten_thousand_threads_each_under_its_own_number() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(1 << 20);
    let recorder = Recorder::start(turn.session, &path, Options::default()).expect("it starts");
    for _ in 0..50 {
        std::thread::scope(|scope| {
            for _ in 0..200 {
                scope.spawn(|| STEP.record([u64::from(refit_sys::thread::id()), 0]));
            }
        });
    }
    let end = recorder.stop().end;
    assert_eq!((end.written, end.lost_full), (10_000, 0));
    let trace = Trace::read(&path);
    trace.check();
    assert!(trace.records().iter().all(|record| u64::from(record.thread) == record.payload[0]));
}

/// Role: eight threads on five processors, which they change at every step.
pub(crate) fn crowd() {
    const EACH: u64 = 20_000;
    let session = Session::create(Geometry::of_host().with_ring_bytes(1 << 16)).expect("memory");
    assert_eq!(session.geometry().processors, 5);
    instrument::attach(session);
    let path = std::env::var_os("TRACE").expect("it is told where");
    let options = Options { mode: Mode::Dump, ..Options::default() };
    let recorder = Recorder::start(session, Path::new(&path), options).expect("it starts");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..EACH).for_each(|step| STEP.record([step, !step])));
        }
    });
    let end = recorder.stop().end;
    assert_eq!((end.written, end.lost_full, end.lost_torn), (8 * EACH, 0, 0));
    let trace = Trace::read(Path::new(&path));
    trace.check();
    let mut steps = BTreeMap::<u32, Vec<(u64, u64)>>::new();
    for record in trace.records() {
        assert_eq!(record.payload[1], !record.payload[0]);
        steps.entry(record.thread).or_default().push((record.time, record.payload[0]));
    }
    assert_eq!(steps.len(), 8);
    for of_one in steps.values_mut() {
        of_one.sort_unstable();
        assert!(of_one.iter().map(|(_, step)| *step).eq(0..EACH));
    }
}

#[test]
fn threads_that_are_on_another_processor_at_every_step_lose_nothing() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let variables = [("TRACE", path.as_path()), ("REFIT_PROCESSORS", Path::new("5"))];
    let mut crowd = Helper::start("crowd", &variables);
    assert!(crowd.child.wait().expect("it ends").success());
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signal: libc::c_int) {
    let count = HANDLED.fetch_add(1, Ordering::Relaxed);
    SIGNAL.record([count, !count]);
}

/// Sends signals to the recording thread; all records are whole, and neither the thread nor the
/// handler delays the other.
fn interrupted(mode: Mode) {
    const MANY: u64 = 200_000;
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(4096 * 32);
    SIGNAL.register();
    STEP.register();
    HANDLED.store(0, Ordering::Relaxed);
    // SAFETY: the handler only records, which is safe in handlers, and counts.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let options = Options { mode, ..Options::default() };
    let recorder = Recorder::start(turn.session, &path, options).expect("it starts");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // SAFETY: takes no memory and always succeeds.
        let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                // SAFETY: the thread lives until this scope ends; no memory is passed.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
                std::thread::yield_now();
            }
        });
        (0..MANY).for_each(|step| STEP.record([step, !step]));
        done.store(true, Ordering::Release);
    });
    let end = recorder.stop().end;
    let handled = HANDLED.load(Ordering::Relaxed);
    assert_eq!(end.written + end.lost_full, MANY + handled);
    assert_eq!(end.lost_torn, 0);
    let trace = Trace::read(&path);
    trace.check();
    assert!(trace.records().iter().all(|record| record.payload[1] == !record.payload[0]));
    if mode == Mode::Dump {
        // Only handlers that interrupted a writer may lose records.
        assert!(end.lost_full <= handled, "{end:?}, {handled} handled");
    }
}

#[test]
fn a_signal_handler_records_while_it_interrupts_recording() {
    interrupted(Mode::Stream);
    interrupted(Mode::Dump);
}

#[test]
fn a_child_of_fork_records_under_its_own_number() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join("trace");
    let turn = Turn::begin(1 << 20);
    let recorder = Recorder::start(turn.session, &path, Options::default()).expect("it starts");
    STEP.record([1, 0]);
    // SAFETY: the child only records and exits, both of which are safe after a fork of a
    // multithreaded process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        STEP.record([2, 0]);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    // SAFETY: waits for a child of this process; no status is requested.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    recorder.stop();
    let trace = Trace::read(&path);
    let who: BTreeMap<u64, u32> =
        trace.records().iter().map(|record| (record.payload[0], record.thread)).collect();
    assert_eq!(who[&1], refit_sys::thread::id());
    assert_eq!(who[&2], child.cast_unsigned());
}
