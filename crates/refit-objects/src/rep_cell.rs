//! An atomic pointer to a rep: an entry of the translation table, or the old rep that a mediator's
//! rep has found.

use std::ptr;

use crate::sync::{AtomicPtr, Ordering};

/// A pointer to a rep; null until one is stored.
#[repr(transparent)]
pub(crate) struct RepCell<T>(AtomicPtr<T>);

impl<T> RepCell<T> {
    pub(crate) fn new() -> Self {
        RepCell(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the pointer. A thread that dereferences it sees the rep as it was when the pointer
    /// was stored.
    #[inline(always)]
    pub(crate) fn load(&self) -> *const T {
        self.0.load(Ordering::Acquire) // Pairs with `store`.
    }

    #[inline(always)]
    pub(crate) fn store(&self, rep: *const T) {
        self.0.store(rep.cast_mut(), Ordering::Release); // Pairs with `load`.
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// Loom's cell detects a use of a rep that is not ordered after its initialization.
    #[test]
    fn a_rep_that_is_found_is_seen_as_it_was_made() {
        loom::model(|| {
            let rep = Arc::new(UnsafeCell::new(0));
            let cell = Arc::new(RepCell::new());
            let maker = {
                let (rep, cell) = (Arc::clone(&rep), Arc::clone(&cell));
                thread::spawn(move || {
                    rep.with_mut(|_made| ());
                    cell.store(Arc::as_ptr(&rep));
                })
            };
            if ptr::eq(cell.load(), Arc::as_ptr(&rep)) {
                rep.with(|_used| ());
            }
            maker.join().unwrap();
        });
    }
}
