//! A loom model of lazy transfer: calls, the drain and a second swap race for one or two keys.

use super::*;
use loom::sync::Mutex as LoomMutex;
use loom::thread;
use std::sync::Arc;

const KEYS: usize = 2;

/// A store as an implementation would have it: a lock around `key → item`.
struct Store(LoomMutex<[Option<u32>; KEYS]>);

impl Store {
    fn new(items: [Option<u32>; KEYS]) -> Self {
        Store(LoomMutex::new(items))
    }

    fn put(&self, key: usize, hand: InHand<'_, u32>) {
        let mut items = lock(&self.0);
        assert!(items[key].is_none(), "an item came twice, or over what a call had written");
        items[key] = Some(hand.take());
    }
}

impl LazySource<usize, u32> for Store {
    fn fetch(&self, key: &usize) -> Result<Option<u32>, TransferError> {
        Ok(lock(&self.0)[*key].take())
    }
    fn keys(&self, most: usize) -> Result<Vec<usize>, TransferError> {
        let items = lock(&self.0);
        Ok((0..KEYS).filter(|key| items[*key].is_some()).take(most).collect())
    }
    fn left(&self) -> u64 {
        lock(&self.0).iter().flatten().count() as u64
    }
}

/// A new implementation that follows the rules of the module.
struct New {
    own: Store,
    lazy: Lazy<usize, u32>,
}

impl New {
    fn over(old: Arc<dyn LazySource<usize, u32>>) -> Arc<Self> {
        let new = New { own: Store::new([None; KEYS]), lazy: Lazy::new(2) };
        new.lazy.attach(old);
        Arc::new(new)
    }

    fn settle(&self, key: usize) {
        self.lazy.settle(&key, |hand| self.own.put(key, hand)).expect("the source does not fail");
    }

    fn get(&self, key: usize) -> Option<u32> {
        let found = lock(&self.own.0)[key];
        found.or_else(|| {
            self.settle(key);
            lock(&self.own.0)[key]
        })
    }

    fn remove(&self, key: usize) -> Option<u32> {
        self.settle(key);
        lock(&self.own.0)[key].take()
    }

    fn drain(&self, most: usize) -> Progress {
        self.lazy
            .drain(most, |key, hand| self.own.put(*key, hand))
            .expect("the source does not fail")
    }
}

impl LazySource<usize, u32> for New {
    fn fetch(&self, key: &usize) -> Result<Option<u32>, TransferError> {
        Ok(self.remove(*key))
    }
    fn keys(&self, most: usize) -> Result<Vec<usize>, TransferError> {
        let mut keys = self.lazy.keys(most)?;
        keys.extend(self.own.keys(most - keys.len())?);
        Ok(keys)
    }
    fn left(&self) -> u64 {
        self.own.left() + self.lazy.progress().left
    }
}

fn old() -> Arc<Store> {
    Arc::new(Store::new([Some(10), None]))
}

/// A reader finds the item at every moment, whichever thread moves it.
#[test]
fn an_item_that_moves_is_found() {
    loom::model(|| {
        let new = New::over(old());
        let drainer = {
            let new = Arc::clone(&new);
            thread::spawn(move || while new.drain(1).open {})
        };
        let reader = {
            let new = Arc::clone(&new);
            thread::spawn(move || assert_eq!(new.get(0), Some(10)))
        };
        assert_eq!(new.get(0), Some(10));
        reader.join().unwrap();
        drainer.join().unwrap();
        let Progress { open, left, on_demand, by_drain } = new.lazy.progress();
        assert_eq!((open, left, on_demand + by_drain), (false, 0, 1));
    });
}

/// A caller removes the item while it is drained: it is removed once, and stays removed.
#[test]
fn an_item_that_was_removed_does_not_come_back() {
    loom::model(|| {
        let new = New::over(old());
        let drainer = {
            let new = Arc::clone(&new);
            thread::spawn(move || {
                new.drain(1);
                new.drain(usize::MAX);
            })
        };
        assert_eq!(new.remove(0), Some(10));
        lock(&new.own.0)[0] = Some(11); // Settled: it may be written without a look at the source.
        drainer.join().unwrap();
        assert_eq!(new.remove(0), Some(11));
        new.drain(1);
        assert_eq!(new.get(0), None);
    });
}

/// While the first swap is still being drained, a second one puts a third implementation on top,
/// whose caller and drain take from the second. (In the system no call reaches the second any more
/// by then, but its drain may still be in progress.)
#[test]
fn a_second_swap_finds_what_the_first_has_not_moved() {
    loom::model(|| {
        let second = New::over(old());
        let drainer = {
            let second = Arc::clone(&second);
            thread::spawn(move || {
                second.drain(1);
            })
        };
        let third = New::over(second);
        let caller = {
            let third = Arc::clone(&third);
            thread::spawn(move || assert_eq!(third.get(0), Some(10)))
        };
        third.drain(usize::MAX);
        caller.join().unwrap();
        drainer.join().unwrap();
        assert_eq!(third.get(0), Some(10));
        assert_eq!(third.left(), 1);
    });
}

/// A store may do without a lock: a thread that finds nothing to settle sees everything that was
/// settled before.
///
/// The drain runs in the thread that loom runs first. Loom looks for other orders of two accesses
/// only where the second follows the first of *another* thread directly. If the reader ran first,
/// `finish`, which loads the flag before it stores it, would hide the reader's load behind its own,
/// and no reader would ever find the flag cleared.
#[test]
fn what_was_settled_is_seen_without_a_lock() {
    for most in [1, usize::MAX] {
        loom::model(move || {
            let new = Arc::new((Lazy::new(1), AtomicU64::new(0)));
            new.0.attach(old());
            let reader = {
                let new = Arc::clone(&new);
                thread::spawn(move || {
                    let put = |hand: InHand<'_, u32>| {
                        new.1.store(hand.take().into(), Ordering::Relaxed);
                    };
                    new.0.settle(&0, put).expect("the source does not fail");
                    assert_eq!(new.1.load(Ordering::Relaxed), 10);
                })
            };
            let put = |_: &usize, hand: InHand<'_, u32>| {
                new.1.store(hand.take().into(), Ordering::Relaxed);
            };
            new.0.drain(most, put).expect("the source does not fail");
            reader.join().unwrap();
        });
    }
}
