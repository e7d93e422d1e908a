//! Panics during a swap: a call gives its ticket back, so that the swap does not wait for it for
//! ever, and a root that panics when it relinquishes does not keep the swap from ending.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use refit_objects::change::Phase;
use refit_objects::{
    Ending, Implementations, OwnedRep, RequestToken, Root, SwapOptions, TransferError, create,
    destroy, interface, swap_named,
};

#[interface(name = "brittle", state = ())]
trait Brittle {
    fn serves(&self) -> bool;
    /// Panics.
    fn fail(&self);
}

struct Rep;

impl Brittle for Rep {
    fn serves(&self) -> bool {
        true
    }
    fn fail(&self) {
        panic!("as asked");
    }
}

/// A root that panics when it is asked for a rep, or relinquishes, as long as that is wanted.
#[derive(Clone, Default)]
struct BrittleRoot {
    panics: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Root<BrittleInterface> for BrittleRoot {
    fn implementation(&self) -> &str {
        "brittle"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<BrittleInterface> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.load(Ordering::Relaxed), "not ready");
        BrittleInterface::rep(Rep)
    }
    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }
    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
    /// So it relinquishes on the swapping thread.
    fn transfers_promptly(&self) -> bool {
        true
    }
    fn relinquish(&self, _ending: Ending<'_>) {
        assert!(!self.panics.load(Ordering::Relaxed), "not ready");
    }
}

struct All;

impl Implementations<BrittleInterface> for All {
    fn names(&self) -> Vec<&'static str> {
        vec!["brittle"]
    }
    fn root(&self, _name: &str) -> Option<Box<dyn Root<BrittleInterface>>> {
        Some(Box::new(BrittleRoot::default()))
    }
}

/// Makes two calls from within a swap of the object, when it is behind the mediator.
fn swap_with(root: BrittleRoot, calls: impl Fn(BrittleRef) + Send + Sync + 'static) {
    let c: BrittleRef = create("brittle", Box::new(root), Arc::new(All));
    let hook = move |phase| {
        if phase == Phase::Install {
            calls(c);
            assert!(format!("{:?}", RequestToken::of_this_request()).contains("[]"), "inside");
        }
        Ok(())
    };
    let options = SwapOptions {
        deadline: Duration::from_secs(20),
        hook: Some(Arc::new(hook)),
        ..SwapOptions::default()
    };
    let report = swap_named(c.id(), "brittle", 1, &options);
    assert!(report.committed(), "{report:?}");
    assert_eq!(report.forwarded, 2);
    assert!(c.serves());
    destroy(c.id());
}

#[test]
fn a_root_that_panics_when_it_relinquishes() {
    let root = BrittleRoot::default();
    let fails = Arc::clone(&root.panics);
    let c: BrittleRef = create("relinquishes", Box::new(root), Arc::new(All));
    assert!(c.serves());
    fails.store(true, Ordering::Relaxed);
    let options = SwapOptions { deadline: Duration::from_secs(20), ..SwapOptions::default() };
    let report = swap_named(c.id(), "brittle", 1, &options);
    assert!(report.committed(), "{report:?}");
    assert!(c.serves());
    destroy(c.id());
}

fn panics(call: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
}

#[test]
fn a_call_whose_rep_cannot_be_made() {
    let root = BrittleRoot::default();
    let BrittleRoot { panics: fails, asked } = root.clone();
    fails.store(true, Ordering::Relaxed);
    swap_with(root, move |c| {
        panics(|| _ = c.serves());
        assert_eq!(asked.load(Ordering::Relaxed), 1, "the old root was asked, once");
        fails.store(false, Ordering::Relaxed);
        assert!(c.serves(), "the next call finds a rep");
    });
}

#[test]
fn a_call_whose_method_panics() {
    swap_with(BrittleRoot::default(), |c| {
        panics(|| c.fail());
        assert!(c.serves());
    });
}
