//! A model of attach and detach against calls. The object's slot is a stand-in; generations and
//! limbo are the real ones. Loom's cells detect a rep that is used while it is freed, or whose use
//! is not ordered before the free.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::generation::{Generations, Record};
use crate::limbo::Limbo;
use crate::sync::{Mutex, lock};

/// The contents of an entry: the default object, the root's rep, or the rep of a layer.
const DEFAULT: usize = 0;
const ROOT: usize = 1;
const LAYER: usize = 2;
const LATER: usize = 3;

/// Begins a generation, which includes everything that was deferred.
type Begin = fn(&Limbo, &Generations);

/// The callers that begin a generation: the reaper, a swap, and a thread that retires something.
const BEGIN: [Begin; 3] = [
    Limbo::advance,
    |limbo, generations| _ = limbo.take_along(generations),
    |limbo, generations| limbo.retire(generations, Box::new(())),
];

struct Model {
    generations: Generations,
    limbo: Limbo,
    entry: AtomicUsize,
    /// The rep that a miss finds.
    state: Mutex<usize>,
    reps: Arc<[UnsafeCell<()>; 4]>,
    /// The number of calls that went through a layer.
    seen: AtomicUsize,
}

/// Frees a rep when it is dropped.
struct Freed(Arc<[UnsafeCell<()>; 4]>, usize);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0[self.1].with_mut(|_freed| ());
    }
}

// SAFETY: loom checks that frees are ordered after uses.
unsafe impl Send for Freed {}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Model {
            generations: Generations::new(),
            limbo: Limbo::new(),
            entry: AtomicUsize::new(ROOT),
            state: Mutex::new(ROOT),
            reps: Arc::new(std::array::from_fn(|_| UnsafeCell::new(()))),
            seen: AtomicUsize::new(0),
        })
    }

    /// Calls the object as `Call::enter`, `miss` and the shims do.
    fn call(&self, record: &Record) {
        let outermost = record.enter(&self.generations);
        let mut found = self.entry.load(Ordering::Acquire);
        if found == DEFAULT {
            let state = lock(&self.state);
            found = *state;
            self.entry.store(found, Ordering::Release);
        }
        self.reps[found].with(|_used| ());
        if found != ROOT {
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
        record.leave(outermost);
    }

    /// Changes the layer as `change_layer` does.
    fn change(&self, to: usize) {
        let before = {
            let mut state = lock(&self.state);
            let before = std::mem::replace(&mut *state, to);
            self.entry.store(DEFAULT, Ordering::Release);
            before
        };
        if before != ROOT {
            self.limbo.defer(Box::new(Freed(Arc::clone(&self.reps), before)));
        }
    }

    fn reap(&self, begin: Begin) {
        begin(&self.limbo, &self.generations);
        self.limbo.collect(&self.generations);
    }
}

/// A layer is attached and detached while a call runs and another thread begins a generation.
#[test]
fn a_detached_layer_is_freed_after_the_calls_in_it() {
    for begin in BEGIN {
        loom::model(move || {
            let model = Model::new();
            model.change(LAYER);
            let record = model.generations.register(1);
            let caller = {
                let model = Arc::clone(&model);
                thread::spawn(move || model.call(&record))
            };
            let changer = {
                let model = Arc::clone(&model);
                thread::spawn(move || model.change(ROOT))
            };
            model.reap(begin);
            caller.join().unwrap();
            changer.join().unwrap();
            model.reap(begin);
            assert!(model.limbo.is_empty(), "all calls have ended");
        });
    }
}

/// Two changes overlap. The object has wrappers at every moment between them, so the call is seen
/// exactly once, by the old layer or the new one.
#[test]
fn a_call_is_seen_once_while_one_layer_follows_another() {
    loom::model(|| {
        let model = Model::new();
        model.change(LAYER);
        let record = model.generations.register(1);
        let caller = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.call(&record);
                model.call(&record);
            })
        };
        model.change(LATER);
        model.reap(BEGIN[0]);
        caller.join().unwrap();
        assert_eq!(model.seen.load(Ordering::Relaxed), 2);
        model.reap(BEGIN[0]);
        assert!(model.limbo.is_empty(), "all calls have ended");
    });
}
