//! Partitions that several threads move at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use refit_objects::change::{End, Report};
use refit_objects::transfer::{Exported, Protocol, Protocols, note};
use refit_objects::{
    Ending, Implementations, OwnedRep, Root, SwapOptions, TransferError, create, destroy,
    interface, swap_named,
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

/// The course of a transfer.
#[derive(Clone, Copy, PartialEq)]
enum Course {
    /// Nothing out of the ordinary. Each helper notes its first partition.
    Plain,
    /// The first partition, which the swapping thread moves before there are helpers, cannot be
    /// imported.
    FirstFails,
    /// Helpers cannot import.
    HelpersFail,
    /// The requester goes away during the export of the first partition, which does not return
    /// before the test says so.
    Stuck,
}

/// The state that all roots of one test share.
struct World {
    course: Course,
    /// Set when a helper takes part.
    helped: AtomicBool,
    /// The number of partitions whose export has begun.
    exported: AtomicUsize,
    /// Set when the requester goes away.
    cancel: Arc<AtomicBool>,
    /// Lets the export that is stuck return.
    gate: Mutex<Receiver<()>>,
    /// Tells that the new root was rolled back.
    rolled_back: Sender<()>,
}

/// A root that cannot count: only an error shows that a partition has not arrived.
struct PilesRoot(Arc<World>);

fn is_helper() -> bool {
    thread::current().name() == Some("refit-transfer")
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
        self.0.exported.fetch_add(1, SeqCst);
        if part == 0 && self.0.course == Course::Stuck {
            self.0.cancel.store(true, SeqCst);
            let _ = self.0.gate.lock().unwrap().recv(); // Until the test drops the other end.
        } else if part == 0 {
            // Long enough that several threads are worth their start.
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
        } else if matches!(self.0.course, Course::Plain | Course::HelpersFail) {
            // No thread moves all of them before a helper has begun.
            if is_helper() && !self.0.helped.swap(true, SeqCst) {
                note(format!("a helper has partition {part}"));
            }
            while !self.0.helped.load(SeqCst) {
                thread::yield_now();
            }
        }
        Ok(PilesInterface::PARTS.pack(part as u64))
    }

    fn import_part(
        &self,
        _protocol: Protocol,
        part: usize,
        state: Exported,
    ) -> Result<(), TransferError> {
        PilesInterface::PARTS.unpack(state)?;
        let fails = match self.0.course {
            Course::FirstFails => part == 0,
            Course::HelpersFail => is_helper(),
            Course::Plain | Course::Stuck => false,
        };
        if fails {
            return Err(TransferError("on purpose".into()));
        }
        Ok(())
    }

    fn relinquish(&self, ending: Ending<'_>) {
        if matches!(ending, Ending::RolledBack(_)) {
            // A test that waits for nothing has gone.
            let _ = self.0.rolled_back.send(());
        }
    }

    /// The swapping thread is no helper then.
    fn transfers_promptly(&self) -> bool {
        self.0.course != Course::Stuck
    }
}

struct AllPiles(Arc<World>);

impl Implementations<PilesInterface> for AllPiles {
    fn names(&self) -> Vec<&'static str> {
        vec!["piles"]
    }

    fn root(&self, _name: &str) -> Option<Box<dyn Root<PilesInterface>>> {
        Some(Box::new(PilesRoot(Arc::clone(&self.0))))
    }
}

/// An object of piles, and the ends of the channels of its world.
struct Scene {
    object: PilesRef,
    world: Arc<World>,
    open: Sender<()>,
    rolled_back: Receiver<()>,
}

fn scene(course: Course) -> Scene {
    let (open, gate) = channel();
    let (tell, rolled_back) = channel();
    let world = Arc::new(World {
        course,
        helped: AtomicBool::new(false),
        exported: AtomicUsize::new(0),
        cancel: Arc::default(),
        gate: Mutex::new(gate),
        rolled_back: tell,
    });
    let piles = AllPiles(Arc::clone(&world));
    let root = piles.root("piles").expect("it is the one");
    Scene { object: create("helpers", root, Arc::new(piles)), world, open, rolled_back }
}

/// Swaps with helpers; `None` if there can be none.
fn swap_with_helpers(course: Course) -> Option<Report> {
    if refit_sys::processor::count() < 2 {
        println!("skipped: one processor");
        return None;
    }
    let Scene { object, world, .. } = scene(course);
    let report = swap_named(object.id(), "piles", 1, &patient());
    assert!(world.helped.load(SeqCst), "a helper took part: {report:?}");
    assert!(world.exported.load(SeqCst) <= PARTS, "none is moved twice: {report:?}");
    assert!(object.is_whole());
    destroy(object.id());
    Some(report)
}

#[test]
fn a_partition_that_a_helper_cannot_import_rolls_the_swap_back() {
    let Some(report) = swap_with_helpers(Course::HelpersFail) else { return };
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    assert!(why.contains("import of partition") && why.contains("on purpose"), "{why}");
}

#[test]
fn a_first_partition_that_cannot_be_imported_rolls_the_swap_back() {
    let Scene { object, .. } = scene(Course::FirstFails);
    let report = swap_named(object.id(), "piles", 1, &patient());
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    assert!(why.contains("import of partition 0") && why.contains("on purpose"), "{why}");
    destroy(object.id());
}

#[test]
fn what_a_helper_notes_is_in_the_report() {
    let Some(report) = swap_with_helpers(Course::Plain) else { return };
    assert!(report.committed(), "{report:?}");
    let notes = &report.transfers[0].notes;
    let [note] = &notes[..] else { panic!("one note: {notes:?}") };
    assert!(note.starts_with("a helper has partition "), "{note}");
}

/// The old root serves calls again, so it must not be asked for its other partitions.
#[test]
fn no_partition_is_begun_after_the_swap_was_given_up() {
    let Scene { object, world, open, rolled_back } = scene(Course::Stuck);
    let options = SwapOptions { cancel: Some(Arc::clone(&world.cancel)), ..patient() };
    let report = swap_named(object.id(), "piles", 1, &options);
    let End::RolledBack(why) = &report.end else { panic!("{report:?}") };
    assert!(why.contains("went away") && why.contains("has not returned"), "{why}");
    drop(open);
    rolled_back.recv().expect("the new root is told when its thread ends");
    assert_eq!(world.exported.load(SeqCst), 1);
    destroy(object.id());
}
