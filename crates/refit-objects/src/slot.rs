//! The slot of an object: its root, its wrappers, its entries of the table, and miss handling (Hui
//! 2000, §3.3.2).
//!
//! # Idea
//!
//! Every object has a [`Slot`], whose first field is its *default object*: a rep header with the
//! interface's default vtable. A flush points the object's entries there. The next call on a
//! processor lands in the default object, which asks the current root for the rep of that
//! processor, installs it into the entry and forwards the call. The root is that of the
//! implementation, or that of the mediator while the object is being swapped.
//!
//! # Why a late miss cannot undo a flush
//!
//! A miss reads the root and stores the entry under the slot's `state` lock; a flush replaces the
//! root and stores the entries under the same lock. So an entry always belongs to the root that was
//! current when it was last stored.
//!
//! # Why no rep is used after it was freed
//!
//! Calls look up and use reps only within a request. Roots, reps and slots are retired only after
//! the entries have been replaced; [`crate::retire`] frees them when a generation has passed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::attached::AnyRoot;
use crate::clustering::Clustering;
use crate::description::InterfaceInfo;
use crate::id::ObjectId;
use crate::interposer::Layer;
use crate::maker::Origin;
use crate::name::Name;
use crate::rep::RepHeader;
use crate::retire::defer;
use crate::successor::Successor;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::table;
use crate::ticket::Ticket;
use crate::wrapper::WrapperFailure;

/// Swaps an object of some interface by the name of the implementation.
pub(crate) trait Swapper: Send + Sync {
    fn names(&self) -> Vec<&'static str>;
    /// Returns whether the object has an implementation of this name that was not loaded.
    fn own(&self, name: &str) -> bool;
    /// Returns why no object can be swapped to this name; `None` if it can.
    fn cannot(&self, to: &str) -> Option<String>;
    /// Returns a new, empty root of this name that can succeed `old`; the error says why that
    /// failed.
    fn successor(
        &self,
        id: ObjectId,
        old: &Arc<dyn AnyRoot>,
        to: &str,
        clustering: Clustering,
    ) -> Result<Successor, String>;
}

/// One object. `default` is the first field, so that a pointer to it is a pointer to the slot.
#[repr(C)]
pub(crate) struct Slot {
    default: RepHeader,
    pub(crate) id: ObjectId,
    pub(crate) interface: &'static InterfaceInfo,
    name: Name,
    pub(crate) swapper: Box<dyn Swapper>,
    /// The factory that has created it.
    pub(crate) origin: Option<Origin>,
    pub(crate) state: Mutex<State>,
    /// The right to change this object, for which its changes queue.
    changing: Ticket,
    /// Whether a thread waits to destroy the object, so that a change in progress gives up.
    doomed: AtomicBool,
    misses: AtomicU64,
}

pub(crate) struct State {
    root: Arc<dyn AnyRoot>,
    /// The wrappers of the object; the reps of the layer belong to this root.
    pub(crate) layer: Option<Layer>,
    pub(crate) destroyed: bool,
    pub(crate) failures: VecDeque<WrapperFailure>,
}

impl Slot {
    pub(crate) fn new(
        id: ObjectId,
        interface: &'static InterfaceInfo,
        name: Name,
        swapper: Box<dyn Swapper>,
        origin: Option<Origin>,
        root: Arc<dyn AnyRoot>,
    ) -> Arc<Self> {
        Arc::new(Slot {
            default: RepHeader { vtable: interface.default, object: id.to_bits() },
            id,
            interface,
            name,
            swapper,
            origin,
            state: Mutex::new(State {
                root,
                layer: None,
                destroyed: false,
                failures: VecDeque::new(),
            }),
            changing: Ticket::new(),
            doomed: AtomicBool::new(false),
            misses: AtomicU64::new(0),
        })
    }

    /// Returns the slot whose default object this is.
    ///
    /// # Safety
    /// `header` must point to the default object of a slot, and the caller must be in the request
    /// in which it was looked up.
    unsafe fn of_default<'a>(header: *const RepHeader) -> &'a Slot {
        // SAFETY: Slot is repr(C) with the default object first; alive by the caller's guarantee.
        unsafe { &*header.cast::<Slot>() }
    }

    pub(crate) fn full_name(&self) -> String {
        format!("{}:{}", self.interface.name, self.name.get())
    }

    pub(crate) fn changing(&self) -> &Ticket {
        &self.changing
    }

    /// Returns the current root.
    pub(crate) fn root(&self) -> Arc<dyn AnyRoot> {
        Arc::clone(&lock(&self.state).root)
    }

    /// Returns whether a thread waits to destroy the object.
    pub(crate) fn doomed(&self) -> bool {
        // Relaxed: a thread that does not see it yet checks again.
        self.doomed.load(Ordering::Relaxed)
    }

    pub(crate) fn destroyed(&self) -> bool {
        lock(&self.state).destroyed
    }

    /// Replaces the root and flushes all entries, so that the next call on each processor asks the
    /// new one. Returns the previous root, whose reps may be in use until a generation has passed.
    /// `None` if the object has been destroyed.
    pub(crate) fn swing_root(&self, root: Arc<dyn AnyRoot>) -> Option<Arc<dyn AnyRoot>> {
        let (before, layer) = {
            let mut state = lock(&self.state);
            if state.destroyed {
                return None;
            }
            let before = std::mem::replace(&mut state.root, root);
            // The wrappers stay, but not the reps that lead through them to the previous root.
            let again = state.layer.as_ref().and_then(|layer| Layer::of(layer.stack().to_vec()));
            let layer = std::mem::replace(&mut state.layer, again);
            self.flush_locked(&state);
            (before, layer)
        };
        if let Some(layer) = layer {
            defer(Box::new(layer));
        }
        Some(before)
    }

