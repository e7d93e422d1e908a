//! Tests of several objects that are swapped as one change: no request sees a mix of old and new,
//! and all of them are swapped or none.

mod late;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use late::until_named;
use refit_objects::change::{End, Phase, Report};
use refit_objects::{
    Implementations, ObjectId, OwnedRep, RequestToken, Root, SwapOptions, TransferError, create,
    destroy, interface, object, request, settle, swap_named, swap_together,
};

/// An object that shows which implementation serves.
#[interface(name = "flag", state = u64)]
pub trait Flag {
    /// Returns the number of the implementation, 0 or 1.
    fn shows(&self) -> u64;
    /// Returns the numbers of this object and of `other`.
    fn both(&self, other: FlagRef) -> [u64; 2];
    /// Counts the call, and returns the count.
    fn count(&self) -> u64;
}

struct Shown {
    shows: u64,
    count: Arc<AtomicU64>,
}

impl Flag for Shown {
    fn shows(&self) -> u64 {
        self.shows
    }
    fn both(&self, other: FlagRef) -> [u64; 2] {
        [self.shows, other.shows()]
    }
    fn count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

struct ShownRoot {
    name: &'static str,
    count: Arc<AtomicU64>,
}

impl Root<FlagInterface> for ShownRoot {
    fn implementation(&self) -> &str {
        self.name
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<FlagInterface> {
        let shows = u64::from(self.name == "one");
        FlagInterface::rep(Shown { shows, count: Arc::clone(&self.count) })
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.count.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        if self.name == "broken" {
            return Err(TransferError("it takes nothing".into()));
        }
        self.count.store(state, Ordering::Relaxed);
        Ok(())
    }
}

struct Flags;

impl Implementations<FlagInterface> for Flags {
    fn names(&self) -> Vec<&'static str> {
        vec!["zero", "one", "broken"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<FlagInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        Some(Box::new(ShownRoot { name, count: Arc::default() }))
    }
}

fn flag(name: &str) -> FlagRef {
    let root = Flags.root("zero").expect("it is in the list");
    create(name.to_owned(), root, Arc::new(Flags))
}

fn patient() -> SwapOptions {
    SwapOptions { deadline: Duration::from_secs(60), ..SwapOptions::default() }
}

/// Makes requests in every shape, each of which must see one side only; returns their number.
fn look(a: FlagRef, b: FlagRef, stop: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        let [one, other] = a.both(b);
        assert_eq!(one, other, "nested calls");
        let seen = request(|| [b.shows(), a.shows(), b.shows(), a.both(b)[1]]);
        assert!(seen.iter().all(|s| *s == seen[0]), "calls one after the other: {seen:?}");
        if looks % 16 == 0 {
            let seen = request(|| {
                let mine = a.shows();
                let token = RequestToken::of_this_request();
                let child = || token.run(|| b.shows());
                let theirs = std::thread::scope(|scope| scope.spawn(child).join());
                [mine, theirs.expect("no panic"), b.shows()]
            });
            assert!(seen.iter().all(|s| *s == seen[0]), "with a child: {seen:?}");
        }
        request(|| (a.count(), b.count()));
        looks += 1;
    }
    looks
}

#[test]
fn no_request_sees_a_mix() {
    let (a, b) = (flag("mix-a"), flag("mix-b"));
    let stop = AtomicBool::new(false);
    let looks: u64 = std::thread::scope(|scope| {
        let lookers: Vec<_> = (0..3).map(|_| scope.spawn(|| look(a, b, &stop))).collect();
        for n in 0..1_500 {
            let to = ["one", "zero"][n % 2];
            // The order in which the objects are named does not matter.
            let objects = if n % 3 == 0 { [(a, to), (b, to)] } else { [(b, to), (a, to)] };
            let objects = objects.map(|(flag, to)| (flag.id(), to));
            let report = swap_together(&objects, n as u64, &patient());
            assert!(report.committed(), "{report:?}");
        }
        stop.store(true, Ordering::Relaxed);
        lookers.into_iter().map(|l| l.join().expect("no panic")).sum()
    });
    assert!(looks > 0);
    assert_eq!((a.count(), b.count()), (looks, looks), "nothing was lost");
    destroy(a.id());
    destroy(b.id());
}

fn serving(flags: &[FlagRef]) -> Vec<String> {
    flags.iter().map(|f| object(f.id()).expect("it lives").implementation).collect()
}

#[test]
fn all_or_none() {
    let mut flags = [flag("none-a"), flag("none-b"), flag("none-c")];
    // Named in the order in which changes do not queue for them.
    flags.sort_by_key(|flag| std::cmp::Reverse(flag.id()));
    let name = |flag: FlagRef| object(flag.id()).expect("it lives").name;
    let with = |names: [&'static str; 3]| -> Vec<(ObjectId, &str)> {
        flags.iter().zip(names).map(|(f, name)| (f.id(), name)).collect()
    };
    let report = swap_together(&with(["one", "one", "broken"]), 1, &patient());
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    let third = name(flags[2]);
    let expected = format!("{third}: transfer failed: import as `canonical`: it takes nothing");
    assert!(why.contains(&expected), "{why}");
    assert_eq!(serving(&flags), ["zero"; 3]);
    // They queue in the order of the ids, lest two changes wait for each other.
    let [c, b, a] = flags.map(name);
    assert_eq!(report.change.target, format!("{a}, {b}, {c}"));
    assert!(!report.target_gone, "all of them live");

    let report = swap_together(&with(["one", "two", "one"]), 2, &patient());
    assert!(matches!(&report.end, End::Refused(why) if why.contains("no implementation \"two\"")));
    let twice = [(flags[0].id(), "one"), (flags[0].id(), "one")];
    let report = swap_together(&twice, 3, &patient());
    assert!(matches!(&report.end, End::Refused(why) if why.contains("twice")), "{report:?}");
    assert!(matches!(swap_together(&[], 4, &patient()).end, End::Refused(_)));

    for at in [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit] {
        let hook = move |phase| if phase == at { Err("not now".to_owned()) } else { Ok(()) };
        let options = SwapOptions { hook: Some(Arc::new(hook)), ..patient() };
        let report = swap_together(&with(["one"; 3]), 5, &options);
        assert!(report.rolled_back(), "{report:?}");
        assert_eq!(serving(&flags), ["zero"; 3]);
        flags.iter().for_each(|f| assert_eq!(f.shows(), 0));
    }
    let report = swap_together(&with(["one"; 3]), 6, &patient());
    assert!(report.committed() && report.objects == 3, "{report:?}");
    assert_eq!(serving(&flags), ["one"; 3]);

    destroy(flags[1].id());
    let report = swap_together(&with(["zero"; 3]), 7, &patient());
    assert!(report.target_gone && !report.committed(), "{report:?}");
    assert_eq!(serving(&[flags[0], flags[2]]), ["one"; 2]);
    destroy(flags[0].id());
    destroy(flags[2].id());
}

/// A request that is inside when calls block delays the change up to the deadline, and is named.
#[test]
fn a_request_that_stays_is_named_and_the_change_taken_back() {
    let (a, b) = (flag("stay-a"), flag("stay-b"));
    let (inside, entered) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let hook = {
        let inside = std::sync::Mutex::new(Some(inside));
        let released = std::sync::Mutex::new(Some(released));
        move |phase| {
            // The request begins when the mediators are in place, so it is tracked.
            if phase == Phase::Install
                && let Some(inside) = inside.lock().expect("no panic").take()
            {
                let released = released.lock().expect("no panic").take().expect("once");
                let (ready, begun) = std::sync::mpsc::channel();
                std::thread::Builder::new()
                    .name("stays".into())
                    .spawn(move || {
                        request(|| {
                            let first = a.shows();
                            ready.send(()).expect("somebody waits");
                            released.recv().expect("told to go on");
                            inside.send([first, b.shows()]).expect("somebody waits");
                        });
                    })
                    .expect("a thread can be made");
                begun.recv().expect("it begins");
            }
            Ok(())
        }
    };
    let options = SwapOptions {
        deadline: Duration::from_millis(300),
        hook: Some(Arc::new(hook)),
        ..SwapOptions::default()
    };
    let objects = [(a.id(), "one"), (b.id(), "one")];
    until_named("stays", || swap_together(&objects, 1, &options));
    release.send(()).expect("it waits");
    assert_eq!(entered.recv().expect("it goes on"), [0, 0]);
    assert!(swap_together(&[(a.id(), "one"), (b.id(), "one")], 2, &patient()).committed());
    assert_eq!(a.both(b), [1, 1]);
    destroy(a.id());
    destroy(b.id());
}

/// A request has one ticket, however often it calls the objects: the report counts requests.
#[test]
fn a_request_is_counted_once() {
    let (a, b) = (flag("once-a"), flag("once-b"));
    let hook = move |phase| {
        if phase == Phase::Install {
            request(|| [a.shows(), b.shows(), a.shows(), a.both(b)[1]]);
        }
        Ok(())
    };
    let options = SwapOptions { hook: Some(Arc::new(hook)), ..patient() };
    let report = swap_together(&[(a.id(), "one"), (b.id(), "one")], 1, &options);
    assert!(report.committed(), "{report:?}");
    assert_eq!((report.forwarded, report.blocked), (1, 0));
    assert_eq!(a.both(b), [1, 1]);
    destroy(a.id());
    destroy(b.id());
}

/// A thread is inside of a switch as long as its request, or the request whose token it runs. Later
/// it would be admitted although nobody waits for it.
#[test]
fn a_thread_is_inside_no_longer_than_its_request() {
    let (a, b) = (flag("inside-a"), flag("inside-b"));
    let inside = || format!("{:?}", RequestToken::of_this_request());
    let none = inside();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let seen = Arc::clone(&seen);
        move |phase| {
            if phase == Phase::Install {
                let of_threads = request(|| {
                    a.shows();
                    let token = RequestToken::of_this_request();
                    let child = || [token.run(inside), inside()];
                    let child = std::thread::scope(|scope| scope.spawn(child).join());
                    [inside()].into_iter().chain(child.expect("no panic")).collect::<Vec<_>>()
                });
                seen.lock().unwrap().extend(of_threads.into_iter().chain([inside()]));
            }
            Ok(())
        }
    };
    let options = SwapOptions { hook: Some(Arc::new(hook)), ..patient() };
    let report = swap_together(&[(a.id(), "one"), (b.id(), "one")], 1, &options);
    assert!(report.committed(), "{report:?}");
    let seen = seen.lock().unwrap();
    let [parent, child, child_after, parent_after] = &seen[..] else { panic!("{seen:?}") };
    assert_ne!(*parent, none);
    assert_eq!((child, [child_after, parent_after]), (parent, [&none; 2]));
    destroy(a.id());
    destroy(b.id());
}

