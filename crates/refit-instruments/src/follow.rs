//! Keeps a value in step with the one that it is made from, while threads set both without a lock.
//!
//! # Correctness
//!
//! A thread that changes the source sets it, executes a SeqCst fence and then follows it. Other
//! threads may follow at any time. When all of them have returned, the value is the one made from
//! the last source.
//!
//! Suppose that a thread F, which read an older source, sets the value after the thread C, which
//! set the last source. C's store of the value lies behind C's fence and precedes F's store, which
//! lies before F's fence; the order of SeqCst fences agrees with that, so C's fence precedes F's. F
//! therefore sees C's source when it reads it once more, and begins again. The last store is thus
//! of a thread that has seen the last source.

use crate::sync::{Ordering, fence};

/// Sets a value from its source, which `get` returns, and again until the source is still the same
/// afterwards. A source that was replaced must never be set again.
pub(crate) fn follow<S: 'static>(get: impl Fn() -> &'static S, set: impl Fn(&'static S)) {
    loop {
        let source = get();
        set(source);
        // Pairs with the fence of the thread that changes the source.
        fence(Ordering::SeqCst);
        if std::ptr::eq(get(), source) {
            return;
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::AtomicU64;
    use loom::sync::Arc;
    use loom::thread;

    static SOURCES: [u64; 3] = [0, 1, 2];

    #[derive(Default)]
    struct Values {
        source: AtomicU64,
        value: AtomicU64,
    }

    impl Values {
        fn follow(&self) {
            let get = || &SOURCES[self.source.load(Ordering::Acquire) as usize];
            follow(get, |source| self.value.store(*source, Ordering::Release));
        }

        fn change(&self, to: u64) {
            self.source.store(to, Ordering::Release);
            fence(Ordering::SeqCst);
            self.follow();
        }
    }

    #[test]
    fn the_value_is_that_of_the_last_source_whoever_is_slow() {
        loom::model(|| {
            let values = Arc::new(Values::default());
            let follower = values.clone();
            let follower = thread::spawn(move || follower.follow());
            values.change(1);
            values.change(2);
            follower.join().expect("it does not panic");
            assert_eq!(values.value.load(Ordering::Acquire), 2);
        });
    }
}
