//! A reference to the latest of several values that live forever: one load to read, in signal
//! handlers too.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A reference to the latest of several `'static` values. Usable in statics, since [`Latest::new`]
/// is `const`.
#[derive(Debug)]
pub struct Latest<T: Sync + 'static>(AtomicPtr<T>, PhantomData<&'static T>);

impl<T: Sync + 'static> Latest<T> {
    /// Creates a reference to `first`.
    pub const fn new(first: &'static T) -> Self {
        Self(AtomicPtr::new(ptr::from_ref(first).cast_mut()), PhantomData)
    }

    /// Returns the latest value.
    #[inline(always)]
    pub fn get(&self) -> &'static T {
        // SAFETY: only `new` and `set` store, and both store a `&'static T`. Acquire pairs with the
        // Release in `set`, so that writes to the value before it was set are visible; `T: Sync`
        // lets any thread have the reference.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Makes `next` the latest value.
    pub fn set(&self, next: &'static T) {
        // Pairs with the Acquire in `get`.
        self.0.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
    }
}
