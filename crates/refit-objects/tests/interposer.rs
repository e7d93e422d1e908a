//! Interposition: what wrappers see and may do, in which order, and what is left of them.

mod late;
mod noting;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use refit_change::{End, Phase};
use refit_objects::{
    After, Outcome, Pre, PreCall, SwapOptions, Value, Which, WrapError, Wrapper, WrapperFailure,
    attach, attach_typed, destroy, detach, object, observe_failures, settle, swap_named,
    swap_together, unwrap_named,
};

use late::until_named;
use noting::{Bomb, Counting, Notes, Noting};
use store::{Opaque, StoreInterface, StoreRef, StoreWrapper, store};

fn noting(s: StoreRef, name: &str, notes: &Arc<Notes>, post: bool) -> refit_objects::WrapperId {
    let wrapper = Noting { name: name.into(), notes: Arc::clone(notes), post };
    attach(s.id(), wrapper).expect("it lives")
}

fn patient() -> SwapOptions {
    SwapOptions { deadline: Duration::from_secs(60), ..Default::default() }
}

/// Waits until nothing that was retired is left of `kept`, which the caller holds once.
fn dropped<T: ?Sized>(kept: &Arc<T>) {
    let until = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(kept) > 1 {
        assert!(Instant::now() < until, "something was not freed");
        settle();
        std::thread::yield_now();
    }
}

#[test]
fn a_wrapper_sees_calls_before_and_after_and_is_dropped_when_it_is_detached() {
    let s = store("seen");
    let notes = Arc::new(Notes::default());
    s.add(1);
    let id = noting(s, "a", &notes, true);
    assert_eq!(s.add(2), 1);
    assert_eq!(notes.take(), ["a before add", "a after add: Returned"]);
    assert_eq!(s.read(u64::MAX, &mut [0; 4]), Err(22));
    assert_eq!(notes.take(), ["a before read", "a after read: Failed"]);
    assert!(catch_unwind(AssertUnwindSafe(|| s.fail())).is_err());
    assert_eq!(notes.take(), ["a before fail", "a after fail: Unwound"]);
    detach(s.id(), id).expect("it is attached");
    assert_eq!(s.sum(), 3);
    assert_eq!(notes.take(), [""; 0]);
    dropped(&notes);
    destroy(s.id());
}

#[test]
fn a_wrapper_can_do_without_postcall() {
    let s = store("before only");
    let notes = Arc::new(Notes::default());
    noting(s, "a", &notes, false);
    s.add(1);
    assert_eq!(notes.take(), ["a before add"]);
    destroy(s.id());
    dropped(&notes);
}

#[test]
fn the_first_wrapper_is_the_innermost() {
    let s = store("order");
    let notes = Arc::new(Notes::default());
    for name in ["a", "b", "c"] {
        noting(s, name, &notes, true);
    }
    s.sum();
    let expected = ["c before sum", "b before sum", "a before sum"];
    let back = ["a after sum: Returned", "b after sum: Returned", "c after sum: Returned"];
    assert_eq!(notes.take(), [expected, back].concat());
    let info = object(s.id()).expect("it lives");
    let names: Vec<_> = info.wrappers.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    destroy(s.id());
}

/// Looks at the arguments of `read`.
struct Looking(AtomicU64);

impl Wrapper for Looking {
    fn name(&self) -> &str {
        "looking"
    }
    fn precall(&self, call: &PreCall<'_>) -> After {
        let names: Vec<_> = call.arguments().iter().map(|a| a.name).collect();
        match call.method_name() {
            "read" => {
                assert_eq!(names, ["offset", "buf"]);
                assert_eq!(call.argument(0), Value::Unsigned(4096));
                assert_eq!(call.argument(1), Value::Length(16));
                assert!(call.can_fail());
            }
            "open" => {
                assert_eq!(names, ["what"]);
                assert_eq!(call.argument(0), Value::Opaque);
                assert!(!call.can_fail());
            }
            _ => assert!(names.len() <= 1),
        }
        assert_eq!(call.argument(7), Value::Opaque);
        self.0.fetch_add(1, Ordering::Relaxed);
        After::Forward
    }
}

#[test]
fn an_untyped_wrapper_sees_what_can_be_seen_of_the_arguments() {
    let s = store("arguments");
    let looking = Arc::new(Looking(AtomicU64::new(0)));
    attach(s.id(), Arc::clone(&looking)).expect("it lives");
    assert_eq!(s.read(4096, &mut [0; 16]), Ok(16));
    assert_eq!(s.open(Opaque(3)), 3);
    assert_eq!(looking.0.load(Ordering::Relaxed), 2, "it did not panic");
    destroy(s.id());
}

