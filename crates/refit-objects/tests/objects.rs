//! Tests of objects without swaps: look-up, lazy reps, miss handling, stale references.

mod common;

use common::{CounterInterface, Hold, counter};
use std::sync::atomic::{AtomicBool, Ordering};

use refit_objects::{
    ObjectId, SwapOptions, destroy, discard_entries, object, objects, reference, request, settle,
    swap_named,
};

#[test]
fn reps_are_made_on_first_use() {
    let c = counter("lazy", "partitioned");
    assert_eq!(object(c.id()).expect("it lives").reps, 0);
    c.add(1);
    let info = object(c.id()).expect("it lives");
    assert!(info.reps >= 1);
    assert!(info.misses >= 1);
    assert_eq!(info.name, "counter:lazy");
    assert_eq!(info.implementation, "partitioned");
    destroy(c.id());
}

#[test]
fn calls_of_many_threads_all_arrive() {
    let c = counter("many", "partitioned");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    c.add(1);
                }
            });
        }
    });
    assert_eq!(c.sum(), 40_000);
    destroy(c.id());
}

#[test]
fn a_stale_reference_panics_and_reaches_nobody_else() {
    let stale = counter("first", "shared");
    stale.add(5);
    destroy(stale.id());
    assert!(object(stale.id()).is_none());
    // The next object in this place of the table has another serial number.
    let others: Vec<_> = (0..64).map(|n| counter(&format!("other {n}"), "shared")).collect();
    assert!(std::panic::catch_unwind(|| stale.add(1)).is_err());
    assert!(others.iter().all(|o| o.sum() == 0));
    others.iter().for_each(|o| destroy(o.id()));
}

#[test]
fn places_in_the_table_are_used_again() {
    let before = objects().len();
    for _ in 0..10_000 {
        destroy(counter("short", "shared").id());
    }
    settle();
    assert!(objects().len() <= before + 100, "other tests run beside this one");
}

#[test]
fn a_call_that_panics_leaves_its_request() {
    let c = counter("panics", "shared");
    assert!(std::panic::catch_unwind(|| request(|| c.fail())).is_err());
    let report = refit_objects::swap_named(c.id(), "shared", 1, &Default::default());
    assert!(report.committed(), "{report:?}");
    destroy(c.id());
}

#[test]
fn a_call_that_is_inside_a_destroyed_object_ends_in_peace() {
    let (c, again) = (counter("inside", "shared"), counter("again", "shared"));
    let hold = Hold::default();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| c.stay(&hold, again));
        hold.wait_inside();
        destroy(c.id());
        hold.release();
        assert_eq!(call.join().expect("no panic"), 0);
    });
    assert_eq!(again.sum(), 1);
    destroy(again.id());
}

#[test]
fn destroying_twice_is_once() {
    let c = counter("twice", "shared");
    destroy(c.id());
    destroy(c.id());
    assert!(object(c.id()).is_none());
}

/// An interface that no object has.
#[refit_objects::interface(name = "bell", state = ())]
pub trait Bell {
    /// Rings the bell.
    fn ring(&self);
}

#[test]
fn a_reference_is_given_only_for_what_is_there_and_of_its_interface() {
    let c = counter("bound", "shared");
    let id = ObjectId::from_bits(c.id().to_bits());
    assert_eq!(reference::<CounterInterface>(id), Some(c));
    assert_eq!(reference::<BellInterface>(id), None, "another interface");
    for bits in [0, 1, u64::MAX, id.to_bits() ^ 1 << 40, id.to_bits() ^ (1 << 19)] {
        assert_eq!(reference::<CounterInterface>(ObjectId::from_bits(bits)), None, "{bits:#x}");
    }
    destroy(c.id());
    assert_eq!(reference::<CounterInterface>(id), None, "destroyed");
}

