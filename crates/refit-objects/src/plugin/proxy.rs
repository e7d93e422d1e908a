//! The host's side: presents a root and reps that live in a plugin as a root and reps of this
//! process.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::abi::{Abi, RawSlice, RawVec};
use super::export::{Loadable, from_bytes, to_bytes};
use super::foreign::{Failed, RawImplementation, RawRep, RawRoot, RootCalls, Status, Why, call};
use crate::ending::Ending;
use crate::interface::{Root, TransferError};
use crate::rep::OwnedRep;

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
    fn text(&self, failed: Failed) -> String {
        match failed {
            Failed::Refused(text) => text,
            Failed::Panicked(text) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                format!("{} panicked: {text}", self.precise)
            }
        }
    }

    /// Repeats a panic of the plugin here: the caller handles it like a panic of its own code.
    fn repeat(&self, failed: Failed) -> ! {
        panic!("{}", self.text(failed))
    }
}

/// A rep that lives in a plugin.
#[derive(Debug)]
pub struct ForeignRep {
    raw: RawRep,
    usage: Arc<Usage>,
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

/// A root that lives in a plugin.
pub(crate) struct ForeignRoot {
    raw: RawRoot,
    usage: Arc<Usage>,
}

// SAFETY: the plugin has created it from a `Box<dyn Root>`, which is Send and Sync.
unsafe impl Send for ForeignRoot {}
// SAFETY: as above.
unsafe impl Sync for ForeignRoot {}

impl ForeignRoot {
    pub(crate) fn make(
        implementation: &RawImplementation,
        usage: &Arc<Usage>,
    ) -> Result<Self, String> {
        let mut out = MaybeUninit::<RawRoot>::uninit();
        // SAFETY: a function of a checked plugin, which writes to the given destination.
        let made = call(|why| unsafe { (implementation.make)(&raw mut out, why) });
        made.map_err(|failed| usage.text(failed))?;
        // SAFETY: written, since it returned.
        let raw = unsafe { out.assume_init() };
        usage.roots.fetch_add(1, Ordering::Relaxed);
        Ok(ForeignRoot { raw, usage: Arc::clone(usage) })
    }

    fn calls(&self) -> &'static RootCalls {
        // SAFETY: a constant of the plugin, which is never unmapped. FORMAT determines its minimum
        // length.
        unsafe { &*self.raw.calls }
    }

    fn ask(&self, run: impl FnOnce(*const c_void, Why) -> Status) -> Result<(), Failed> {
        call(|why| run(self.raw.root, why))
    }

    fn transfer(&self, failed: Failed) -> TransferError {
        TransferError(self.usage.text(failed))
    }

    fn foreign_rep(&self, processor: usize) -> Result<ForeignRep, Failed> {
        let mut out = MaybeUninit::<RawRep>::uninit();
        // SAFETY: the root is alive; the function writes to the given destination, here and below.
        self.ask(|root, why| unsafe {
            (self.calls().make_rep)(root, processor, &raw mut out, why)
        })?;
        // SAFETY: written, since it returned.
        Ok(ForeignRep { raw: unsafe { out.assume_init() }, usage: Arc::clone(&self.usage) })
    }
}

impl Drop for ForeignRoot {
    fn drop(&mut self) {
        // SAFETY: created by the plugin, dropped once.
        if let Err(failed) = call(|why| unsafe { (self.calls().drop)(self.raw.root, why) }) {
            let _ = self.usage.text(failed);
        }
        self.usage.roots.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<I: Loadable> Root<I> for ForeignRoot {
    fn implementation(&self) -> &str {
        self.usage.precise
    }

    fn cluster(&self, processor: usize) -> usize {
        let mut cluster = 0;
        // SAFETY: as in `foreign_rep`.
        let asked = self.ask(|root, why| unsafe {
            (self.calls().cluster)(root, processor, &raw mut cluster, why)
        });
        match asked {
            Ok(()) => cluster,
            Err(failed) => self.usage.repeat(failed),
        }
    }

    fn make_rep(&self, processor: usize) -> OwnedRep<I> {
        match self.foreign_rep(processor) {
            Ok(rep) => I::adopt(rep),
            Err(failed) => self.usage.repeat(failed),
        }
    }

    fn export(&self) -> Result<I::State, TransferError> {
        let mut state = RawVec::empty();
        // SAFETY: as in `foreign_rep`.
        self.ask(|root, why| unsafe { (self.calls().export)(root, &raw mut state, why) })
            .map_err(|failed| self.transfer(failed))?;
        // SAFETY: created by the plugin, since it returned.
        from_bytes(&unsafe { state.take() }).map_err(TransferError)
    }

    fn import(&self, state: I::State) -> Result<(), TransferError> {
        let bytes = to_bytes(&state).map_err(TransferError)?;
        // SAFETY: as in `foreign_rep`; the bytes live until it returns.
        self.ask(|root, why| unsafe { (self.calls().import)(root, RawSlice::of(&bytes), why) })
            .map_err(|failed| self.transfer(failed))?;
        // If no rep can be created, that must be detected while the change can still be rolled
        // back.
        self.foreign_rep(0).map(drop).map_err(|failed| self.transfer(failed))
    }

    fn relinquish(&self, ending: Ending<'_>) {
        let rolled_back = matches!(ending, Ending::RolledBack(_));
        let relinquish = self.calls().relinquish;
        // SAFETY: as in `foreign_rep`.
        if let Err(failed) = self.ask(|root, why| unsafe { relinquish(root, rolled_back, why) }) {
            self.usage.repeat(failed);
        }
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut bytes = RawVec::empty();
        // SAFETY: as in `foreign_rep`.
        if self.ask(|root, why| unsafe { (self.calls().stats)(root, &raw mut bytes, why) }).is_err()
        {
            return Vec::new();
        }
        // SAFETY: created by the plugin, since it returned.
        let stats: Vec<(String, u64)> = from_bytes(&unsafe { bytes.take() }).unwrap_or_default();
        stats.into_iter().map(|(what, n)| (super::ledger::leaked(&what), n)).collect()
    }
}