    /// Points all entries to the default object, so that the next call on each processor misses.
    pub(crate) fn flush_locked(&self, locked: &MutexGuard<'_, State>) {
        self.point_entries(locked, &raw const self.default);
    }

    /// Stores into all entries; the guard proves that the state is locked.
    fn point_entries(&self, _locked: &MutexGuard<'_, State>, rep: *const RepHeader) {
        // SAFETY: this object was created, so the rows exist. The default object lives as long as
        // the slot, which is retired after its entries point to GONE; GONE is static.
        unsafe { table::install_everywhere(self.id.index, rep) };
    }

    /// Points entries to the default object for the first time.
    pub(crate) fn publish(&self) {
        self.point_entries(&lock(&self.state), &raw const self.default);
    }

    /// Points entries to GONE, because the object is destroyed. Returns its root, once.
    pub(crate) fn withdraw(&self) -> Option<Arc<dyn AnyRoot>> {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.destroyed, true) {
            return None;
        }
        self.point_entries(&state, table::gone());
        Some(Arc::clone(&state.root))
    }

    /// Returns the number of calls that went through the default object.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Makes changes in progress give up, because a thread waits to destroy the object.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    /// Discards the entries; the next call on each processor finds its rep again.
    pub(crate) fn flush(&self) {
        let state = lock(&self.state);
        if !state.destroyed {
            self.point_entries(&state, &raw const self.default);
        }
    }
}

/// Handles a call that has landed in the default object: finds the rep for this processor, installs
/// it, and returns it.
///
/// # Safety
/// `default` must be the default object's header that the caller looked up within its current
/// request.
pub unsafe fn miss(default: *const RepHeader) -> *const RepHeader {
    // SAFETY: guaranteed by the caller.
    let slot = unsafe { Slot::of_default(default) };
    slot.misses.fetch_add(1, Ordering::Relaxed);
    let processor = refit_sys::processor::current();
    let mut state = lock(&slot.state);
    // Under the lock, so that a rep that was current before a concurrent flush cannot be stored
    // after it.
    let mut rep = state.root.rep(processor);
    if let Some(layer) = &mut state.layer {
        rep = layer.rep(processor, rep);
    }
    if !state.destroyed {
        // SAFETY: the object was created; the rep lives as long as its root or layer, which are
        // retired after a flush.
        unsafe { table::install(processor, slot.id.index, rep) };
    }
    rep
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Implementations, Root, TransferError};
    use crate::{
        After, OwnedRep, PreCall, SwapOptions, Wrapper, attach, create, destroy, registry, settle,
        swap_named,
    };
    use std::time::{Duration, Instant};

    #[crate::interface(name = "layered", state = ())]
    trait Layered {
        fn call(&self);
    }

    struct Plain;

    impl Layered for Plain {
        fn call(&self) {}
    }

    impl Root<LayeredInterface> for Plain {
        fn implementation(&self) -> &str {
            "plain"
        }
        fn make_rep(&self, _processor: usize) -> OwnedRep<LayeredInterface> {
            LayeredInterface::rep(Plain)
        }
        fn export(&self) -> Result<(), TransferError> {
            Ok(())
        }
        fn import(&self, (): ()) -> Result<(), TransferError> {
            Ok(())
        }
    }

    impl Implementations<LayeredInterface> for Plain {
        fn names(&self) -> Vec<&'static str> {
            vec!["plain"]
        }
        fn root(&self, _name: &str) -> Option<Box<dyn Root<LayeredInterface>>> {
            Some(Box::new(Plain))
        }
    }

    struct Idle;

    impl Wrapper for Idle {
        fn name(&self) -> &str {
            "idle"
        }
        fn precall(&self, _call: &PreCall<'_>) -> After {
            After::Forward
        }
    }

    /// Its entries point to no rep any more, and its slot is freed.
    #[test]
    fn a_destroyed_object_gets_no_other_root() {
        let c: LayeredRef = create("destroyed", Box::new(Plain), Arc::new(Plain));
        let slot = registry::get(c.id()).expect("it lives");
        let root = slot.root();
        destroy(c.id());
        assert!(slot.swing_root(root).is_none());
        assert!(std::panic::catch_unwind(|| c.call()).is_err(), "it is destroyed");
    }

    /// The reps that lead through the wrappers to a root are freed with it, or each swap would
    /// leave some behind.
    #[test]
    fn a_swap_leaves_no_reps_of_wrappers_behind() {
        let c: LayeredRef = create("layered", Box::new(Plain), Arc::new(Plain));
        attach(c.id(), Idle).expect("it lives");
        let slot = registry::get(c.id()).expect("it lives");
        // One is the layer's; each rep has one.
        let holders = || lock(&slot.state).layer.as_ref().map(|l| Arc::strong_count(&l.stack()[0]));
        c.call();
        assert!(holders() > Some(1), "the call has a rep");
        let options = SwapOptions { deadline: Duration::from_secs(60), ..SwapOptions::default() };
        assert!(swap_named(c.id(), "plain", 1, &options).committed());
        let until = Instant::now() + Duration::from_secs(30);
        while holders() != Some(1) {
            settle(); // Requests of other tests may keep them.
            assert!(Instant::now() < until, "{:?} holders", holders());
        }
        destroy(c.id());
    }
}
