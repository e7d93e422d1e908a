//! A map that can be transferred lazily: a lock per shard, and a [`Lazy`] in front of a source that
//! it may have.
//!
//! It follows the rules of [`lazy`](super::lazy), so that its users need not: a lookup that misses
//! settles the key and looks again; every write settles first. It is a source too, so that the next
//! implementation can take it over lazily in turn, whether or not it has received everything itself
//! by then.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use super::TransferError;
use super::lazy::{AttachedSource, InHand, Lazy, LazySource, Progress};
use crate::ending::RolledBack;
use crate::sync::{Mutex, lock};

type Shard<K, V> = Mutex<HashMap<K, V>>;

/// A concurrent map whose items may still be stored in an old implementation.
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
    /// Creates an empty map with `shards` locks, at least one.
    pub fn new(shards: usize) -> Self {
        LazyMap {
            shards: (0..shards.max(1)).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            lazy: Lazy::default(),
        }
    }

    /// Takes the items of `source` in addition to its own from here on. For imports.
    pub fn attach(&self, source: Arc<dyn LazySource<K, V>>) -> AttachedSource {
        self.lazy.attach(source)
    }

    /// Releases the source without taking anything, because the swap that attached it was rolled
    /// back; see [`Lazy::detach`].
    pub fn detach(&self, attachment: AttachedSource, proof: &RolledBack) {
        self.lazy.detach(attachment, proof);
    }

    /// Looks an item up.
    ///
    /// # Errors
    /// It is not here, and the old implementation has failed to provide it.
    pub fn get<R>(&self, key: &K, look: impl Fn(&V) -> R) -> Result<Option<R>, TransferError> {
        if let Some(found) = lock(self.shard(key)).get(key) {
            return Ok(Some(look(found)));
        }
        self.settle(key)?;
        Ok(lock(self.shard(key)).get(key).map(look))
    }

    /// Inserts an item. Returns the one it replaces.
    ///
    /// # Errors
    /// The old implementation has failed to provide the key; nothing was inserted.
    pub fn insert(&self, key: K, item: V) -> Result<Option<V>, TransferError> {
        self.settle(&key)?;
        Ok(lock(self.shard(&key)).insert(key, item))
    }

    /// Removes an item.
    ///
    /// # Errors
    /// The old implementation has failed to provide the key; it is still there.
    pub fn remove(&self, key: &K) -> Result<Option<V>, TransferError> {
        self.settle(key)?;
        Ok(lock(self.shard(key)).remove(key))
    }

    /// Changes, inserts or removes an item in one step.
    ///
    /// # Errors
    /// The old implementation has failed to provide the key; `change` was not called.
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

    /// Returns the number of items here and in the source; exact while there are no calls.
    pub fn len(&self) -> u64 {
        self.own_len() + self.lazy.progress().left
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves up to `most` more items here, for [`Root::drain`](crate::Root::drain).
    ///
    /// # Errors
    /// The old implementation's error.
    pub fn drain(&self, most: usize) -> Result<Progress, TransferError> {
        self.lazy.drain(most, |key, hand| self.take_over(key, hand))
    }

    /// Moves everything here and visits it, a shard at a time: for an export by copy.
    ///
    /// # Errors
    /// The old implementation's error.
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
        // In this order: once the source reports that it has nothing, items that were in hand there
        // have arrived here.
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

    /// The swap was rolled back, so the source serves: nothing of it may be taken here, or counted.
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
