//! A plugin from the time of version 1 of the store, before `add`. It was built from `refit-objects` alone: what makes
//! it fit is that its declaration of the interface is the beginning of the host's.

use std::sync::{Arc, Mutex, PoisonError};

use refit_objects::{OwnedRep, Root, TransferError, interface};

/// Everything in a store.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keeps values under keys.
#[cfg(not(any(feature = "changed", feature = "removed")))]
#[interface(name = "store", state = Pairs, version = 1, loadable)]
pub trait Store {
    /// Puts a value under a key; the one that was there.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// The value under a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Takes a value away; whether it was there.
    fn remove(&self, key: &[u8]) -> bool;
    /// How many there are.
    fn count(&self) -> u64;
}

/// With another type of `count`.
#[cfg(feature = "changed")]
#[interface(name = "store", state = Pairs, version = 3, loadable)]
pub trait Store {
    /// Puts a value under a key; the one that was there.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// The value under a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Takes a value away; whether it was there.
    fn remove(&self, key: &[u8]) -> bool;
    /// How many there are.
    fn count(&self) -> u32;
}

/// Without `remove` and `count`.
#[cfg(all(feature = "removed", not(feature = "changed")))]
#[interface(name = "store", state = Pairs, version = 3, loadable)]
pub trait Store {
    /// Puts a value under a key; the one that was there.
    fn put(&self, key: &[u8], value: &[u8]) -> Option<Vec<u8>>;
    /// The value under a key.
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
