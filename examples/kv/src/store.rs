//! The store: an interface with two implementations, which can be swapped while the store is used.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refit_objects::{
    CreateError, Factory, Implementations, OwnedRep, Root, TransferError, interface,
};

/// The state of a store, which is the same for all implementations.
pub type Entries = HashMap<String, String>;

/// A map from keys to values.
#[interface(name = "store", state = Entries, empty)]
pub trait Store {
    /// Returns the value of a key.
    fn get(&self, key: &str) -> Option<String>;
    /// Sets the value of a key and returns the previous value.
    fn set(&self, key: String, text: String) -> Option<String>;
    /// Removes a key and returns its value.
    fn remove(&self, key: &str) -> Option<String>;
    /// Returns the number of keys.
    fn count(&self) -> usize;
}

/// Maps with locks: either one for all keys, or one for each sixteenth of them.
#[derive(Clone)]
struct Maps {
    name: &'static str,
    maps: Arc<[Mutex<Entries>]>,
    hash: RandomState,
}

impl Maps {
    fn new(name: &'static str) -> Self {
        let maps = if name == "sharded" { 16 } else { 1 };
        let maps = (0..maps).map(|_| Mutex::default()).collect();
        Maps { name, maps, hash: RandomState::new() }
    }

    fn of(&self, key: &str) -> MutexGuard<'_, Entries> {
        let map = self.hash.hash_one(key) as usize % self.maps.len();
        lock(&self.maps[map])
    }
}

fn lock(map: &Mutex<Entries>) -> MutexGuard<'_, Entries> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for Maps {
    fn get(&self, key: &str) -> Option<String> {
        self.of(key).get(key).cloned()
    }
    fn set(&self, key: String, text: String) -> Option<String> {
        self.of(&key).insert(key, text)
    }
    fn remove(&self, key: &str) -> Option<String> {
        self.of(key).remove(key)
    }
    fn count(&self) -> usize {
        let guards: Vec<_> = self.maps.iter().map(lock).collect();
        guards.iter().map(|map| map.len()).sum()
    }
}

impl Root<StoreInterface> for Maps {
    fn implementation(&self) -> &str {
        self.name
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<StoreInterface> {
        StoreInterface::rep(self.clone())
    }
    fn export(&self) -> Result<Entries, TransferError> {
        Ok(self.maps.iter().flat_map(|map| lock(map).clone()).collect())
    }
    fn import(&self, entries: Entries) -> Result<(), TransferError> {
        entries.into_iter().for_each(|(key, value)| drop(self.set(key, value)));
        Ok(())
    }
}

struct Both;

impl Implementations<StoreInterface> for Both {
    fn names(&self) -> Vec<&'static str> {
        vec!["one-map", "sharded"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<StoreInterface>>> {
        let name = self.names().into_iter().find(|known| *known == name)?;
        Some(Box::new(Maps::new(name)))
    }
}

/// Creates an empty store.
///
/// # Errors
///
/// There is no such implementation.
pub fn create(implementation: &str) -> Result<StoreRef, CreateError> {
    Factory::new("kv", implementation).create("kv", Arc::new(Both), None)
}
