//! Waiting for the disk of the host outside of requests.
//!
//! A swap waits for every request that has begun before it. A call that waited for the disk would
//! therefore delay the swap of every object, of any file. So operations that can take long do not
//! run within a call: the [file representative](crate::FileRepresentative) returns them as
//! [`DiskWork`], and the caller runs them when its call has ended.

use std::cell::Cell;
use std::fmt;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Returns whether calls of this thread may wait for the disk. They may unless they run in
/// [`without_waiting`].
pub fn may_wait() -> bool {
    MAY_WAIT.get()
}

/// Runs `calls`, during which a read of a file representative fails with `EAGAIN` instead of
/// waiting for the disk.
///
/// On `EAGAIN` the caller runs [`fetch_work`](crate::FileRepresentative::fetch_work) and calls
/// again.
pub fn without_waiting<T>(calls: impl FnOnce() -> T) -> T {
    let _restore = Restore(MAY_WAIT.replace(false));
    calls()
}

/// Restores the former permission when dropped, also during a panic.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        MAY_WAIT.set(self.0);
    }
}

/// An operation that waits for the disk. It owns what it needs, so it may outlive the call that
/// returned it, and the object too.
#[must_use = "nothing is done until it is run"]
pub struct DiskWork(Box<dyn FnOnce() -> Result<(), i32> + Send>);

impl DiskWork {
    /// Wraps `work`, whose error is an `errno` value.
    pub fn new(work: impl FnOnce() -> Result<(), i32> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Returns an operation with nothing left to do.
    pub fn none() -> Self {
        Self::new(|| Ok(()))
    }

    /// Runs the operation, and waits for the disk. Must be called outside of requests.
    ///
    /// # Errors
    /// The `errno` of the host. It is reported here and nowhere else.
    pub fn run(self) -> Result<(), i32> {
        (self.0)()
    }
}

impl fmt::Debug for DiskWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskWork")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_restores_what_was_allowed() {
        let within = std::panic::catch_unwind(|| {
            without_waiting(|| {
                without_waiting(|| assert!(!may_wait()));
                assert!(!may_wait());
                panic!("a call fails");
            })
        });
        assert!(within.is_err() && may_wait());
    }
}
