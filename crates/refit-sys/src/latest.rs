//! A reference to the latest of several values that live forever: read by one load, in signal handlers too.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the latest value is. For statics: [`Latest::new`] is `const`.
#[derive(Debug)]
pub struct Latest<T: Sync + 'static>(AtomicPtr<T>, PhantomData<&'static T>);

impl<T: Sync + 'static> Latest<T> {
    /// One that begins with this value.
    pub const fn new(first: &'static T) -> Self {
        Self(AtomicPtr::new(ptr::from_ref(first).cast_mut()), PhantomData)
    }

    /// The latest value.
    #[inline(always)]
    pub fn get(&self) -> &'static T {
        // SAFETY: only `new` and `set` store, and they store `&'static T`. Acquire pairs with the Release in `set`, so
        // that what was written to the value before it was set is seen; `T: Sync` lets any thread have the reference.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Makes `next` the latest value.
    pub fn set(&self, next: &'static T) {
        // Pairs with the Acquire in `get`.
        self.0.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
    }
}