/// Doubles what is added, answers for 13, hides how much is there.
#[derive(Default)]
struct Meddling {
    unwound: AtomicU64,
}

impl StoreWrapper for Meddling {
    fn pre_add(&self, n: &mut u64) -> Pre<u64> {
        if *n == 13 {
            return Pre::Answer(1313);
        }
        *n *= 2;
        Pre::Forward
    }
    fn pre_read(&self, _offset: &mut u64, buf: &mut &mut [u8]) -> Pre<Result<usize, i32>> {
        let half = buf.len() / 2;
        let whole = std::mem::take(buf);
        *buf = &mut whole[..half];
        Pre::Postcall(half as u64)
    }
    fn post_read(&self, state: u64, result: &mut Result<usize, i32>) {
        assert_eq!(*result, Ok(state as usize));
        *result = Err(5);
    }
    fn post_sum(&self, _state: u64, result: &mut u64) {
        *result += 1000;
    }
    fn unwound(&self, method: u16, _state: u64) {
        self.unwound.fetch_add(u64::from(method), Ordering::Relaxed);
    }
    fn stats(&self) -> Vec<(String, u64)> {
        vec![("unwound".into(), self.unwound.load(Ordering::Relaxed))]
    }
}

#[test]
fn a_typed_wrapper_changes_arguments_and_results_and_answers_itself() {
    let s = store("typed");
    let meddling = Arc::new(Meddling::default());
    let wrapper = StoreInterface::wrapper("meddling", Arc::clone(&meddling));
    let id = attach_typed(s, wrapper).expect("it lives");
    assert_eq!(s.add(2), 0);
    assert_eq!(s.add(13), 1313);
    assert_eq!(s.sum(), 1004);
    let mut buf = [0; 4];
    assert_eq!(s.read(0, &mut buf), Err(5));
    assert_eq!(buf, [7, 7, 0, 0]);
    assert!(catch_unwind(AssertUnwindSafe(|| s.fail())).is_err());
    let info = object(s.id()).expect("it lives");
    assert_eq!(info.wrappers[0].name, "meddling");
    assert_eq!(info.wrappers[0].stats, [("unwound".to_owned(), 3)]);
    detach(s.id(), id).expect("it is attached");
    assert_eq!(s.sum(), 4);
    dropped(&meddling);
    destroy(s.id());
}

#[test]
fn a_wrapper_that_panics_is_detached_and_the_call_goes_on() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&seen);
    let observer: Arc<dyn Fn(&WrapperFailure) + Send + Sync> =
        Arc::new(move |failure| heard.lock().unwrap().push(failure.clone()));
    observe_failures(&observer);
    for after in [false, true] {
        let s = store(if after { "bomb after" } else { "bomb before" });
        let (bomb, counting) = (Arc::new(Bomb::default()), Counting::new());
        attach(s.id(), Arc::clone(&bomb)).expect("it lives");
        attach(s.id(), Arc::clone(&counting)).expect("it lives");
        s.add(1);
        if after { &bomb.after } else { &bomb.before }.store(true, Ordering::Relaxed);
        assert_eq!(s.add(1), 1, "the call goes on");
        assert_eq!(s.add(1), 2);
        let info = object(s.id()).expect("it lives");
        assert_eq!(info.wrappers.len(), 1, "only the one that panicked is gone");
        let [failure] = &info.wrapper_failures[..] else { panic!("{info:?}") };
        let stage = if after { "postcall" } else { "precall" };
        assert!(failure.why.contains(&format!("panicked in {stage} of add")), "{failure:?}");
        assert!(failure.why.contains("as asked"), "{failure:?}");
        assert_eq!(failure.from, "counting(bomb(one))");
        assert_eq!(failure.to, "counting(one)");
        let report = failure.report(7);
        assert!(report.committed() && report.change.owner.contains("bomb"), "{report:?}");
        let until = Instant::now() + Duration::from_secs(60);
        while !seen.lock().unwrap().contains(failure) {
            assert!(Instant::now() < until, "nobody was told");
            settle();
            std::thread::yield_now();
        }
        assert_eq!(counting.before.load(Ordering::Relaxed), 3);
        assert_eq!(counting.after.load(Ordering::Relaxed), 3);
        dropped(&bomb);
        destroy(s.id());
    }
}

