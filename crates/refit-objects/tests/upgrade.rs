//! Upgrades of a class: all of its objects and what new ones are made of, or nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use refit_objects::change::{End, Phase};
use refit_objects::{
    CreateError, Factory, Implementations, OwnedRep, Root, SwapOptions, TransferError,
    UpgradeControl, UpgradeOptions, classes, create, destroy, interface, object, settle,
    swap_named, upgrade,
};

/// The tests of this process share the class; upgrades concern all of it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Counts.
#[interface(name = "tally", state = u64)]
pub trait Tally {
    /// Adds one; what it was before.
    fn add(&self) -> u64;
}

struct Plain(Arc<AtomicU64>);

impl Tally for Plain {
    fn add(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Imports until the fuse has burnt down.
static FUSE: AtomicU64 = AtomicU64::new(u64::MAX);

struct PlainRoot(&'static str, Arc<AtomicU64>);

/// The number of roots that live.
static ROOTS: AtomicU64 = AtomicU64::new(0);

impl Drop for PlainRoot {
    fn drop(&mut self) {
        ROOTS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Root<TallyInterface> for PlainRoot {
    fn implementation(&self) -> &str {
        self.0
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<TallyInterface> {
        TallyInterface::rep(Plain(Arc::clone(&self.1)))
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.1.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        if self.0 == "fused" && FUSE.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(TransferError("burnt down".into()));
        }
        self.1.store(state, Ordering::Relaxed);
        Ok(())
    }
    fn transfers_promptly(&self) -> bool {
        true
    }
}

struct Plains;

impl Implementations<TallyInterface> for Plains {
    fn names(&self) -> Vec<&'static str> {
        vec!["first", "second", "fused"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<TallyInterface>>> {
        let name = self.names().into_iter().find(|n| *n == name)?;
        ROOTS.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(PlainRoot(name, Arc::default())))
    }
}

fn options() -> UpgradeOptions {
    let swap = SwapOptions { deadline: Duration::from_secs(60), ..SwapOptions::default() };
    UpgradeOptions { swap, ..UpgradeOptions::default() }
}

fn make(factory: &Factory<TallyInterface>, many: u64) -> Vec<TallyRef> {
    let one = |n| factory.create(format!("t{n}"), Arc::new(Plains), Some(n));
    (0..many).map(|n| one(n).expect("the implementation is there")).collect()
}

fn serving(tally: TallyRef) -> String {
    object(tally.id()).expect("it lives").implementation
}

#[test]
fn all_objects_and_new_ones_are_of_the_new_implementation() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Factory::<TallyInterface>::new("a", "first");
    let others = Factory::<TallyInterface>::new("b", "first");
    let tallies = [make(&factory, 300), make(&others, 3)].concat();
    let bystander: TallyRef =
        create("bystander", Plains.root("first").expect("it is there"), Arc::new(Plains));
    let info = classes().into_iter().find(|c| c.factory == "a").expect("it is listed");
    assert_eq!((info.class.as_str(), info.instances), ("tally", 300));
    destroy(tallies[7].id());

    let report = upgrade("tally", "second", 1, &options());
    assert!(report.committed(), "{report:?}");
    assert_eq!(report.objects, 302);
    assert_eq!(report.change.from, "first");
    for (n, tally) in tallies.iter().enumerate().filter(|(n, _)| *n != 7) {
        assert_eq!(serving(*tally), "second");
        assert_eq!(tally.add(), if n < 300 { n as u64 } else { n as u64 - 300 });
    }
    assert_eq!(serving(bystander), "first", "no factory has made it");
    let late = make(&factory, 1)[0];
    assert_eq!(serving(late), "second");
    destroy(late.id());
    assert_eq!(classes().iter().filter(|c| c.implementation == "second").count(), 2);

    assert!(upgrade("tally", "first", 2, &options()).committed());
    assert_eq!(tallies[299].add(), 300, "its count came along");
    let refused = upgrade("tally", "third", 3, &options());
    assert!(matches!(&refused.end, End::Refused(why) if why.contains("there are: first, second")));
    let refused = upgrade("tallies", "first", 4, &options());
    assert!(matches!(&refused.end, End::Refused(why) if why.contains("no class \"tallies\"")));
    assert_eq!(factory.implementation(), "first");
    drop((factory, others));
    let report = upgrade("tally", "second", 5, &options());
    assert_eq!(report.objects, 302, "objects outlive their factory, and its class with them");
    tallies.iter().for_each(|t| destroy(t.id()));
    destroy(bystander.id());
}

/// Frees everything that can be freed now, and waits until `what` holds then.
fn settled(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while settle() > 0 || !what() {
        assert!(Instant::now() < until, "{} roots live", ROOTS.load(Ordering::Relaxed));
        std::thread::yield_now();
    }
}

#[test]
fn the_old_implementations_are_freed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Factory::<TallyInterface>::new("freed", "first");
    let tallies = make(&factory, 10);
    settled(|| true);
    let before = ROOTS.load(Ordering::Relaxed);
    assert!(upgrade("tally", "second", 1, &options()).committed());
    settled(|| ROOTS.load(Ordering::Relaxed) <= before);
    tallies.iter().for_each(|t| destroy(t.id()));
}

#[test]
fn an_object_that_fails_takes_all_of_it_back() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Factory::<TallyInterface>::new("f", "first");
    let tallies = make(&factory, 200);
    let odd = tallies[20];
    assert!(swap_named(odd.id(), "second", 1, &options().swap).committed());
    for fuse in [0, 1, 63, 64, 130, 199] {
        FUSE.store(fuse, Ordering::Relaxed);
        let report = upgrade("tally", "fused", 2, &options());
        FUSE.store(u64::MAX, Ordering::Relaxed);
        let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
        assert!(why.contains("transfer failed: ") && why.ends_with("burnt down"), "{why}");
        assert_eq!(factory.implementation(), "first");
        for tally in &tallies {
            let before = if *tally == odd { "second" } else { "first" };
            assert_eq!(serving(*tally), before);
        }
    }
    for (n, tally) in tallies.iter().enumerate() {
        assert_eq!(tally.add(), n as u64);
    }
    tallies.iter().for_each(|t| destroy(t.id()));
}

#[test]
fn what_is_made_during_an_upgrade_that_fails_is_swapped_back_too() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Arc::new(Factory::<TallyInterface>::new("m", "first"));
    let tallies = make(&factory, 100);
    let made = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let (factory, made) = (Arc::clone(&factory), Arc::clone(&made));
        let seen = AtomicU64::new(0);
        move |phase| {
            if phase != Phase::Transfer {
                return Ok(());
            }
            let fresh = factory.create("fresh", Arc::new(Plains), Some(7)).expect("it is made");
            made.lock().expect("no panic").push(fresh);
            if seen.fetch_add(1, Ordering::Relaxed) == 80 { Err("no more".into()) } else { Ok(()) }
        }
    };
    let mut options = options();
    options.swap.hook = Some(Arc::new(hook));
    let report = upgrade("tally", "second", 1, &options);
    assert!(report.rolled_back(), "{report:?}");
    let made = std::mem::take(&mut *made.lock().expect("no panic"));
    assert_eq!(made.len(), 81);
    for tally in tallies.iter().chain(&made) {
        assert_eq!(serving(*tally), "first");
    }
    assert_eq!(made[80].add(), 7);
    tallies.iter().chain(&made).for_each(|t| destroy(t.id()));
}

