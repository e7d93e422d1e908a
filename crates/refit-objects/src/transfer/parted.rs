//! Runs foreign code on a separate thread, so that a waiting thread can abandon it.
//!
//! An export that loops cannot be interrupted. But the swapper can continue without it: it waits
//! until its deadline, marks the work as given up and puts the old root back. The thread that runs
//! the work finds the mark when the work returns, even much later, and cleans up after it.
//!
//! # Why the work is either delivered or cleaned up, and never both
//!
//! The state of the work is one value under one lock. The worker moves it from `Running` to `Done`,
//! the waiter from `Running` to `GivenUp`; each checks before it writes, under the lock, so exactly
//! one of the two transitions happens. The waiter returns a result if and only if it finds `Done`;
//! the worker calls `late` if and only if it finds `GivenUp`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::panics::panic_text;
use crate::sync::{Condvar, Mutex, lock, wait_for};

/// The time for which a waiter sleeps before it asks again whether to give up.
const GIVE_UP_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The state of the work.
enum Work<T> {
    Running,
    /// The result, or the message of a panic.
    Done(Result<T, String>),
    GivenUp,
}

/// The reason that there is no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// The waiter gave up; the thread with this id continues, 0 if it has not begun.
    GivenUp { thread: u32 },
    /// The work panicked, or no thread could be started for it.
    Failed(String),
}

struct Shared<T> {
    /// The state of the work, and the id of the thread that runs it.
    state: Mutex<(Work<T>, u32)>,
    done: Condvar,
}

/// Runs `work` on another thread and returns its result, unless `give_up` returns true first. In
/// that case `late` runs on that thread, after the work.
pub(crate) fn parted<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    late: impl FnOnce() + Send + 'static,
    give_up: &dyn Fn(Instant) -> bool,
) -> Result<T, NoResult> {
    let shared = Arc::new(Shared { state: Mutex::new((Work::Running, 0)), done: Condvar::new() });
    let theirs = Arc::clone(&shared);
    let run = move || {
        lock(&theirs.state).1 = refit_sys::thread::id();
        let result = catch_unwind(AssertUnwindSafe(work));
        let mut held = lock(&theirs.state);
        if matches!(held.0, Work::GivenUp) {
            drop(held);
            // No thread waits for the result, nor for a panic of its destructor or of the clean-up.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(result)));
            let _ = catch_unwind(AssertUnwindSafe(late));
            return;
        }
        held.0 = Work::Done(result.map_err(|panic| panic_text(&*panic).to_owned()));
        drop(held);
        theirs.done.notify_one();
    };
    let named = std::thread::Builder::new().name("refit-transfer".into());
    named.spawn(run).map_err(|error| NoResult::Failed(format!("no thread for it: {error}")))?;
    let mut held = lock(&shared.state);
    loop {
        match std::mem::replace(&mut held.0, Work::Running) {
            Work::Done(Ok(result)) => return Ok(result),
            Work::Done(Err(panic)) => return Err(NoResult::Failed(format!("panicked: {panic}"))),
            Work::Running | Work::GivenUp if give_up(Instant::now()) => {
                held.0 = Work::GivenUp;
                return Err(NoResult::GivenUp { thread: held.1 });
            }
            Work::Running | Work::GivenUp => {
                held = wait_for(&shared.done, held, GIVE_UP_CHECK_INTERVAL)
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;

    #[test]
    fn a_result_is_delivered_and_nothing_is_cleaned_up() {
        let late = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&late);
        let result = parted(|| 7, move || _ = count.fetch_add(1, SeqCst), &|_| false);
        assert_eq!((result, late.load(SeqCst)), (Ok(7), 0));
    }

    #[test]
    fn work_that_is_given_up_cleans_up_when_it_returns() {
        let (go, wait) = mpsc::channel::<()>();
        let (cleaned, done) = mpsc::channel();
        let work = move || _ = wait.recv();
        let result = parted(work, move || cleaned.send(()).expect("the test waits"), &|_| true);
        assert!(matches!(result, Err(NoResult::GivenUp { .. })));
        assert!(done.try_recv().is_err(), "the work has not returned yet");
        go.send(()).expect("the work waits");
        done.recv().expect("cleaned up once the work has returned");
    }

    #[test]
    fn a_result_that_panics_when_it_is_dropped_does_not_prevent_the_clean_up() {
        struct Panicking;
        impl Drop for Panicking {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let (go, wait) = mpsc::channel::<()>();
        let (cleaned, done) = mpsc::channel();
        let work = move || {
            let _ = wait.recv();
            Panicking
        };
        let result = parted(work, move || cleaned.send(()).expect("the test waits"), &|_| true);
        assert!(matches!(result, Err(NoResult::GivenUp { .. })));
        go.send(()).expect("the work waits");
        done.recv().expect("cleaned up");
    }

    #[test]
    fn a_panic_is_an_error() {
        let result = parted(|| panic!("on purpose"), || (), &|_| false);
        assert_eq!(result, Err::<(), _>(NoResult::Failed("panicked: on purpose".into())));
    }

    /// Whichever way a race between delivery and giving up ends, exactly one of the two happens.
    #[test]
    fn delivery_and_giving_up_exclude_each_other() {
        for round in 0..500_u32 {
            let (cleaned, done) = mpsc::channel();
            let turns = AtomicUsize::new(0);
            let give_up = |_| turns.fetch_add(1, SeqCst) >= (round % 3) as usize;
            let result = parted(|| (), move || _ = cleaned.send(()), &give_up);
            // The sender is dropped with the worker's closure in either case.
            assert_eq!(result.is_ok(), done.recv().is_err(), "round {round}");
        }
    }
}
