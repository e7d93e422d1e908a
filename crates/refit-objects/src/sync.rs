//! The synchronisation primitives of this crate's algorithms: those of std and parking_lot, or
//! loom's when the algorithms are model-checked (`RUSTFLAGS="--cfg loom"`). The rest of this crate
//! uses no other atomic, lock or barrier.

use std::time::Duration;

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering,
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

/// The frequent side of the asymmetric barrier.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light() {
    refit_sys::barrier::light();
}

/// The frequent side, for callers that know that barriers are asymmetric.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light_where_asymmetric() {
    refit_sys::barrier::light_where_asymmetric();
}

/// The rare side of the asymmetric barrier.
#[cfg(not(loom))]
pub(crate) fn heavy() {
    refit_sys::barrier::heavy();
}

/// The frequent side in a model. Loom knows no asymmetric fence, so both sides are `SeqCst`. This
/// is stronger than the real barrier only between two light sides, and no algorithm here relies on
/// an order between those.
#[cfg(loom)]
pub(crate) fn light() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The rare side in a model; see [`light`].
#[cfg(loom)]
pub(crate) fn heavy() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Locks a mutex, even if a holder has panicked: every critical section of this crate leaves its
/// data consistent before it calls foreign code. So these mutexes do not track panics, which would
/// take as many instructions as the lock itself.
#[cfg(not(loom))]
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Waits until it is notified, or returns spuriously.
#[cfg(not(loom))]
pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}

/// Waits until it is notified, or `limit` has passed, or returns spuriously.
#[cfg(not(loom))]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_for(&mut guard, limit);
    guard
}

/// As above; in a model a panic ends the model.
#[cfg(loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panicked")
}

/// As above, in a model.
#[cfg(loom)]
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).expect("nobody panicked")
}

/// As above; in a model no time passes.
#[cfg(loom)]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, limit).expect("nobody panicked").0
}
