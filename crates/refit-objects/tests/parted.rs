//! Tests of implementations whose export, import or relinquish does not return: the deadline
//! passes, and calls continue.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use refit_change::Report;
use refit_objects::{
    Ending, Handover, Implementations, OwnedRep, Root, SwapOptions, TransferError, create, destroy,
    interface, object, swap_named,
};

#[interface(name = "parted-notes", state = u64, hint)]
pub(crate) trait Notes {
    fn add(&self, n: u64) -> u64;
}

#[interface(name = "parted-sums", state = u64, empty)]
pub(crate) trait Sums {
    fn sum(&self) -> u64;
}

#[interface(name = "parted-data", state = u64)]
pub(crate) trait Data {
    fn sum(&self) -> u64;
}

/// A gate at which steps wait until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.changed.wait(open).unwrap();
        }
    }
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// The step of the transfer that does not return.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stuck {
    Nowhere,
    Export,
    Import,
    Relinquish,
}

/// The state that the roots of one test share.
#[derive(Default)]
struct World {
    gate: Gate,
    /// Whether a step waits at the gate.
    waits: AtomicBool,
    /// Whether a root was told of the end while a step waited.
    told_early: AtomicBool,
    /// The number of roots of "two" that were made.
    made: AtomicU64,
    /// The number of roots that were told that their swap was rolled back, or committed.
    rolled_back: AtomicU64,
    committed: AtomicU64,
    imported: AtomicBool,
    /// Whether the root that imports was asked for the number of its items.
    counted: AtomicBool,
}

#[derive(Clone)]
struct StuckRoot {
    name: &'static str,
    stuck: Stuck,
    sum: Arc<AtomicU64>,
    world: Arc<World>,
}

impl StuckRoot {
    /// Does not return from `step` until the gate is open, if that is where it is stuck.
    fn pass(&self, step: Stuck) {
        if self.stuck == step {
            // Or the swapping thread would wait at the gate.
            assert_eq!(std::thread::current().name(), Some("refit-transfer"), "{step:?}");
            // At its end it lets go, and is told no more.
            self.world.waits.store(step != Stuck::Relinquish, SeqCst);
            self.world.gate.pass();
            self.world.waits.store(false, SeqCst);
        }
    }
}

impl Notes for StuckRoot {
    fn add(&self, n: u64) -> u64 {
        self.sum.fetch_add(n, SeqCst) + n
    }
}

impl Root<NotesInterface> for StuckRoot {
    fn implementation(&self) -> &str {
        self.name
    }
    fn make_rep(&self, _: usize) -> OwnedRep<NotesInterface> {
        NotesInterface::rep(self.clone())
    }
    fn export(&self) -> Result<u64, TransferError> {
        self.pass(Stuck::Export);
        Ok(self.sum.load(SeqCst))
    }
    fn import(&self, state: u64) -> Result<(), TransferError> {
        self.pass(Stuck::Import);
        self.world.imported.store(true, SeqCst);
        self.sum.store(state, SeqCst);
        Ok(())
    }
    fn count(&self) -> Option<u64> {
        self.world.counted.fetch_or(self.name == "two", SeqCst);
        Some(1)
    }
    /// The other root of the swap may be stuck nevertheless.
    fn transfers_promptly(&self) -> bool {
        self.stuck == Stuck::Nowhere
    }
    fn relinquish(&self, ending: Ending<'_>) {
        self.world.told_early.fetch_or(self.world.waits.load(SeqCst), SeqCst);
        self.pass(Stuck::Relinquish);
        match ending {
            Ending::Committed => &self.world.committed,
            Ending::RolledBack(_) => &self.world.rolled_back,
        }
        .fetch_add(1, SeqCst);
    }
}

struct Both {
    world: Arc<World>,
    stuck: [Stuck; 2],
}

