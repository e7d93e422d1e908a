//! A map that can be handed over lazily: a lock per shard, and a [`Lazy`] in front of a source it may have.
//!
//! It follows the rules of [`lazy`](super::lazy), so that who builds on it need not: a look-up that misses settles the
//! key and looks again; whatever writes settles first. It is a source too, so that the next implementation can take it
//! over lazily in turn, whether or not it has everything itself by then.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use super::TransferError;
use super::lazy::{AttachedSource, InHand, Lazy, LazySource, Progress};
use crate::ending::RolledBack;
use crate::sync::{Mutex, lock};

type Shard<K, V> = Mutex<HashMap<K, V>>;

/// A concurrent map whose items may still lie with an old implementation.
#[derive(Debug)]
pub struct LazyMap<K, V> {
    shards: Box<[Shard<K, V>]>,
    hasher: RandomState,
    lazy: Lazy<K, V>,
}

impl<K: Hash + Eq + Clone, V> Default for LazyMap<K, V> {
    fn default() -> Self {
        Self::new(64)
    }
}

impl<K: Hash + Eq + Clone, V> LazyMap<K, V> {
    /// Empty, with `shards` locks, one at least.
    pub fn new(shards: usize) -> Self {
        LazyMap {
            shards: (0..shards.max(1)).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            lazy: Lazy::default(),
        }
    }

    /// Has the items of `source` from here on, beside its own. For imports.
    pub fn attach(&self, source: Arc<dyn LazySource<K, V>>) -> AttachedSource {
        self.lazy.attach(source)
    }

    /// Lets the source go without taking anything: the swap that attached it was rolled back; see [`Lazy::detach`].
    pub fn detach(&self, attachment: AttachedSource, proof: &RolledBack) {
        self.lazy.detach(attachment, proof);
    }

    /// Looks an item up.
    ///
    /// # Errors
    /// It is not here, and the old implementation failed over it.
    pub fn get<R>(&self, key: &K, look: impl Fn(&V) -> R) -> Result<Option<R>, TransferError> {
        if let Some(found) = lock(self.shard(key)).get(key) {
            return Ok(Some(look(found)));
        }
        self.settle(key)?;
        Ok(lock(self.shard(key)).get(key).map(look))
    }

    /// Puts an item in; the one it replaces.
    ///
    /// # Errors
    /// The old implementation failed over the key; nothing was put in.
    pub fn insert(&self, key: K, item: V) -> Result<Option<V>, TransferError> {
        self.settle(&key)?;
        Ok(lock(self.shard(&key)).insert(key, item))
    }

    /// Takes an item out.
    ///
    /// # Errors
    /// The old implementation failed over the key; it is still there.
    pub fn remove(&self, key: &K) -> Result<Option<V>, TransferError> {
        self.settle(key)?;
        Ok(lock(self.shard(key)).remove(key))
    }

    /// Changes an item in place, or puts one in, or takes it out, in one step.
    ///
    /// # Errors
    /// The old implementation failed over the key; `change` has not been called.
    pub fn update<R>(
        &self,
        key: &K,
        change: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<R, TransferError> {
        self.settle(key)?;
        let mut shard = lock(self.shard(key));
        let mut item = shard.remove(key);
        let result = change(&mut item);
        if let Some(item) = item {
            shard.insert(key.clone(), item);
        }
        Ok(result)
    }

    /// Items here and with the source; exact while nobody calls.
    pub fn len(&self) -> u64 {
        self.own_len() + self.lazy.progress().left
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves `most` more items here; see [`Root::drain`](crate::Root::drain), which this is for.
    ///
    /// # Errors
    /// The old implementation's.
    pub fn drain(&self, most: usize) -> Result<Progress, TransferError> {
        self.lazy.drain(most, |key, hand| self.take_over(key, hand))
    }

    /// Moves everything here and visits it, a shard at a time: for an export by copy.
    ///
    /// # Errors
    /// The old implementation's.
    pub fn visit(&self, mut see: impl FnMut(&K, &V)) -> Result<(), TransferError> {
        self.lazy.finish(|key, hand| self.take_over(key, hand))?;
        for shard in &self.shards {
            lock(shard).iter().for_each(|(key, item)| see(key, item));
        }
        Ok(())
    }

    fn own_len(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).len() as u64).sum()
    }

    fn shard(&self, key: &K) -> &Shard<K, V> {
        &self.shards[(self.hasher.hash_one(key) % self.shards.len() as u64) as usize]
    }

    fn settle(&self, key: &K) -> Result<(), TransferError> {
        self.lazy.settle(key, |hand| self.take_over(key, hand))
    }

    fn take_over(&self, key: &K, hand: InHand<'_, V>) {
        let mut shard = lock(self.shard(key));
        shard.reserve(1);
        shard.insert(key.clone(), hand.take());
    }
}

impl<K: Hash + Eq + Clone + Send, V: Send> LazySource<K, V> for LazyMap<K, V> {
    fn fetch(&self, key: &K) -> Result<Option<V>, TransferError> {
        self.remove(key)
    }

    fn keys(&self, most: usize) -> Result<Vec<K>, TransferError> {
        // This order: what is in hand there has arrived here when that says that it has nothing.
        let mut found = self.lazy.keys(most)?;
        for shard in &self.shards {
            let room = most - found.len();
            if room == 0 {
                break;
            }
            found.extend(lock(shard).keys().take(room).cloned());
        }
        Ok(found)
    }

    fn left(&self) -> u64 {
        self.len()
    }
}

#[cfg(all(test, loom))]
#[path = "lazy_map_model.rs"]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The swap was taken back, so the source serves: nothing of it may be taken here, or counted.
    #[test]
    fn a_source_that_is_let_go_keeps_what_it_has() {
        let map = LazyMap::<u8, u8>::default();
        let source = Arc::new(LazyMap::<u8, u8>::default());
        source.insert(1, 10).expect("it has no source");
        let attachment = map.attach(Arc::clone(&source) as Arc<dyn LazySource<u8, u8>>);
        assert!(!map.is_empty());
        map.detach(attachment, &RolledBack::new());
        assert!(map.is_empty());
        assert_eq!(map.get(&1, |item| *item), Ok(None));
        assert_eq!(source.get(&1, |item| *item), Ok(Some(10)));
        assert_eq!(Arc::strong_count(&source), 1, "nobody else holds it");
    }
}