/// Entries are a cache: nothing is lost when they are discarded during calls and swaps.
#[test]
fn the_table_is_discarded_at_random_while_calls_run() {
    let c = counter("discard", "partitioned");
    let stop = AtomicBool::new(false);
    let added: u64 = std::thread::scope(|scope| {
        let adders: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        c.add(1);
                        c.nest(c, 2);
                        n += 2;
                    }
                    n
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                discard_entries();
            }
        });
        let options =
            SwapOptions { deadline: std::time::Duration::from_secs(60), ..Default::default() };
        for n in 0..500 {
            let to = ["shared", "partitioned"][n % 2];
            assert!(swap_named(c.id(), to, 0, &options).committed());
        }
        stop.store(true, Ordering::Relaxed);
        adders.into_iter().map(|a| a.join().expect("no panic")).sum()
    });
    assert_eq!(c.sum(), added);
    destroy(c.id());
}

#[test]
fn the_degree_of_clustering_is_swapped_like_anything_else() {
    let c = counter("degree", "partitioned");
    let processors = refit_sys::processor::count();
    for (n, (text, most)) in
        [("each", processors), ("one", 1), ("groups:2", processors.div_ceil(2)), ("map:5", 1)]
            .into_iter()
            .enumerate()
    {
        let options = SwapOptions {
            clustering: text.parse().expect("it is a clustering"),
            deadline: std::time::Duration::from_secs(60),
            ..Default::default()
        };
        assert!(swap_named(c.id(), "partitioned", 0, &options).committed());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| assert!(c.nest(c, 1) < u64::MAX)));
            }
        });
        assert_eq!(c.sum(), 4_000 * (n as u64 + 1));
        let info = object(c.id()).expect("it lives");
        assert_eq!(info.clustering, text);
        assert!((1..=most).contains(&info.reps), "{text}: {} reps", info.reps);
    }
    destroy(c.id());
}

/// Argument names that could collide with the variables of the generated code.
mod names {
    use refit_objects::{Choices, State, TransferError, destroy, interface};

    #[interface(name = "names", state = ())]
    trait Names {
        fn of_calls(&self, rep: u64, call: u64, mediated: u64, value: u64, this: u64) -> u64;
        fn of_shims(&self, after: u64, next: u64, state: u64, result: u64, outcome: u64) -> u64;
        fn of_others(&self, record: u64, object: u64, method: u64, index: u64, r#type: u64) -> u64;
        fn of_wrappers(&self, wrapper: u64, pre: u64, post: u64, unwound: u64, access: u64) -> u64;
    }

    #[derive(Default)]
    struct Adding;

    impl Names for Adding {
        fn of_calls(&self, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
            a * 10_000 + b * 1_000 + c * 100 + d * 10 + e
        }
        fn of_shims(&self, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
            self.of_calls(a, b, c, d, e)
        }
        fn of_others(&self, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
            self.of_calls(a, b, c, d, e)
        }
        fn of_wrappers(&self, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
            self.of_calls(a, b, c, d, e)
        }
    }

    impl State<()> for Adding {
        fn export(&self) -> Result<(), TransferError> {
            Ok(())
        }
        fn import(&self, (): ()) -> Result<(), TransferError> {
            Ok(())
        }
    }

    #[test]
    fn every_argument_arrives_in_its_place() {
        let choices = Choices::new().with("adding", NamesInterface::rep, || Adding);
        let unknown = Choices::<NamesInterface>::new().create("names", "adding");
        assert!(unknown.is_err_and(|error| error.to_string().contains("adding")));
        let names = choices.create("names", "adding").expect("it is in the list");
        assert_eq!(names.of_calls(1, 2, 3, 4, 5), 12_345);
        assert_eq!(names.of_shims(1, 2, 3, 4, 5), 12_345);
        assert_eq!(names.of_others(1, 2, 3, 4, 5), 12_345);
        assert_eq!(names.of_wrappers(1, 2, 3, 4, 5), 12_345);
        destroy(names.id());
    }
}
