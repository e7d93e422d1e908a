//! A plugin for version 1 of the store, which has no `add`. It is built with `refit-objects` alone;
//! it is compatible because its declaration of the interface is a prefix of the host's.

use std::sync::{Arc, Mutex, PoisonError};

use refit_objects::{OwnedRep, Root, TransferError, interface};

/// All pairs of a store.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A store of values under keys.
#[cfg(not(any(feature = "changed", feature = "removed")))]
#[interface(name = "store", state = Pairs, version = 1, loadable)]
pub trait Store {
    /// Sets the value of a key and returns the previous value.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Removes a key and returns whether it was present.
    fn remove(&self, key: &[u8]) -> bool;
    /// Returns the number of keys.
    fn count(&self) -> u64;
}

/// The interface with another return type of `count`.
#[cfg(feature = "changed")]
#[interface(name = "store", state = Pairs, version = 3, loadable)]
pub trait Store {
    /// Sets the value of a key and returns the previous value.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Removes a key and returns whether it was present.
    fn remove(&self, key: &[u8]) -> bool;
    /// Returns the number of keys.
    fn count(&self) -> u32;
}

/// The interface without `remove` and `count`.
#[cfg(all(feature = "removed", not(feature = "changed")))]
#[interface(name = "store", state = Pairs, version = 3, loadable)]
pub trait Store {
    /// Sets the value of a key and returns the previous value.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
}

#[derive(Clone, Default)]
struct Linear(Arc<Mutex<Pairs>>);

impl Linear {
    fn with<T>(&self, run: impl FnOnce(&mut Pairs) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for Linear {
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        self.with(|pairs| match pairs.iter_mut().find(|(k, _)| k == key) {
            Some((_, found)) => Some(std::mem::replace(found, value.to_vec())),
            None => {
                pairs.push((key.to_vec(), value.to_vec()));
                None
            }
        })
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|pairs| pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value.clone()))
    }
    #[cfg(not(all(feature = "removed", not(feature = "changed"))))]
    fn remove(&self, key: &[u8]) -> bool {
        self.with(|pairs| {
            let before = pairs.len();
            pairs.retain(|(k, _)| k != key);
            pairs.len() < before
        })
    }
    #[cfg(not(any(feature = "changed", feature = "removed")))]
    fn count(&self) -> u64 {
        self.with(|pairs| pairs.len() as u64)
    }
    #[cfg(feature = "changed")]
    fn count(&self) -> u32 {
        self.with(|pairs| pairs.len() as u32)
    }
}

impl Root<StoreInterface> for Linear {
    fn implementation(&self) -> &str {
        "linear"
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<StoreInterface> {
        StoreInterface::rep(self.clone())
    }
    fn export(&self) -> Result<Pairs, TransferError> {
        Ok(self.with(|pairs| pairs.clone()))
    }
    fn import(&self, state: Pairs) -> Result<(), TransferError> {
        self.with(|pairs| *pairs = state);
        Ok(())
    }
}

refit_objects::plugin! { StoreInterface: "linear" => || Box::new(Linear::default()) }
