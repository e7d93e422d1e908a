//! Calls that panic while their object is swapped: each gives its ticket back, so that the swap does
//! not wait for it for ever.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{All, CounterInterface, CounterRef, Shared};
use refit_change::Phase;
use refit_objects::{
    OwnedRep, RequestToken, Root, SwapOptions, TransferError, create, destroy, swap_named,
};

/// A root that panics when it is asked for a rep, as long as that is wanted.
struct Unready {
    panics: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Root<CounterInterface> for Unready {
    fn implementation(&self) -> &str {
        "unready"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<CounterInterface> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.load(Ordering::Relaxed), "not ready");
        CounterInterface::rep(Shared::default())
    }
    fn export(&self) -> Result<u64, TransferError> {
        Ok(7)
    }
    fn import(&self, _state: u64) -> Result<(), TransferError> {
        Err(TransferError("never imports".into()))
    }
}

/// Calls the object from within its swap, when it is behind the mediator.
fn swap_with(c: CounterRef, calls: impl Fn() + Send + Sync + 'static) {
    let hook = move |phase| {
        if phase == Phase::Install {
            calls();
            assert!(format!("{:?}", RequestToken::of_this_request()).contains("[]"), "inside");
        }
        Ok(())
    };
    let options = SwapOptions {
        deadline: Duration::from_secs(20),
        hook: Some(Arc::new(hook)),
        ..SwapOptions::default()
    };
    let report = swap_named(c.id(), "shared", 1, &options);
    assert!(report.committed(), "{report:?}");
    assert_eq!(report.forwarded, 2);
    assert_eq!(c.sum(), 7);
    destroy(c.id());
}

fn panics(call: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
}

#[test]
fn a_call_whose_rep_cannot_be_made() {
    let (fails, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let root = Unready { panics: Arc::clone(&fails), asked: Arc::clone(&asked) };
    let c = create("unready", Box::new(root), Arc::new(All));
    swap_with(c, move || {
        panics(|| _ = c.sum());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the old root was asked, once");
        fails.store(false, Ordering::Relaxed);
        assert_eq!(c.sum(), 0, "and serves the next call");
    });
}

#[test]
fn a_call_whose_method_panics() {
    let (fails, asked) = (Arc::default(), Arc::default());
    let c = create("panics", Box::new(Unready { panics: fails, asked }), Arc::new(All));
    swap_with(c, move || {
        panics(|| c.fail());
        assert_eq!(c.sum(), 0);
    });
}
