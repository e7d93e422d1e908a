//! The synchronisation the algorithms of this crate are written on: std's and parking_lot's, or loom's when they are model-checked
//! (`RUSTFLAGS="--cfg loom"`). Nothing else in this crate names an atomic, a lock or a barrier of another origin.

use std::time::Duration;

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

/// The frequent side of the asymmetric barrier.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light() {
    refit_sys::barrier::light();
}

/// The frequent side, for who knows that the other side pays for both.
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

/// Locks. A lock whose holder panicked is taken all the same: every critical section of this crate leaves its data
/// whole before it calls foreign code. So the locks are of a kind that does not keep account of panics, which takes as
/// many instructions as the lock itself.
#[cfg(not(loom))]
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Waits until it is notified, or for no reason.
#[cfg(not(loom))]
pub(crate) fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}

/// Waits until it is notified, or `limit` is over, or for no reason.
#[cfg(not(loom))]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_for(&mut guard, limit);
    guard
}

/// See above. A panic ends the model.
#[cfg(loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panicked")
}

/// See above.
#[cfg(loom)]
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).expect("nobody panicked")
}

/// See above. No time passes in a model.
#[cfg(loom)]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, limit).expect("nobody panicked").0
}
