//! The scheduler events that a watch reports are those that the test has caused.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use refit_sys::perf::{EventKind, SchedulerEvent, StackTarget, Target, Watch};
use refit_sys::{processor, thread};

/// Never reached unless the test is wrong.
const LONG: Duration = Duration::from_secs(60);

/// A watch, or `None` where the host does not let us.
fn watch(target: Target<'_>) -> Option<Watch> {
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
        .map(|processor| watch(Target { processor, threads: Some(&[own]), stacks: None }));
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
            EventKind::Named { name, .. } if event.thread == other => named = name == "answers",
            EventKind::Ended if event.thread == other => ended = true,
            _ => {}
        }
        left > 0 && came > 0 && named && ended
    });
}

#[test]
fn a_processor_tells_who_came_after_whom() {
    let Some(watch) = watch(Target { processor: 0, threads: None, stacks: None }) else {
        return;
    };
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
    let target = Target { processor: 0, threads: Some(&[1 << 23]), stacks: None };
    let error = Watch::new(target, 1).expect_err("there is none");
    assert!([Some(libc::ESRCH), Some(libc::EACCES)].contains(&error.raw_os_error()), "{error}");
}

/// Waits in a call of its own, and leaves a mark on the stack.
#[inline(never)]
fn wait_with_mark(mark: u64, mut end: &std::os::unix::net::UnixStream) -> u64 {
    let marks = std::hint::black_box([mark; 4]);
    end.read_exact(&mut [0]).expect("it answers");
    std::hint::black_box(marks)[0]
}

#[test]
fn a_thread_that_waits_tells_where_it_stands_and_what_code_it_has_mapped() {
    const MARK: u64 = 0x5ca1_ab1e_5eed_f00d;
    let own = thread::id();
    let watches = (0..processor::count() as u32).map(|processor| {
        let threads = Some(&[own][..]);
        let stacks = Some(StackTarget { threads, bytes: 8192 });
        watch(Target { processor, threads, stacks })
    });
    let Some(mut watches) = watches.collect::<Option<Vec<_>>>() else { return };
    let (here, mut there) = std::os::unix::net::UnixStream::pair().expect("two ends");
    let other = std::thread::spawn(move || {
        // As long as the test needs to be switched out.
        std::thread::sleep(Duration::from_millis(20));
        there.write_all(&[1]).expect("somebody reads");
    });
    assert_eq!(wait_with_mark(MARK, &here), MARK);
    other.join().expect("it ends");
    // Executes nothing, but is mapped as code.
    let file = std::fs::File::open("/proc/self/exe").expect("this program");
    let page = rustix::param::page_size();
    // SAFETY: a new private mapping that nothing refers to.
    let mapped = unsafe {
        use rustix::mm::{MapFlags, ProtFlags};
        rustix::mm::mmap(std::ptr::null_mut(), page, ProtFlags::EXEC, MapFlags::PRIVATE, &file, 0)
    };
    let mapped = mapped.expect("mapped").addr() as u64;
    let (mut stood, mut last, mut maps) = (false, None, false);
    until(&mut watches, |event| {
        match &event.kind {
            EventKind::Stands(stack) if event.thread == own => {
                let words = stack.bytes.chunks_exact(8);
                let marks = words.filter(|word| **word == MARK.to_le_bytes()).count();
                assert!(stack.pointer != 0 && stack.counter != 0);
                last = Some((event.time, marks >= 4));
            }
            EventKind::Out { .. } if event.thread == own => {
                let (time, marked) = last.take().expect("a sample precedes the switch");
                assert!(time <= event.time);
                stood |= marked;
            }
            EventKind::Mapped(code) => {
                let name = std::env::current_exe().expect("this program");
                maps |= code.range.start == mapped && code.offset == 0 && code.name == name;
            }
            _ => {}
        }
        stood && maps
    });
}
