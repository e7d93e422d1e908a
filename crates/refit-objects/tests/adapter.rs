//! References to an old interface go on working over an implementation of a new one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use refit_objects::{
    Adapted, Adapter, Implementations, OwnedRep, Root, SwapOptions, TransferError, create, destroy,
    interface, swap_named,
};

/// Counts one thing.
#[interface(name = "clicker", state = u64)]
pub trait Clicker {
    /// Counts; how many there were before.
    fn click(&self) -> u64;
}

/// Counts many things, by name: what became of the clicker.
#[interface(name = "tallies", state = Vec<(String, u64)>)]
pub trait Tallies {
    /// Adds; the sum.
    fn add(&self, what: &str, n: u64) -> u64;
}

#[derive(Clone, Default)]
struct Plain(Arc<AtomicU64>);

impl Clicker for Plain {
    fn click(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Root<ClickerInterface> for Plain {
    fn implementation(&self) -> &str {
        "plain"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<ClickerInterface> {
        ClickerInterface::rep(self.clone())
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(self.0.load(Ordering::Relaxed))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.0.store(state, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Listed(Arc<Mutex<Vec<(String, u64)>>>);

impl Tallies for Listed {
    fn add(&self, what: &str, n: u64) -> u64 {
        let mut all = self.0.lock().unwrap();
        let at = all.iter().position(|(name, _)| name == what).unwrap_or_else(|| {
            all.push((what.to_owned(), 0));
            all.len() - 1
        });
        all[at].1 += n;
        all[at].1
    }
}

impl Root<TalliesInterface> for Listed {
    fn implementation(&self) -> &str {
        "listed"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<TalliesInterface> {
        TalliesInterface::rep(self.clone())
    }
    fn export(&self) -> Result<Vec<(String, u64)>, TransferError> {
        Ok(self.0.lock().unwrap().clone())
    }
    fn import(&self, state: Vec<(String, u64)>) -> Result<(), TransferError> {
        *self.0.lock().unwrap() = state;
        Ok(())
    }
}

/// A clicker is the tally of clicks.
struct Clicks;

struct OverTallies(OwnedRep<TalliesInterface>);

impl Clicker for OverTallies {
    fn click(&self) -> u64 {
        self.0.add("clicks", 1) - 1
    }
}

impl Adapter for Clicks {
    type Old = ClickerInterface;
    type New = TalliesInterface;
    fn rep(&self, new: OwnedRep<TalliesInterface>) -> OwnedRep<ClickerInterface> {
        ClickerInterface::rep(OverTallies(new))
    }
    fn down(&self, state: Vec<(String, u64)>) -> Result<u64, TransferError> {
        match &state[..] {
            [] => Ok(0),
            [(what, n)] if what == "clicks" => Ok(*n),
            _ => Err(TransferError("a clicker cannot hold other tallies than clicks".into())),
        }
    }
    fn up(&self, state: u64) -> Result<Vec<(String, u64)>, TransferError> {
        Ok(vec![("clicks".into(), state)])
    }
}

struct Both;

impl Implementations<ClickerInterface> for Both {
    fn names(&self) -> Vec<&'static str> {
        vec!["plain", "listed"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<ClickerInterface>>> {
        match name {
            "plain" => Some(Box::new(Plain::default())),
            "listed" => Some(Box::new(Adapted::new(Clicks, Box::new(Listed::default())))),
            _ => None,
        }
    }
}

#[test]
fn old_references_are_served_by_a_new_implementation_swapped_under_load() {
    let clicker: ClickerRef = create("old", Box::new(Plain::default()), Arc::new(Both));
    let ended = AtomicBool::new(false);
    let clicks: u64 = std::thread::scope(|scope| {
        let clickers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut clicks, mut last) = (0, None);
                    while !ended.load(Ordering::Relaxed) {
                        let before = clicker.click();
                        assert!(last < Some(before), "counts never go back");
                        (clicks, last) = (clicks + 1, Some(before));
                    }
                    clicks
                })
            })
            .collect();
        let swaps = std::panic::catch_unwind(|| {
            for round in 0..200 {
                let to = if round % 2 == 0 { "listed" } else { "plain" };
                let report = swap_named(clicker.id(), to, round, &SwapOptions::default());
                assert!(report.committed(), "{:?}", report.end);
            }
        });
        ended.store(true, Ordering::Relaxed);
        swaps.expect("every swap is committed");
        clickers.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(clicker.click(), clicks);
    destroy(clicker.id());
}

#[test]
fn state_that_the_old_interface_cannot_express_is_refused() {
    let root = Listed::default();
    root.add("clicks", 1);
    root.add("other", 1);
    let adapted = Adapted::new(Clicks, Box::new(root));
    assert!(adapted.export().is_err());
}
