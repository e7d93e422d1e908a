//! A rep that lives in a plugin, as the host calls it.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::abi::Abi;
use super::foreign::{Failed, RawRep, Status, Why, call};

/// The counters of one loaded implementation.
#[derive(Debug)]
pub(crate) struct Usage {
    /// `NAME@BUILD`.
    pub(crate) precise: &'static str,
    /// The number of live roots.
    pub(crate) roots: AtomicUsize,
    /// The number of panics that were caught at the boundary.
    pub(crate) panics: AtomicU64,
}

impl Usage {
    pub(crate) fn text(&self, failed: Failed) -> String {
        match failed {
            Failed::Refused(text) => text,
            Failed::Panicked(text) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                format!("{} panicked: {text}", self.precise)
            }
        }
    }

    /// Repeats a panic of the plugin here: the caller handles it like a panic of its own code.
    pub(crate) fn repeat(&self, failed: Failed) -> ! {
        panic!("{}", self.text(failed))
    }
}

/// A rep that lives in a plugin.
#[derive(Debug)]
pub struct ForeignRep {
    pub(crate) raw: RawRep,
    pub(crate) usage: Arc<Usage>,
}

// SAFETY: the plugin has created it from an `OwnedRep`, which is Send and Sync.
unsafe impl Send for ForeignRep {}
// SAFETY: as above.
unsafe impl Sync for ForeignRep {}

impl ForeignRep {
    /// Returns whether the plugin knows the method with this number.
    #[inline]
    pub fn has(&self, method: usize) -> bool {
        method < self.raw.methods_len
    }

    /// Returns the plugin's functions; [`Self::has`] says which of them exist.
    #[inline]
    pub fn functions(&self) -> *const c_void {
        self.raw.methods
    }

    /// Calls one of the functions.
    ///
    /// # Safety
    /// `run` must call a function of [`Self::functions`] whose result is `R`, with the three
    /// arguments at its end.
    #[inline]
    pub unsafe fn call<R: Abi>(
        &self,
        run: impl FnOnce(*const c_void, *mut MaybeUninit<R::Raw>, Why) -> Status,
    ) -> R {
        let mut out = MaybeUninit::<R::Raw>::uninit();
        match call(|why| run(self.raw.rep, &raw mut out, why)) {
            // SAFETY: the function has returned, so its result is initialised.
            Ok(()) => unsafe { R::from_raw(out.assume_init()) },
            Err(failed) => self.usage.repeat(failed),
        }
    }
}

impl Drop for ForeignRep {
    fn drop(&mut self) {
        // SAFETY: created by the plugin, dropped once. A panic of a destructor there is counted,
        // and otherwise ignored.
        if let Err(failed) = call(|why| unsafe { (self.raw.drop)(self.raw.rep, why) }) {
            let _ = self.usage.text(failed);
        }
    }
}