/// The method panics, and then the wrapper over it.
#[test]
fn a_wrapper_that_panics_while_the_method_unwinds_does_not_hide_that() {
    let s = store("two panics");
    let bomb = Arc::new(Bomb::default());
    bomb.after.store(true, Ordering::Relaxed);
    attach(s.id(), Arc::clone(&bomb)).expect("it lives");
    let panic = catch_unwind(AssertUnwindSafe(|| s.fail())).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as asked"), "the method's own panic arrives");
    assert_eq!(object(s.id()).expect("it lives").wrappers, []);
    assert!(
        swap_named(s.id(), "spread", 1, &patient()).committed(),
        "nothing holds a request open"
    );
    dropped(&bomb);
    destroy(s.id());
}

/// Holds its call until it is released.
#[derive(Default)]
struct Stuck {
    inside: AtomicBool,
    go_on: AtomicBool,
}

impl Wrapper for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }
    fn precall(&self, call: &PreCall<'_>) -> After {
        if call.method_name() == "add" {
            self.inside.store(true, Ordering::Release);
            while !self.go_on.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
        After::Forward
    }
}

#[test]
fn a_wrapper_that_does_not_return_holds_its_own_call_only_and_is_named() {
    let s = store("stuck");
    let stuck = Arc::new(Stuck::default());
    let id = attach(s.id(), Arc::clone(&stuck)).expect("it lives");
    std::thread::scope(|scope| {
        let named = std::thread::Builder::new().name("held".into());
        let call = named.spawn_scoped(scope, || s.add(5)).expect("a thread can be made");
        while !stuck.inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(s.sum(), 0, "others go by");
        let options = SwapOptions { deadline: Duration::from_millis(50), ..patient() };
        let report = until_named("held", || swap_named(s.id(), "spread", 1, &options));
        assert!(matches!(&report.end, End::RolledBack(why) if why.contains("deadline")));
        let held = report.blockers.iter().find(|b| b.thread == "held").expect("it is named");
        assert_eq!((held.object.as_str(), held.method.as_str()), ("store:stuck", "add"));
        detach(s.id(), id).expect("detaching does not wait");
        stuck.go_on.store(true, Ordering::Release);
        assert_eq!(call.join().expect("no panic"), 0);
    });
    assert_eq!(s.sum(), 5);
    dropped(&stuck);
    destroy(s.id());
}

#[test]
fn wrappers_stay_through_a_swap_whichever_way_it_ends() {
    let s = store("swapped");
    let counting = Counting::new();
    attach(s.id(), Arc::clone(&counting)).expect("it lives");
    let mut calls = 0;
    for (n, to) in ["spread", "one", "one", "spread"].into_iter().enumerate() {
        let refuse = n == 2;
        let hook = move |phase| match phase {
            Phase::Transfer if refuse => Err("changed my mind".to_owned()),
            _ => Ok(()),
        };
        let options = SwapOptions { hook: Some(Arc::new(hook)), ..patient() };
        assert_eq!(swap_named(s.id(), to, 1, &options).committed(), !refuse);
        s.add(1);
        calls += 1;
        assert_eq!(counting.before.load(Ordering::Relaxed), calls);
        assert_eq!(counting.after.load(Ordering::Relaxed), calls);
    }
    assert_eq!(object(s.id()).expect("it lives").implementation, "spread");
    destroy(s.id());
    dropped(&counting);
}

