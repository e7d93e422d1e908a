//! Objects: identity, root, reps created on demand, miss handling, creation and destruction (Hui
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
//! Calls look up and use reps only within a request. Roots, reps and slots are passed to
//! [`crate::retire`] after the entries have been replaced, which frees them when a generation has
//! passed.

use std::any::Any;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::Origin;
use crate::clustering::Clustering;
use crate::interface::{Implementations, Import, Interface, Root};
use crate::interposer::Layer;
use crate::name::Name;
use crate::registry;
use crate::rep::{InterfaceInfo, OwnedRep, RepHeader};
use crate::retire::{defer, retire};
use crate::switch::Member;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::table;
use crate::ticket::Ticket;
use crate::wrapper::WrapperInfo;
use crate::wrapping::WrapperFailure;

/// The identity of an object: its index in the translation table and a serial number that no other
/// object of the process has. `Copy`; a call through the id of a destroyed object panics and has no
/// other effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    pub(crate) index: u32,
    pub(crate) serial: u32,
}

impl ObjectId {
    /// Returns the id as one number, for tables of other systems.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.index) | u64::from(self.serial) << 32
    }

    /// Converts a number of [`Self::to_bits`] back. A number that was never an id becomes an id
    /// that no object has.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        ObjectId { index: bits as u32, serial: (bits >> 32) as u32 }
    }
}

/// The id of an object that was created for this interface, from which references are made. It
/// stays valid when the object is destroyed; calls detect that.
pub struct Bound<I> {
    /// As one number, since a call compares it as a whole.
    id: u64,
    interface: PhantomData<fn() -> I>,
}

impl<I> Bound<I> {
    /// # Safety
    /// An object with this id must have been created, for interface `I`.
    pub(crate) unsafe fn new(id: ObjectId) -> Self {
        Bound { id: id.to_bits(), interface: PhantomData }
    }

    /// Returns the id.
    #[inline(always)]
    pub fn id(self) -> ObjectId {
        ObjectId::from_bits(self.id)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.id
    }
}

// By hand, since a derive would require the same of `I`.
impl<I> Clone for Bound<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Bound<I> {}

impl<I> PartialEq for Bound<I> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<I> Eq for Bound<I> {}

impl<I> std::hash::Hash for Bound<I> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<I> std::fmt::Debug for Bound<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ObjectId { index, serial } = self.id();
        write!(f, "{index}.{serial}")
    }
}