impl Implementations<NotesInterface> for Both {
    fn names(&self) -> Vec<&'static str> {
        vec!["one", "two"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<NotesInterface>>> {
        let (name, stuck) = match name {
            "one" => ("one", self.stuck[0]),
            "two" => {
                self.world.made.fetch_add(1, SeqCst);
                ("two", self.stuck[1])
            }
            _ => return None,
        };
        let (sum, world) = (Arc::default(), Arc::clone(&self.world));
        Some(Box::new(StuckRoot { name, stuck, sum, world }))
    }
}

fn notes(name: &str, stuck: [Stuck; 2]) -> (NotesRef, Arc<World>) {
    let world = Arc::<World>::default();
    let all = Arc::new(Both { world: Arc::clone(&world), stuck });
    let root = all.root("one").expect("it is in the list");
    (create(name.to_owned(), root, all), world)
}

fn within(deadline: Duration) -> SwapOptions {
    SwapOptions { deadline, ..SwapOptions::default() }
}

fn patient() -> SwapOptions {
    within(Duration::from_secs(60))
}

/// Swaps with a short deadline until that passes in a step that does not return, or the swap is
/// refused because of one. On a busy machine it may pass before the step begins, and nothing has
/// happened then.
fn swap_until(notes: NotesRef, says: &str) -> Report {
    loop {
        let report = swap_named(notes.id(), "two", 1, &within(Duration::from_millis(50)));
        assert!(report.rolled_back() || !report.late, "{report:?}");
        if format!("{:?}", report.end).contains(says) {
            return report;
        }
        assert!(format!("{:?}", report.end).contains("the deadline of"), "{report:?}");
    }
}

/// Waits until `what` holds; another thread makes it so.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

#[test]
fn calls_go_on_with_the_old_object_when_export_or_import_does_not_return() {
    for stuck in [[Stuck::Export, Stuck::Nowhere], [Stuck::Nowhere, Stuck::Import]] {
        let (n, world) = notes("stuck", stuck);
        n.add(5);
        // A caller that arrives while calls are blocked must not wait for the export.
        let report = std::thread::scope(|scope| {
            let swap = scope.spawn(|| swap_until(n, "has not returned"));
            let mut sum = 5;
            while !swap.is_finished() {
                sum += 1;
                assert_eq!(n.add(1), sum);
            }
            swap.join().expect("it returned")
        });
        assert!(report.rolled_back() && report.late, "{stuck:?}: {report:?}");
        assert_eq!(object(n.id()).expect("it lives").implementation, "one");
        let before = n.add(0);
        world.gate.open();
        until(|| world.rolled_back.load(SeqCst) == world.made.load(SeqCst));
        assert!(!world.told_early.load(SeqCst), "its step was still running");
        // The result of an export that returned too late was not imported.
        assert_eq!(world.imported.load(SeqCst), stuck[1] == Stuck::Import);
        assert!(!world.counted.load(SeqCst), "nor was anything else asked of the new one");
        // Both steps work now, and nothing was lost.
        until(|| swap_named(n.id(), "two", 2, &patient()).committed());
        assert_eq!(n.add(0), before);
        destroy(n.id());
    }
}

#[test]
fn an_object_whose_export_has_not_returned_is_swapped_without_its_state() {
    let (n, world) = notes("hint", [Stuck::Export, Stuck::Nowhere]);
    n.add(5);
    assert!(swap_until(n, "has not returned").rolled_back());
    swap_until(n, "without its state");
    let without = SwapOptions { handover: Handover::WithoutState, ..patient() };
    let report = swap_named(n.id(), "two", 3, &without);
    assert!(report.committed(), "{report:?}");
    assert_eq!(n.add(0), 0, "the new implementation begins as it was made");
    world.gate.open();
    destroy(n.id());
}

#[test]
fn calls_go_on_when_the_loser_does_not_let_go() {
    let (n, world) = notes("let go", [Stuck::Relinquish, Stuck::Nowhere]);
    n.add(5);
    let report = swap_named(n.id(), "two", 1, &patient());
    assert!(report.committed(), "{report:?}");
    assert_eq!(n.add(1), 6);
    let notes = &report.transfers[0].notes;
    assert!(notes.iter().any(|note| note.contains("letting go")), "{report:?}");
    world.gate.open();
    until(|| world.committed.load(SeqCst) == 1);
    destroy(n.id());
}

struct Sum(u64);
impl Sums for Sum {
    fn sum(&self) -> u64 {
        self.0
    }
}
impl Data for Sum {
    fn sum(&self) -> u64 {
        self.0
    }
}

/// A root that exports nothing.
struct Mute;
macro_rules! mute {
    ($interface:ty) => {
        impl Root<$interface> for Mute {
            fn implementation(&self) -> &str {
                "mute"
            }
            fn make_rep(&self, _: usize) -> OwnedRep<$interface> {
                <$interface>::rep(Sum(7))
            }
            fn export(&self) -> Result<u64, TransferError> {
                Err(TransferError("never".into()))
            }
            fn import(&self, state: u64) -> Result<(), TransferError> {
                assert_eq!(state, 0, "the empty state");
                Ok(())
            }
        }
        impl Implementations<$interface> for Mute {
            fn names(&self) -> Vec<&'static str> {
                vec!["mute"]
            }
            fn root(&self, name: &str) -> Option<Box<dyn Root<$interface>>> {
                (name == "mute").then(|| Box::new(Mute) as _)
            }
        }
    };
}
mute!(SumsInterface);
mute!(DataInterface);

