//! Wrappers come and go, from several threads at once, while calls run and the object is swapped.
//! Alone in its process, so that at the end nothing at all may be left.

mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use refit_objects::{
    After, PostCall, PreCall, SwapOptions, Wrapper, WrapperId, attach, destroy, detach,
    discard_entries, object, settle, swap_named,
};

use store::{StoreRef, store};

const CALLERS: usize = 3;
const CHANGERS: usize = 2;
/// Of each changer, at least.
const CHANGES: u64 = 3_000;
/// While they change, at least.
const SWAPS: u64 = 500;

static LIVE: AtomicU64 = AtomicU64::new(0);

/// Each thread numbers its calls; a wrapper must see the numbers of each thread rise.
struct Watching {
    latest: [AtomicU64; CALLERS + CHANGERS],
    before: AtomicU64,
    after: AtomicU64,
    /// Calls that it saw twice.
    repeated: AtomicU64,
}

impl Watching {
    fn new() -> Arc<Self> {
        LIVE.fetch_add(1, Ordering::Relaxed);
        let zero = || AtomicU64::new(0);
        let latest = std::array::from_fn(|_| zero());
        Arc::new(Watching { latest, before: zero(), after: zero(), repeated: zero() })
    }

    fn seen_of(&self, thread: usize) -> u64 {
        self.latest[thread].load(Ordering::Relaxed)
    }

    fn check(&self) {
        assert_eq!(self.repeated.load(Ordering::Relaxed), 0, "calls that it saw twice");
        let (before, after) = (&self.before, &self.after);
        assert_eq!(before.load(Ordering::Relaxed), after.load(Ordering::Relaxed));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wrapper for Watching {
    fn name(&self) -> &str {
        "watching"
    }
    fn precall(&self, call: &PreCall<'_>) -> After {
        if call.method_name() != "read" {
            return After::Forward;
        }
        let number = call.argument(0).number().unwrap_or(0);
        let (thread, number) = ((number >> 48) as usize, number & ((1 << 48) - 1));
        // Only that thread stores here.
        if self.latest[thread].swap(number, Ordering::Relaxed) >= number {
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
        self.before.fetch_add(1, Ordering::Relaxed);
        After::Postcall(number)
    }
    fn postcall(&self, _call: &PostCall<'_>) {
        self.after.fetch_add(1, Ordering::Relaxed);
    }
}

/// One call of a thread: it is answered, and it counts.
fn call(s: StoreRef, thread: usize, number: &mut u64) {
    *number += 1;
    let mut buf = [0; 8];
    let offset = (thread as u64) << 48 | *number;
    assert_eq!(s.read(offset, &mut buf), Ok(8));
    assert_eq!(buf, [7; 8]);
    s.add(1);
}

/// Attaches and detaches, in an order of its own; its own calls are seen by what it has attached,
/// and by nothing else of its own.
fn change(s: StoreRef, thread: usize, number: &mut u64, swaps: &AtomicU64) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 + 1);
    let mut mine: Vec<(WrapperId, Arc<Watching>, u64)> = Vec::new();
    let mut changes = 0;
    while changes < CHANGES || swaps.load(Ordering::Relaxed) < SWAPS {
        changes += 1;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if mine.is_empty() || (random.is_multiple_of(2) && mine.len() < 6) {
            let watching = Watching::new();
            let id = attach(s.id(), Arc::clone(&watching)).expect("it lives");
            call(s, thread, number);
            assert_eq!(watching.seen_of(thread), *number, "attached, and the call was not seen");
            mine.push((id, watching, 0));
        } else {
            let (id, watching, _) = mine.swap_remove((random >> 8) as usize % mine.len());
            detach(s.id(), id).expect("it is attached");
            let before = *number;
            call(s, thread, number);
            assert!(watching.seen_of(thread) <= before, "detached, and the call was seen");
        }
        for (_, watching, _) in &mine {
            assert_eq!(watching.seen_of(thread), *number, "attached, and the call was not seen");
        }
    }
    for (id, watching, _) in mine {
        detach(s.id(), id).expect("it is attached");
        watching_ends(&watching);
    }
}

/// Calls of others may still be in it; they leave, and then the system lets go of it.
fn watching_ends(watching: &Arc<Watching>) {
    let until = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(watching) > 1 {
        assert!(Instant::now() < until, "a detached wrapper is kept");
        std::thread::yield_now();
    }
    watching.check();
}

#[test]
fn wrappers_come_and_go_under_calls_and_swaps() {
    let s = store("stress");
    let steady = Watching::new();
    attach(s.id(), Arc::clone(&steady)).expect("it lives");
    let (stop, made, swaps) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..CALLERS {
            let (stop, made) = (&stop, &made);
            scope.spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    call(s, thread, &mut number);
                }
                made.fetch_add(number, Ordering::Relaxed);
            });
        }
        let swapper = scope.spawn(|| {
            let options = SwapOptions { deadline: Duration::from_secs(60), ..Default::default() };
            while !stop.load(Ordering::Relaxed) {
                let n = swaps.load(Ordering::Relaxed);
                let to = if n % 2 == 0 { "spread" } else { "one" };
                let report = swap_named(s.id(), to, n, &options);
                // One that fails must not leave the others waiting for it.
                swaps.store(if report.committed() { n + 1 } else { SWAPS }, Ordering::Relaxed);
                assert!(report.committed(), "{report:?}");
                discard_entries();
            }
        });
        let changers: Vec<_> = (CALLERS..CALLERS + CHANGERS)
            .map(|thread| {
                let swaps = &swaps;
                scope.spawn(move || {
                    let mut number = 0;
                    change(s, thread, &mut number, swaps);
                    number
                })
            })
            .collect();
        // A changer that fails must not leave the others running.
        let numbers: Vec<_> = changers.into_iter().map(|changer| changer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for number in numbers {
            made.fetch_add(number.expect("a changer failed"), Ordering::Relaxed);
        }
        swapper.join().expect("the swapper failed");
    });
    let made = made.load(Ordering::Relaxed);
    assert_eq!(s.sum(), made, "each call was answered once");
    assert_eq!(steady.before.load(Ordering::Relaxed), made, "it was attached all the time");
    steady.check();
    assert_eq!(object(s.id()).expect("it lives").wrappers.len(), 1);
    drop(steady);
    destroy(s.id());
    let until = Instant::now() + Duration::from_secs(60);
    while settle() > 0 || LIVE.load(Ordering::Relaxed) > 0 {
        assert!(Instant::now() < until, "something is left");
        std::thread::yield_now();
    }
}
