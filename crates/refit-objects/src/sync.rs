//! The synchronisation the algorithms of this crate are written on: std's, or loom's when they are model-checked
//! (`RUSTFLAGS="--cfg loom"`). Nothing else in this crate names an atomic, a lock or a barrier of another origin.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
#[cfg(loom)]
pub(crate) use std::sync::PoisonError;

/// The frequent side of the asymmetric barrier.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light() {
    refit_sys::barrier::light();
}

/// The rare side of the asymmetric barrier.
#[cfg(not(loom))]
pub(crate) fn heavy() {
    refit_sys::barrier::heavy();
}

/// Loom knows no asymmetric fence; both sides are `SeqCst`. This is stronger than the real thing only between two
/// light sides, and no algorithm here relies on an order between those.
#[cfg(loom)]
pub(crate) fn light() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// See [`light`].
#[cfg(loom)]
pub(crate) fn heavy() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A lock whose holder panicked is taken all the same: every critical section of this crate leaves its data whole
/// before it calls foreign code.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
