//! The scheduler events that a watch reports are those that the test has caused.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use refit_sys::perf::{EventKind, SchedulerEvent, Target, Watch};
use refit_sys::{processor, thread};

/// Never reached unless the test is wrong.
const LONG: Duration = Duration::from_secs(60);

/// A watch, or `None` where the host does not let us.
fn watch(target: Target) -> Option<Watch> {
    match Watch::new(target, 64) {
        Ok(watch) => Some(watch),
        Err(e) if [ErrorKind::PermissionDenied, ErrorKind::Unsupported].contains(&e.kind()) => {
            println!("skipped: perf_event_open: {e}");
            None
        }
        Err(e) => panic!("{target:?}: {e}"),
    }
}

/// Reads until it has seen what it looks for.
fn until(watches: &mut [Watch], mut seen: impl FnMut(&SchedulerEvent) -> bool) {
    let end = Instant::now() + LONG;
    let mut found = false;
    while !found {
        assert!(Instant::now() < end, "it did not come");
        for watch in &mut *watches {
            watch.read(|event| found |= seen(&event));
        }
    }
}

#[test]
fn a_thread_that_waits_leaves_and_comes_back() {
    let own = thread::id();
    let watches = (0..processor::count() as u32)
        .map(|processor| watch(Target::Thread { thread: own, processor, from_exec: false }));
    let Some(mut watches) = watches.collect::<Option<Vec<_>>>() else { return };
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().expect("two ends");
    let other = std::thread::Builder::new().name("answers".into()).spawn(move || {
        let id = thread::id();
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
        id
    });
    let mut byte = [1];
    for _ in 0..100 {
        here.write_all(&byte).expect("it listens");
        here.read_exact(&mut byte).expect("it answers");
    }
    drop(here);
    let other = other.expect("it began").join().expect("it ends");
    let (mut left, mut came, mut named, mut ended) = (0, 0, false, false);
    until(&mut watches, |event| {
        match &event.kind {
            EventKind::Out { .. } if event.thread == own => left += 1,
            EventKind::In(_) if event.thread == own => came += 1,
            EventKind::Named(name) if event.thread == other => named = name == "answers",
            EventKind::Ended if event.thread == other => ended = true,
            _ => {}
        }
        left > 0 && came > 0 && named && ended
    });
}

#[test]
fn a_processor_tells_who_came_after_whom() {
    let Some(watch) = watch(Target::Processor(0)) else { return };
    let (mut here, mut there) = std::os::unix::net::UnixStream::pair().expect("two ends");
    let other = std::thread::spawn(move || {
        assert!(processor::bind(0), "it is there");
        let mut byte = [0];
        there.write_all(&byte).expect("somebody reads");
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
        thread::id()
    });
    let mine = std::thread::spawn(move || {
        assert!(processor::bind(0), "it is there");
        let mut byte = [1];
        here.read_exact(&mut byte).expect("it answers");
        for _ in 0..1000 {
            here.write_all(&byte).expect("it listens");
            here.read_exact(&mut byte).expect("it answers");
        }
        thread::id()
    });
    let mine = mine.join().expect("it ends");
    let other = other.join().expect("it ends");
    // Others can come between the two now and then, but not a thousand times.
    until(
        &mut [watch],
        |event| matches!(event.kind, EventKind::Out { next: Some(next), .. } if (event.thread, next) == (mine, other)),
    );
}

#[test]
fn a_thread_that_is_not_there_is_an_error() {
    // Above the highest number that Linux gives.
    let target = Target::Thread { thread: 1 << 23, processor: 0, from_exec: false };
    let error = Watch::new(target, 1).expect_err("there is none");
    assert!([Some(libc::ESRCH), Some(libc::EACCES)].contains(&error.raw_os_error()), "{error}");
}
