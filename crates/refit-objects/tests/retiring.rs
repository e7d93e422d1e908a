//! Roots and wrappers that are replaced while a request is open are freed after it, and not before.
//! The test has a process of its own, since requests of other tests would keep them alive, too.

mod idle;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use idle::Idle;
use refit_objects::change::Phase;
use refit_objects::{
    Ending, Implementations, ObjectId, OwnedRep, Root, SwapOptions, TransferError, attach, create,
    destroy, detach, interface, object, request, settle, swap,
};

#[interface(name = "held", state = ())]
trait Kept {
    fn call(&self);
}

struct KeptRep(#[expect(dead_code, reason = "its count is looked at")] Arc<()>);

impl Kept for KeptRep {
    fn call(&self) {}
}

/// The state that all roots of the object share.
#[derive(Default)]
struct World {
    object: OnceLock<ObjectId>,
    /// The implementation that served when a root relinquished.
    serving: Mutex<Vec<String>>,
}

/// A root of which, and of whose reps, a count says how many live.
struct KeptRoot(Arc<()>, Arc<World>);

impl Root<KeptInterface> for KeptRoot {
    fn implementation(&self) -> &str {
        "held"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<KeptInterface> {
        KeptInterface::rep(KeptRep(Arc::clone(&self.0)))
    }
    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }
    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
    fn relinquish(&self, _ending: Ending<'_>) {
        let id = *self.1.object.get().expect("it was created");
        let serving = object(id).expect("it lives").implementation;
        self.1.serving.lock().unwrap().push(serving);
    }
}

struct ByValueOnly;

impl Implementations<KeptInterface> for ByValueOnly {
    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }
    fn root(&self, _name: &str) -> Option<Box<dyn Root<KeptInterface>>> {
        None
    }
}

/// A request of another thread, which stays open until it is told to end.
struct Open(Sender<()>, JoinHandle<()>);

impl Open {
    fn begin() -> Self {
        let (end, ends) = channel();
        let (begun, begins) = channel();
        let thread = std::thread::spawn(move || {
            request(|| {
                begun.send(()).expect("the test waits");
                ends.recv().expect("the test ends it");
            });
        });
        begins.recv().expect("it begins");
        Open(end, thread)
    }

    fn end(self) {
        self.0.send(()).expect("it waits");
        self.1.join().expect("no panic");
    }
}

/// Checks that `all` holders of `held` live as long as the request is open, and none afterwards.
fn assert_freed_after<T>(open: Open, held: &Arc<T>, all: usize, what: &str) {
    settle();
    assert_eq!(Arc::strong_count(held), all, "{what}: the request may use it");
    open.end();
    // The reaper may be about to free it.
    let until = Instant::now() + Duration::from_secs(30);
    while Arc::strong_count(held) > 1 {
        settle();
        assert!(Instant::now() < until, "{what}: it is kept");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_request_may_use_is_freed_after_it() {
    let world = Arc::<World>::default();
    let [old, new] = [(); 2].map(Arc::new);
    let root = |alive: &Arc<()>| Box::new(KeptRoot(Arc::clone(alive), Arc::clone(&world)));
    let c: KeptRef = create("held", root(&old), Arc::new(ByValueOnly));
    world.object.set(c.id()).expect("it is the first");
    let idle = Arc::new(Idle);
    let wrapped = attach(c.id(), Arc::clone(&idle)).expect("it lives");
    c.call();
    let held = 2 + object(c.id()).expect("it lives").reps;

    // A swap waits for requests that began before it. This one begins when the mediator is there.
    let open = Arc::new(Mutex::new(None));
    let opens = Arc::clone(&open);
    let hook = move |phase| {
        if phase == Phase::Install {
            *opens.lock().unwrap() = Some(Open::begin());
        }
        Ok(())
    };
    let options = SwapOptions {
        deadline: Duration::from_secs(60),
        hook: Some(Arc::new(hook)),
        ..SwapOptions::default()
    };
    assert!(swap::<KeptInterface>(c, root(&new), 1, &options).committed());
    let open = open.lock().unwrap().take().expect("it has begun");
    assert_freed_after(open, &old, held, "the old implementation");
    // Before calls continue, lest both have what is shared.
    assert_eq!(*world.serving.lock().unwrap(), ["held → held"]);

    c.call();
    let open = Open::begin();
    detach(c.id(), wrapped).expect("it is attached");
    assert_freed_after(open, &idle, 2, "the wrapper");

    let held = 2 + object(c.id()).expect("it lives").reps;
    let open = Open::begin();
    destroy(c.id());
    assert_freed_after(open, &new, held, "the object");
}
