//! An object is destroyed while a call looks for its rep: the call is served, and no later one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use refit_objects::{
    Implementations, OwnedRep, Root, TransferError, create, destroy, interface, request,
};

#[interface(name = "brief", state = ())]
trait Brief {
    fn serves(&self) -> bool;
}

struct Serving;

impl Brief for Serving {
    fn serves(&self) -> bool {
        true
    }
}

/// A root that takes until the gate is open to make a rep. The object's state is locked as long.
#[derive(Default)]
struct Slow {
    making: AtomicBool,
    open: AtomicBool,
}

struct SlowRoot(Arc<Slow>);

impl Root<BriefInterface> for SlowRoot {
    fn implementation(&self) -> &str {
        "slow"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<BriefInterface> {
        self.0.making.store(true, Ordering::Release);
        until(|| self.0.open.load(Ordering::Acquire));
        BriefInterface::rep(Serving)
    }
    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }
    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}

struct ByValueOnly;

impl Implementations<BriefInterface> for ByValueOnly {
    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }
    fn root(&self, _name: &str) -> Option<Box<dyn Root<BriefInterface>>> {
        None
    }
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

/// Waits until the thread that stores its id here sleeps.
fn until_asleep(thread: &AtomicU32) {
    until(|| {
        let stat = format!("/proc/self/task/{}/stat", thread.load(Ordering::Acquire));
        // "ID (NAME) STATE …"; there is no thread 0.
        std::fs::read_to_string(stat).is_ok_and(|stat| stat.contains(") S "))
    });
}

/// The object is destroyed between the moment in which calls find no rep on their processor and
/// the moment in which they get one. Were that rep entered in the table, later calls would follow
/// it after it was freed.
#[test]
fn calls_that_are_late_leave_no_rep_behind() {
    let slow = Arc::new(Slow::default());
    let c: BriefRef = create("brief", Box::new(SlowRoot(Arc::clone(&slow))), Arc::new(ByValueOnly));
    let destroyer = AtomicU32::new(0);
    // Several, since one may come to another processor, whose entry is another, too.
    let late = [const { AtomicU32::new(0) }; 4];
    let destroyed = AtomicBool::new(false);
    let again = std::thread::scope(|scope| {
        scope.spawn(|| assert!(c.serves()));
        until(|| slow.making.load(Ordering::Acquire));
        // Both wait for the object's state, and get it in the order in which they have come.
        scope.spawn(|| {
            destroyer.store(refit_sys::thread::id(), Ordering::Release);
            destroy(c.id());
            destroyed.store(true, Ordering::Release);
        });
        until_asleep(&destroyer);
        let callers = late.each_ref().map(|late| {
            let (c, destroyed) = (&c, &destroyed);
            scope.spawn(move || {
                request(|| {
                    late.store(refit_sys::thread::id(), Ordering::Release);
                    assert!(c.serves(), "it had begun before");
                    until(|| destroyed.load(Ordering::Acquire));
                    catch_unwind(AssertUnwindSafe(|| c.serves()))
                })
            })
        });
        late.iter().for_each(until_asleep);
        slow.open.store(true, Ordering::Release);
        callers.map(|caller| caller.join().expect("no panic"))
    });
    assert!(again.iter().all(Result::is_err), "it is destroyed");
}