/// The activity of an object without its description, which is cheaper for frequent queries.
#[derive(Clone, Debug)]
pub struct ObjectActivity {
    /// The id of the object.
    pub id: ObjectId,
    /// `interface:instance`.
    pub name: String,
    /// The implementation with its wrappers: `latency(count(shared))`.
    pub implementation: String,
    /// The counters of the implementation.
    pub stats: Vec<(&'static str, u64)>,
}

/// The description of an object.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectInfo {
    /// The id of the object.
    pub id: ObjectId,
    /// `interface:instance`.
    pub name: String,
    /// The name of the interface.
    pub interface: &'static str,
    /// The current implementation.
    pub implementation: String,
    /// The implementations to which it can be swapped.
    pub implementations: Vec<&'static str>,
    /// The number of reps that have been created.
    pub reps: usize,
    /// The grouping of processors, as [`Clustering`] is written.
    pub clustering: String,
    /// The number of calls that went through the default object.
    pub misses: u64,
    /// The objects that it calls.
    pub imports: Vec<Import>,
    /// The counters of the implementation.
    pub stats: Vec<(&'static str, u64)>,
    /// The wrappers of the implementation, innermost first.
    pub wrappers: Vec<WrapperInfo>,
    /// The last few wrappers that panicked and were detached for that.
    pub wrapper_failures: Vec<WrapperFailure>,
}

/// A source of reps for processors: an implementation's root with its reps, or the mediator.
pub(crate) trait AnyRoot: Send + Sync {
    /// Returns the rep for a processor, and creates it if necessary. It lives as long as `self`.
    fn rep(&self, processor: usize) -> *const RepHeader;
    /// Returns the name of the implementation.
    fn implementation(&self) -> String;
    /// Returns the number of reps that have been created.
    fn reps(&self) -> usize;
    /// Returns the grouping of processors.
    fn clustering(&self) -> Clustering;
    /// Returns the counters of the implementation.
    fn stats(&self) -> Vec<(&'static str, u64)>;
    /// See [`Root::imports`].
    fn imports(&self) -> Vec<Import>;
    /// Converts to `Any`, to recover the type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// An implementation's root and the reps it has created.
pub(crate) struct Attached<I: Interface> {
    pub(crate) root: Box<dyn Root<I>>,
    clustering: Clustering,
    id: ObjectId,
    /// The thread in which a transfer from this root runs; 0 if there is none.
    pub(crate) unreturned: AtomicUsize,
    /// `(cluster number, rep)`.
    reps: Mutex<Vec<(usize, OwnedRep<I>)>>,
}

impl<I: Interface> Attached<I> {
    pub(crate) fn new(root: Box<dyn Root<I>>, id: ObjectId) -> Self {
        Self::clustered(root, id, Clustering::AsMade)
    }

    pub(crate) fn clustered(root: Box<dyn Root<I>>, id: ObjectId, clustering: Clustering) -> Self {
        let (unreturned, reps) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        Attached { root, clustering, id, unreturned, reps }
    }
}

impl<I: Interface> AnyRoot for Attached<I> {
    fn rep(&self, processor: usize) -> *const RepHeader {
        let cluster = self.clustering.of(processor, || self.root.cluster(processor));
        let mut reps = lock(&self.reps);
        if let Some((_, rep)) = reps.iter().find(|(c, _)| *c == cluster) {
            return rep.as_ptr();
        }
        let mut rep = self.root.make_rep(processor);
        rep.belong_to(self.id.to_bits());
        let header = rep.as_ptr();
        reps.push((cluster, rep));
        header
    }

    fn implementation(&self) -> String {
        self.root.implementation().to_owned()
    }

    fn reps(&self) -> usize {
        lock(&self.reps).len()
    }

    fn clustering(&self) -> Clustering {
        self.clustering.clone()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.root.stats()
    }

    fn imports(&self) -> Vec<Import> {
        self.root.imports()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Swaps an object of some interface by the name of the implementation.
pub(crate) trait Swapper: Send + Sync {
    fn names(&self) -> Vec<&'static str>;
    /// Returns whether the object has an implementation of this name that was not loaded.
    fn own(&self, name: &str) -> bool;
    /// Returns why no object can be swapped to this name; `None` if it can.
    fn cannot(&self, to: &str) -> Option<String>;
    /// Returns the object as a member of a switch, with a new, empty root of this name; the error
    /// says why that failed.
    fn member(&self, slot: &Arc<Slot>, to: &str, clustering: Clustering) -> Result<Member, String>;
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

    /// Discards the entries; the next call on each processor finds its rep again.
    fn flush(&self) {
        let state = lock(&self.state);
        if !state.destroyed {
            self.point_entries(&state, &raw const self.default);
        }
    }

    fn activity(&self) -> ObjectActivity {
        ObjectActivity {
            id: self.id,
            name: self.full_name(),
            implementation: self.composed(),
            stats: self.root().stats(),
        }
    }

    pub(crate) fn info(&self) -> ObjectInfo {
        let root = self.root();
        ObjectInfo {
            id: self.id,
            name: self.full_name(),
            interface: self.interface.name,
            implementation: root.implementation(),
            implementations: self.swapper.names(),
            reps: root.reps(),
            clustering: root.clustering().to_string(),
            misses: self.misses.load(Ordering::Relaxed),
            imports: root.imports(),
            stats: root.stats(),
            wrappers: self.wrapper_infos(),
            wrapper_failures: self.wrapper_failures(),
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
    // Under the lock, so that a concurrent flush cannot be overwritten by what was current before
    // it.
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

/// Creates an object. Its reps are created when it is called for the first time on a processor.
///
/// # Panics
/// If the table is full (2^20 live objects).
pub fn create<I: Interface>(
    name: impl Into<Name>,
    root: Box<dyn Root<I>>,
    implementations: Arc<dyn Implementations<I>>,
) -> I::Ref {
    create_made(name.into(), root, implementations, None)
}

/// Creates an object, possibly for a factory.
pub(crate) fn create_made<I: Interface>(
    name: Name,
    root: Box<dyn Root<I>>,
    implementations: Arc<dyn Implementations<I>>,
    origin: Option<Origin>,
) -> I::Ref {
    let swapper = Box::new(crate::swap::ByName::new(implementations));
    let id = registry::add(|id| {
        let root = Arc::new(Attached::new(root, id));
        Slot::new(id, I::info(), name, swapper, origin, root)
    });
    // SAFETY: it was created just now, for this interface.
    I::bind(unsafe { Bound::new(id) })
}

/// Destroys an object. Calls in progress finish normally, and its memory is freed after them; later
/// calls panic. A swap in progress is rolled back. Does nothing if the object was already
/// destroyed.
pub fn destroy(id: ObjectId) {
    let Some(slot) = registry::get(id) else { return };
    // A swap holds the ticket while the mediator is in place. It must not wait any longer for
    // requests to end, since this thread may be in one of them.
    slot.doomed.store(true, Ordering::Relaxed);
    let ticket = slot.changing().take(Duration::MAX, &|| false);
    let Some(root) = slot.withdraw() else { return };
    drop(ticket);
    registry::remove(&slot);
    retire(Box::new((root, registry::Freed(slot))));
}

/// Discards all entries of the translation table. They are a cache: the next call of each object on
/// each processor finds its rep again. For callers that verify this, or that have moved the memory.
pub fn discard_entries() {
    registry::all().iter().for_each(|slot| slot.flush());
}

/// Returns all objects, in no particular order.
pub fn objects() -> Vec<ObjectInfo> {
    registry::all().iter().map(|slot| slot.info()).collect()
}

/// Returns the activity of all objects, in no particular order.
pub fn activity() -> Vec<ObjectActivity> {
    registry::all().iter().map(|slot| slot.activity()).collect()
}

/// Returns one object.
pub fn object(id: ObjectId) -> Option<ObjectInfo> {
    registry::get(id).map(|slot| slot.info())
}
