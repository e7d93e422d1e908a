//! A key-value store: the interface that a host and its plugins share, the initial implementation
//! of the host, and the code that implementations have in common.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use refit_objects::{Implementations, OwnedRep, Root, State, TransferError, interface};

/// All pairs of a store, sorted by key.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A store of values under keys.
#[interface(name = "store", state = Pairs, version = 2, loadable, empty)]
pub trait Store {
    /// Sets the value of a key and returns the previous value.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Removes a key and returns whether it was present.
    fn remove(&self, key: &[u8]) -> bool;
    /// Returns the number of keys.
    fn count(&self) -> u64;
    /// Adds `n` to the number under a key, which is zero if absent, and returns the sum. Atomic
    /// only if the implementation makes it so. Since version 2; older implementations use this
    /// body.
    fn add(&self, key: &[u8], n: u64) -> u64 {
        let before =
            self.get(key).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let sum = before.unwrap_or(0).wrapping_add(n);
        self.put(key, &sum.to_le_bytes());
        sum
    }
}

/// The collection in which a store keeps its values.
pub trait Map: Default + Extend<(Vec<u8>, Vec<u8>)> + Send + 'static {
    /// Sets the value of a key and returns the previous value.
    fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) -> Option<Vec<u8>>;
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Option<&Vec<u8>>;
    /// Removes a key and returns its value.
    fn remove(&mut self, key: &[u8]) -> Option<Vec<u8>>;
    /// Returns all pairs, in no particular order.
    fn pairs(&self) -> impl ExactSizeIterator<Item = (&Vec<u8>, &Vec<u8>)>;
}

macro_rules! map {
    ($($map:ident),*) => { $(
        impl Map for $map<Vec<u8>, Vec<u8>> {
            fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) -> Option<Vec<u8>> {
                self.insert(key, value)
            }
            fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
                self.get(key)
            }
            fn remove(&mut self, key: &[u8]) -> Option<Vec<u8>> {
                self.remove(key)
            }
            fn pairs(&self) -> impl ExactSizeIterator<Item = (&Vec<u8>, &Vec<u8>)> {
                self.iter()
            }
        }
    )* };
}

map!(HashMap, BTreeMap);

/// A store in a map with a lock, which is common to stores with different maps.
#[derive(Debug, Default)]
pub struct Locked<M>(Arc<Mutex<M>>);

impl<M> Clone for Locked<M> {
    fn clone(&self) -> Self {
        Locked(Arc::clone(&self.0))
    }
}

impl<M: Map> Locked<M> {
    fn with<T>(&self, run: impl FnOnce(&mut M) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<M: Map> Store for Locked<M> {
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        self.with(|map| map.insert(key.to_vec(), value.to_vec()))
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|map| map.get(key).cloned())
    }
    fn remove(&self, key: &[u8]) -> bool {
        self.with(|map| map.remove(key).is_some())
    }
    fn count(&self) -> u64 {
        self.with(|map| map.pairs().len() as u64)
    }
    fn add(&self, key: &[u8], n: u64) -> u64 {
        self.with(|map| {
            let before =
                map.get(key).and_then(|b| Some(u64::from_le_bytes((**b).try_into().ok()?)));
            let sum = before.unwrap_or(0).wrapping_add(n);
            map.insert(key.to_vec(), sum.to_le_bytes().to_vec());
            sum
        })
    }
}

impl<M: Map> State<Pairs> for Locked<M> {
    fn export(&self) -> Result<Pairs, TransferError> {
        let mut pairs: Pairs =
            self.with(|map| map.pairs().map(|(k, v)| (k.clone(), v.clone())).collect());
        pairs.sort();
        Ok(pairs)
    }
    fn import(&self, state: Pairs) -> Result<(), TransferError> {
        self.with(|map| map.extend(state));
        Ok(())
    }
}

/// A store in a hash table with a lock.
pub type Hashed = Locked<HashMap<Vec<u8>, Vec<u8>>>;

impl Root<StoreInterface> for Hashed {
    fn implementation(&self) -> &str {
        "hashed"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<StoreInterface> {
        StoreInterface::rep(self.clone())
    }
    fn export(&self) -> Result<Pairs, TransferError> {
        State::export(self)
    }
    fn import(&self, state: Pairs) -> Result<(), TransferError> {
        State::import(self, state)
    }
}

/// The implementations of the host, to which a store can be swapped before any plugin is loaded.
#[derive(Debug)]
pub struct Own;

impl Implementations<StoreInterface> for Own {
    fn names(&self) -> Vec<&'static str> {
        vec!["hashed"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<StoreInterface>>> {
        (name == "hashed").then(|| Box::new(Hashed::default()) as _)
    }
}