/// Callers, makers and destroyers at work while the class is upgraded back and forth.
#[test]
fn nothing_is_lost_while_the_class_is_upgraded_under_load() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Factory::<TallyInterface>::new("load", "first");
    let tallies = make(&factory, 1_000);
    let start: u64 = (0..1_000).sum();
    let stop = AtomicBool::new(false);
    let added: u64 = std::thread::scope(|scope| {
        let adders: Vec<_> = (0..2)
            .map(|part| {
                let (tallies, stop) = (&tallies, &stop);
                scope.spawn(move || {
                    let mut n = part;
                    while !stop.load(Ordering::Relaxed) {
                        tallies[n * 7 % 1_000].add();
                        n += 1;
                    }
                    (n - part) as u64
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let [fresh] = make(&factory, 1)[..] else { panic!("one was asked for") };
                fresh.add();
                destroy(fresh.id());
            }
        });
        for n in 0..40 {
            let report = upgrade("tally", ["second", "first"][n % 2], 0, &options());
            assert!(report.committed(), "{report:?}");
        }
        stop.store(true, Ordering::Relaxed);
        adders.into_iter().map(|a| a.join().expect("no panic")).sum()
    });
    assert_eq!(tallies.iter().map(|t| t.add()).sum::<u64>(), start + added);
    tallies.iter().for_each(|t| destroy(t.id()));
    while settle() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn an_upgrade_is_held_up_followed_and_called_off() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Factory::<TallyInterface>::new("p", "first");
    let tallies = make(&factory, 200);
    let control = Arc::new(UpgradeControl::default());
    let cancel = Arc::new(AtomicBool::new(false));
    let mut options = options();
    options.control = Arc::clone(&control);
    options.swap.cancel = Some(Arc::clone(&cancel));
    options.swap.hook = Some({
        let control = Arc::clone(&control);
        let seen = AtomicU64::new(0);
        Arc::new(move |phase| {
            if phase == Phase::Commit && seen.fetch_add(1, Ordering::Relaxed) == 10 {
                control.pause(true);
            }
            Ok(())
        })
    });
    let report = std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| upgrade("tally", "second", 1, &options));
        // Held up after the batch with the eleventh object: some are old now, some are new.
        while control.progress() != (64, 200) {
            assert!(!upgrade.is_finished(), "it is held up");
            std::thread::yield_now();
        }
        assert!(control.paused());
        let new = tallies.iter().filter(|t| serving(**t) == "second").count();
        assert_eq!(new, 64);
        tallies.iter().for_each(|t| assert!(t.add() < 200));
        cancel.store(true, Ordering::Relaxed);
        upgrade.join().expect("no panic")
    });
    assert!(report.rolled_back(), "{report:?}");
    tallies.iter().for_each(|t| assert_eq!(serving(*t), "first"));

    let mut options = self::options();
    options.rate = Some(2_000.0);
    let began = std::time::Instant::now();
    assert!(upgrade("tally", "second", 1, &options).committed());
    assert!(began.elapsed() >= Duration::from_millis(60), "200 at 2,000 a second");
    tallies.iter().for_each(|t| destroy(t.id()));
}

#[test]
fn a_factory_says_what_it_cannot_make() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let factory = Factory::<TallyInterface>::new("x", "third");
    let error = factory.create("t", Arc::new(Plains), None).expect_err("there is no third");
    assert!(matches!(error, CreateError::UnknownImplementation { .. }));
    assert!(error.to_string().contains("first, second, fused"), "{error}");
    FUSE.store(0, Ordering::Relaxed);
    let factory = Factory::<TallyInterface>::new("x", "fused");
    let error = factory.create("t", Arc::new(Plains), Some(1)).expect_err("the fuse is short");
    FUSE.store(u64::MAX, Ordering::Relaxed);
    assert!(matches!(&error, CreateError::State(why) if why.0 == "burnt down"), "{error}");
}