/// Changes of overlapping sets wait for each other in one order.
#[test]
fn overlapping_changes_do_not_wait_for_each_other_for_ever() {
    let flags: Vec<FlagRef> = (0..4).map(|n| flag(&format!("ring-{n}"))).collect();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let flags = &flags;
            scope.spawn(move || {
                for round in 0..200 {
                    let to = ["one", "zero"][round % 2];
                    let pair = [(flags[(n + 1) % 4].id(), to), (flags[n].id(), to)];
                    let report = swap_together(&pair, 0, &patient());
                    assert!(report.committed(), "{report:?}");
                    assert!(swap_named(flags[n].id(), to, 0, &patient()).committed());
                }
            });
        }
    });
    flags.iter().for_each(|f| destroy(f.id()));
    while settle() > 0 {
        std::thread::yield_now();
    }
}

/// A change that holds the right to change an object until it is told to give up.
struct Holding<'s> {
    release: std::sync::mpsc::Sender<()>,
    swap: std::thread::ScopedJoinHandle<'s, Report>,
}

impl<'s> Holding<'s> {
    fn begin(scope: &'s std::thread::Scope<'s, '_>, held: FlagRef) -> Self {
        let (holds, begun) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel();
        let released = Mutex::new(released);
        let hook = move |phase| {
            if phase != Phase::Prepare {
                return Ok(());
            }
            holds.send(()).expect("the test waits");
            // A test that waits for this change, instead of giving up, fails.
            let _ = released.lock().unwrap().recv_timeout(Duration::from_secs(20));
            Err("only to be in the way".to_owned())
        };
        let options = SwapOptions { hook: Some(Arc::new(hook)), ..patient() };
        let swap = scope.spawn(move || swap_named(held.id(), "one", 1, &options));
        begun.recv().expect("it begins");
        Holding { release, swap }
    }

    fn end(self) {
        // It may have given up by itself.
        let _ = self.release.send(());
        assert!(self.swap.join().expect("no panic").rolled_back());
    }
}

/// Returns the report of a change that gives up as soon as it would have to queue.
fn at_once(flag: FlagRef) -> Report {
    swap_named(flag.id(), "one", 2, &SwapOptions { deadline: Duration::ZERO, ..patient() })
}

fn has_queued(report: &Report) -> bool {
    matches!(&report.end, End::Refused(why) if why.contains("another change of this object"))
}

#[test]
fn a_change_does_not_queue_beyond_its_deadline() {
    let a = flag("queue");
    std::thread::scope(|scope| {
        let holding = Holding::begin(scope, a);
        let report = at_once(a);
        assert!(has_queued(&report) && report.late, "{report:?}");
        holding.end();
    });
    assert_eq!(serving(&[a]), ["zero"]);
    destroy(a.id());
}