/// State is lost only if both the interface and the requester of the swap permit it.
#[test]
fn state_is_left_behind_only_where_the_interface_says_so() {
    let sums = create::<SumsInterface>("sums", Box::new(Mute), Arc::new(Mute));
    let data = create::<DataInterface>("data", Box::new(Mute), Arc::new(Mute));
    let with = |handover| SwapOptions { handover, ..patient() };
    let end = |id, handover| swap_named(id, "mute", 1, &with(handover)).end.word();
    assert_eq!(end(sums.id(), Handover::Transfer), "rolled-back");
    assert_eq!(end(sums.id(), Handover::WithoutState), "refused", "it is no hint");
    assert_eq!(end(sums.id(), Handover::EmptyState), "committed");
    assert_eq!(end(data.id(), Handover::Transfer), "rolled-back");
    assert_eq!(end(data.id(), Handover::WithoutState), "refused");
    assert_eq!(end(data.id(), Handover::EmptyState), "refused", "it declares no empty state");
    assert_eq!((sums.sum(), data.sum()), (7, 7));
    destroy(sums.id());
    destroy(data.id());
}

/// A library does not change the scheduling of its caller's thread unless it was asked to.
#[test]
fn the_swapping_thread_stays_ordinary_unless_it_asks_otherwise() {
    for urgent in [false, true] {
        let (n, _) = notes("urgency", [Stuck::Nowhere; 2]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let see = Arc::clone(&seen);
        let hook = move |_| {
            see.lock().unwrap().push(scheduling_policy());
            Ok(())
        };
        // A thread calls all the time, so that the swap has a reason to hurry.
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    n.add(1);
                }
            });
            for turn in 0..20 {
                let to = if turn % 2 == 0 { "two" } else { "one" };
                let hook: refit_objects::Hook = Arc::new(hook.clone());
                let options = SwapOptions { urgent, hook: Some(hook), ..patient() };
                assert!(swap_named(n.id(), to, turn, &options).committed());
            }
            over.store(true, SeqCst);
        });
        let ordinary = seen.lock().unwrap().iter().all(|policy| *policy == "0");
        if !urgent {
            assert!(ordinary, "{:?}", seen.lock().unwrap());
        }
        destroy(n.id());
    }
}

/// Returns the scheduling policy of the calling thread from `/proc`; `0` is the ordinary one.
fn scheduling_policy() -> String {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs is there");
    let fields = stat.rsplit_once(')').expect("a name in parentheses").1;
    fields.split_whitespace().nth(38).expect("proc(5): field 41").to_owned()
}