#[test]
fn an_object_can_be_wrapped_and_unwrapped_in_every_phase_of_a_swap() {
    let phases = [Phase::Prepare, Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit];
    for at in phases {
        let s = store("wrapped in a swap");
        let (old, new) = (Counting::new(), Counting::new());
        let id = attach(s.id(), Arc::clone(&old)).expect("it lives");
        let (come, comes) = channel();
        let (gone, goes) = channel();
        let goes = std::sync::Mutex::new(goes);
        let hook = move |phase| {
            if phase == at {
                come.send(()).expect("the test listens");
                goes.lock().unwrap().recv().expect("the test speaks");
            }
            Ok(())
        };
        let options = SwapOptions { hook: Some(Arc::new(hook)), ..patient() };
        std::thread::scope(|scope| {
            let swap = scope.spawn(move || swap_named(s.id(), "spread", 1, &options));
            comes.recv().expect("the swap comes there");
            attach(s.id(), Arc::clone(&new)).expect("nobody waits for the swap");
            detach(s.id(), id).expect("nobody waits for the swap");
            gone.send(()).expect("the swap listens");
            assert!(swap.join().expect("no panic").committed());
        });
        s.add(1);
        assert_eq!(old.before.load(Ordering::Relaxed), 0);
        assert_eq!(new.before.load(Ordering::Relaxed), 1);
        destroy(s.id());
        dropped(&old);
        dropped(&new);
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_what_there_is() {
    let s = store("refused");
    let a = attach(s.id(), Counting::new()).expect("it lives");
    let b = attach(s.id(), Arc::new(Bomb::default())).expect("it lives");
    detach(s.id(), a).expect("it is attached");
    let error = detach(s.id(), a).expect_err("it is not attached any more");
    assert_eq!(
        error.to_string(),
        format!("no wrapper number {} is attached; there are: bomb", a.0)
    );
    let report = unwrap_named(s.id(), &Which::Named("count".into()), 1, "me");
    let End::Refused(why) = &report.end else { panic!("{report:?}") };
    assert_eq!(why, "no wrapper \"count\" is attached; there are: bomb");
    detach(s.id(), b).expect("it is attached");
    let error = detach(s.id(), b).expect_err("it is not attached any more");
    assert!(error.to_string().ends_with("there is none on this object"));
    let stack: Vec<_> =
        std::iter::repeat_with(|| attach(s.id(), Counting::new())).take(65).collect();
    assert_eq!(stack.last(), Some(&Err(WrapError::TooMany)));
    assert_eq!(s.add(1), 0, "64 wrappers deep");
    destroy(s.id());
    assert_eq!(attach(s.id(), Counting::new()), Err(WrapError::Gone));
    assert_eq!(detach(s.id(), a), Err(WrapError::Gone));
    let report = unwrap_named(s.id(), &Which::All, 1, "me");
    assert!(report.target_gone && matches!(report.end, End::Refused(_)), "{report:?}");
}

/// Takes itself away when it has seen enough, and cannot say what it has seen.
struct Once {
    object: refit_objects::ObjectId,
    own: std::sync::OnceLock<refit_objects::WrapperId>,
    seen: AtomicU64,
}

impl Wrapper for Once {
    fn name(&self) -> &str {
        "once"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let own = self.own.get().expect("it has been told");
        detach(self.object, *own).expect("it is attached");
        After::Postcall(0)
    }
    fn stats(&self) -> Vec<(String, u64)> {
        panic!("cannot say")
    }
}

#[test]
fn a_wrapper_can_take_itself_away_and_panic_over_what_it_has_counted() {
    let s = store("once");
    let object_id = s.id();
    let own = std::sync::OnceLock::new();
    let once = Arc::new(Once { object: object_id, own, seen: AtomicU64::new(0) });
    let id = attach(object_id, Arc::clone(&once)).expect("it lives");
    once.own.set(id).expect("told once");
    let info = object(object_id).expect("it lives");
    assert_eq!((info.wrappers[0].name.as_str(), &info.wrappers[0].stats[..]), ("once", &[][..]));
    (0..3).for_each(|n| assert_eq!(s.add(1), n));
    assert_eq!(once.seen.load(Ordering::Relaxed), 1);
    dropped(&once);
    destroy(object_id);
}

#[test]
fn wrappers_stay_when_objects_are_swapped_together() {
    let stores = [store("together a"), store("together b")];
    let counting = stores.map(|s| {
        let counting = Counting::new();
        attach(s.id(), Arc::clone(&counting)).expect("it lives");
        counting
    });
    let parts: Vec<_> = stores.iter().map(|s| (s.id(), "spread")).collect();
    assert!(swap_together(&parts, 1, &patient()).committed());
    refit_objects::request(|| stores.iter().for_each(|s| assert_eq!(s.add(1), 0)));
    counting.iter().for_each(|c| assert_eq!(c.after.load(Ordering::Relaxed), 1));
    stores.iter().for_each(|s| destroy(s.id()));
    counting.iter().for_each(dropped);
}

proptest! {
    /// Wrappers are attached and detached in any order; calls see those that are left, in order of
    /// attachment.
    #[test]
    fn order_is_that_of_attachment(steps in prop::collection::vec(0..6_u8, 1..30), post: bool) {
        let s = store("any order");
        let notes = Arc::new(Notes::default());
        let mut model = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                0..3 => model.push((n.to_string(), noting(s, &n.to_string(), &notes, post))),
                3 => prop_assert!(swap_named(s.id(), "spread", 1, &patient()).committed()),
                _ if model.is_empty() => {}
                _ => {
                    let (_, id) = model.remove(n * 7 % model.len());
                    detach(s.id(), id).expect("it is attached");
                }
            }
            s.sum();
            let before = model.iter().rev().map(|(name, _)| format!("{name} before sum"));
            let how = Outcome::Returned;
            let after = model.iter().map(|(name, _)| format!("{name} after sum: {how:?}"));
            let expected: Vec<_> = before.chain(after.filter(|_| post)).collect();
            prop_assert_eq!(notes.take(), expected);
        }
        destroy(s.id());
        dropped(&notes);
    }
}
