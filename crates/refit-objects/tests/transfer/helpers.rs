//! Partitions that several threads move at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use refit_objects::change::End;
use refit_objects::transfer::{Exported, Protocol, Protocols};
use refit_objects::{
    Implementations, OwnedRep, Root, TransferError, create, destroy, interface, swap_named,
};

use crate::table::patient;

#[interface(name = "piles", state = (), protocols(parts = partitioned(u64)))]
trait Piles {
    fn is_whole(&self) -> bool;
}

const PARTS: usize = 32;

struct Whole;

impl Piles for Whole {
    fn is_whole(&self) -> bool {
        true
    }
}

/// A root that cannot count: only an error shows that a partition has not arrived.
struct PilesRoot {
    /// Set when a helper has failed.
    failed: Arc<AtomicBool>,
}

impl Root<PilesInterface> for PilesRoot {
    fn implementation(&self) -> &str {
        "piles"
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<PilesInterface> {
        PilesInterface::rep(Whole)
    }

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }

    fn protocols(&self) -> Protocols {
        Protocols::only([PilesInterface::PARTS.id()])
    }

    fn partitions(&self, _protocol: Protocol) -> usize {
        PARTS
    }

    fn export_part(&self, _protocol: Protocol, part: usize) -> Result<Exported, TransferError> {
        // Long enough that several threads are worth their start, and each gets some.
        thread::sleep(Duration::from_millis(2));
        Ok(PilesInterface::PARTS.pack(part as u64))
    }

    fn import_part(
        &self,
        _protocol: Protocol,
        _part: usize,
        state: Exported,
    ) -> Result<(), TransferError> {
        PilesInterface::PARTS.unpack(state)?;
        if thread::current().name() == Some("refit-transfer") {
            self.failed.store(true, Relaxed);
            return Err(TransferError("on purpose".into()));
        }
        Ok(())
    }

    /// The swapping thread is no helper then.
    fn transfers_promptly(&self) -> bool {
        true
    }
}

struct AllPiles(Arc<AtomicBool>);

impl Implementations<PilesInterface> for AllPiles {
    fn names(&self) -> Vec<&'static str> {
        vec!["piles"]
    }

    fn root(&self, _name: &str) -> Option<Box<dyn Root<PilesInterface>>> {
        Some(Box::new(PilesRoot { failed: Arc::clone(&self.0) }))
    }
}

#[test]
fn a_partition_that_a_helper_cannot_import_rolls_the_swap_back() {
    if refit_sys::processor::count() < 2 {
        println!("skipped: one processor");
        return;
    }
    let piles = AllPiles(Arc::default());
    let failed = Arc::clone(&piles.0);
    let root = piles.root("piles").expect("it is the one");
    let object: PilesRef = create("helpers", root, Arc::new(piles));
    let report = swap_named(object.id(), "piles", 1, &patient());
    assert!(failed.load(Relaxed), "a helper took part: {report:?}");
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    assert!(why.contains("import of partition") && why.contains("on purpose"), "{why}");
    assert!(object.is_whole());
    destroy(object.id());
}
