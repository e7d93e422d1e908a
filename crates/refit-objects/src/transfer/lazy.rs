//! Lazy transfer: an item that the new implementation does not have is looked up in the old one and
//! moved, and is never lost on the way (Hui 2000, §4.4.4: "look up and migrate on demand").
//!
//! # Idea
//!
//! After the commit the new implementation owns every item, but some are still stored in the old
//! one, the *source*. A [`Lazy`] mediates: before the new implementation decides anything about a
//! key it does not have, it *settles* the key. Settling removes the item from the source and puts
//! it into the new store, under the lock of the key's *stripe*. Calls settle the keys they need; a
//! drain settles all others in batches. An item that is found in the new store needs no settling,
//! so calls for items that have moved do not use this module.
//!
//! When the source reports that it has nothing left, the drain *closes* the stripes one by one,
//! under their locks, and only then clears the flag that calls check first. From then on settling
//! is one load, and the source is dropped.
//!
//! # Rules for the implementation
//!
//! 1. A lookup that finds nothing settles the key and looks again. An operation that adds, changes
//!    or removes a key settles it first.
//! 2. No lock that `take_over` needs is held while a key is settled.
//! 3. No item is added to the source. It is the state of the old implementation, which no call
//!    reaches any more.
//!
//! # Why no key is lost, duplicated or resurrected
//!
//! The item of a key is in one of three places: *in the source*; *in hand*, between its removal
//! from the source and its arrival in the new store; or *here*, where only calls to the new
//! implementation access it.
//!
//! - *It moves in one direction only, under one lock.* Source → in hand → here happens in
//!   [`Lazy::settle`], `drain` and `finish`, each time with the key's stripe locked throughout. By
//!   rule 3 it never goes back. An item that was refused, or whose `take_over` panicked, is kept in
//!   the stripe; that counts as in the source.
//! - *A settled key stays settled* (L). When `settle(k)` succeeds, `k` is here, and stays: with the
//!   stripe locked no thread had it in hand, and afterwards it is not in the source. If `settle`
//!   saw the flag cleared: the flag was cleared after `k`'s stripe had been closed, which was after
//!   the source had reported that it had nothing, and closing took the lock. A thread that had
//!   taken `k` out before held that lock until `k` was here. (Clearing the flag without closing the
//!   stripes would break exactly this step; the loom model finds that.)
//! - *Nothing is lost.* A lookup that misses settles and looks again. By (L) the second lookup sees
//!   the key as calls have left it, and a reader never mistakes "in hand" for "absent".
//! - *Nothing is there twice.* `fetch` removes, so at most one thread has the item in hand.
//! - *Nothing comes back.* A thread that removes or overwrites `k` has settled it; by (L) no drain
//!   and no call can bring the old item afterwards.
//! - *A second swap* has one of two forms. If the new implementation exports everything,
//!   [`Lazy::finish`] comes first. If it becomes a source itself, items that are fetched from it
//!   are settled first, and (L) holds along the chain. It reports that it has nothing left only
//!   when nothing is in hand either ([`Lazy::keys`] takes the locks of all stripes in turn).
//!
//! Progress: a stripe's lock is held for one fetch, or for the whole rest in `finish`. Locks are
//! taken in the order stripe, source, store; stripes among themselves in ascending order.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::error::TransferError;
use crate::ending::RolledBack;
use crate::panics::panic_text;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// The store of the items that have not moved yet.
pub trait LazySource<K, V>: Send + Sync {
    /// Removes an item; `None` if it is not here. If this fails or panics, the item must still be
    /// here.
    ///
    /// # Errors
    /// The reason that it cannot be removed now.
    fn fetch(&self, key: &K) -> Result<Option<V>, TransferError>;

    /// Returns some of the keys that are here, at most `most`; none only if nothing is left.
    ///
    /// # Errors
    /// The reason that they cannot be listed now.
    fn keys(&self, most: usize) -> Result<Vec<K>, TransferError>;

    /// Returns the number of items that are here.
    fn left(&self) -> u64;
}

/// The progress of a lazy transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the old implementation is still needed: some item is there, or may just be in hand.
    pub open: bool,
    /// The number of items that have not moved.
    pub left: u64,
    /// The number of items that moved because a call needed them.
    pub on_demand: u64,
    /// The number of items that the drain moved.
    pub by_drain: u64,
}

/// An item between the two stores. Taking it transfers it to the receiver, and should be the last
/// step, after which nothing can fail. If this is dropped with the item, even in a panic, the item
/// is kept and offered again.
#[derive(Debug)]
pub struct InHand<'a, V>(&'a mut Option<V>);

impl<V> InHand<'_, V> {
    /// Takes the item.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot: there is an item until it is taken, and taking takes the hand"
    )]
    pub fn take(self) -> V {
        self.0.take().expect("an item is in hand")
    }
}

/// Proof that a root has attached a source; see [`Lazy::detach`]. It cannot be created otherwise,
/// nor copied.
#[derive(Debug)]
pub struct AttachedSource(());

type Source<K, V> = Arc<dyn LazySource<K, V>>;

struct Stripe<K, V> {
    /// `None` if no item of this stripe is there any more.
    source: Option<Source<K, V>>,
    /// Items that were taken out of the source, and refused here.
    kept: Vec<(K, V)>,
}

/// The mediator between a new implementation and the source of its items. See the module
/// documentation.
pub struct Lazy<K, V> {
    stripes: Box<[Mutex<Stripe<K, V>>]>,
    /// 1 while there may be something to settle.
    attached: AtomicU64,
    on_demand: AtomicU64,
    by_drain: AtomicU64,
}

impl<K, V> std::fmt::Debug for Lazy<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lazy").field("attached", &self.attached()).finish_non_exhaustive()
    }
}

/// Puts an item into the new store.
type TakeOver<'a, K, V> = &'a mut dyn FnMut(&K, InHand<'_, V>);

/// The thread that settles a key.
#[derive(Clone, Copy)]
enum Mover {
    Call,
    Drain,
}

impl<K: Hash + Eq + Clone, V> Default for Lazy<K, V> {
    fn default() -> Self {
        // Each lock is one more step of a model.
        Self::new(if cfg!(loom) { 1 } else { 64 })
    }
}

impl<K, V> Lazy<K, V> {
    fn attached(&self) -> bool {
        // Acquire pairs with the release in `close`, so that everything settled before is visible.
        self.attached.load(Ordering::Acquire) != 0
    }
}

impl<K: Hash + Eq + Clone, V> Lazy<K, V> {
    /// Creates a mediator without a source; keys are settled under `stripes` locks, at least one.
    pub fn new(stripes: usize) -> Self {
        let stripe = |_| Mutex::new(Stripe { source: None, kept: Vec::new() });
        Lazy {
            stripes: (0..stripes.max(1)).map(stripe).collect(),
            attached: AtomicU64::new(0),
            on_demand: AtomicU64::new(0),
            by_drain: AtomicU64::new(0),
        }
    }

    /// Looks items up in `source` from here on. For imports, before any call settles. The result is
    /// for [`detach`](Self::detach); callers that do not need it drop it.
    pub fn attach(&self, source: Source<K, V>) -> AttachedSource {
        for stripe in &self.stripes {
            lock(stripe).source = Some(Arc::clone(&source));
        }
        // Relaxed: no call has a reference to this yet.
        self.attached.store(1, Ordering::Relaxed);
        AttachedSource(())
    }

    /// Releases the source without taking anything: the swap that attached it was rolled back, as
    /// `proof` from `Root::relinquish` shows. A root that was *replaced* has no proof, and must
    /// keep its source: its successor takes the remaining items from it. A root that got its items
    /// by reference has no attachment, since the source belongs to the other.
    pub fn detach(&self, attachment: AttachedSource, proof: &RolledBack) {
        let (AttachedSource(()), RolledBack { .. }) = (attachment, proof);
        for stripe in &self.stripes {
            lock(stripe).source = None;
        }
        // Relaxed: no call has had a reference to this, and none will.
        self.attached.store(0, Ordering::Relaxed);
    }

    /// Makes sure that the item of `key` is here, if there is one. `take_over` puts it into the
    /// store.
    ///
    /// # Errors
    /// The source failed or panicked, or the item was not taken; it has not moved then.
    pub fn settle(
        &self,
        key: &K,
        take_over: impl FnOnce(InHand<'_, V>),
    ) -> Result<(), TransferError> {
        if !self.attached() {
            return Ok(());
        }
        let mut take_over = Some(take_over);
        let mut once = |_: &K, hand: InHand<'_, V>| {
            if let Some(take_over) = take_over.take() {
                take_over(hand);
            }
        };
        let mut stripe = lock(&self.stripes[self.stripe_of(key)]);
        self.move_one(&mut stripe, key, &mut once, Mover::Call).map(drop)
    }

    /// Settles up to `most` keys that calls have not needed yet. With 0 it only returns the
    /// progress; with `usize::MAX` it is [`finish`](Self::finish). May be called by several
    /// threads.
    ///
    /// # Errors
    /// The first failure; the other keys have been tried nevertheless.
    pub fn drain(
        &self,
        most: usize,
        mut take_over: impl FnMut(&K, InHand<'_, V>),
    ) -> Result<Progress, TransferError> {
        if most == 0 {
            return Ok(self.progress());
        }
        if most == usize::MAX {
            return self.finish(take_over);
        }
        let Some(source) = self.source() else {
            self.close(&mut take_over)?;
            return Ok(self.progress());
        };
        let mut result = Ok(());
        for key in keys(&*source, most)? {
            let mut stripe = lock(&self.stripes[self.stripe_of(&key)]);
            let moved = self.move_one(&mut stripe, &key, &mut take_over, Mover::Drain);
            result = result.and(moved.map(drop));
        }
        result?;
        if keys(&*source, 1)?.is_empty() {
            self.close(&mut take_over)?;
        }
        Ok(self.progress())
    }

    /// Settles all keys. Calls that need one of them wait until it is done; calls for items that
    /// are here continue.
    ///
    /// # Errors
    /// The first failure; the other keys have been tried nevertheless.
    pub fn finish(
        &self,
        mut take_over: impl FnMut(&K, InHand<'_, V>),
    ) -> Result<Progress, TransferError> {
        if !self.attached() {
            return Ok(self.progress());
        }
        let mut stripes: Vec<_> = self.stripes.iter().map(lock).collect();
        let source = stripes.iter().find_map(|stripe| stripe.source.clone());
        while let Some(source) = &source {
            let keys = keys(&**source, usize::MAX)?;
            if keys.is_empty() {
                break;
            }
            let (mut result, mut moved) = (Ok(()), 0_usize);
            for key in keys {
                let stripe = &mut stripes[self.stripe_of(&key)];
                match self.move_one(stripe, &key, &mut take_over, Mover::Drain) {
                    Ok(here) => moved += usize::from(here),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            result?;
            if moved == 0 {
                // No other thread can have taken them, and all calls wait, so there is no second
                // attempt.
                let what = "the old implementation lists keys whose items it does not give";
                return Err(TransferError(what.into()));
            }
        }
        // Closed one by one, although all stripes are locked: an item that is refused keeps its
        // stripe open.
        let closed: Result<Vec<_>, _> =
            stripes.iter_mut().map(|s| self.close_stripe(s, &mut take_over)).collect();
        closed?;
        self.attached.store(0, Ordering::Release); // Pairs with the load in `attached`.
        drop(stripes);
        Ok(self.progress())
    }

    /// Returns the progress.
    pub fn progress(&self) -> Progress {
        let open = self.attached();
        let left = if open { self.left() } else { 0 };
        // Relaxed: the counts are for people.
        let [on_demand, by_drain] =
            [&self.on_demand, &self.by_drain].map(|n| n.load(Ordering::Relaxed));
        Progress { open, left, on_demand, by_drain }
    }

    fn left(&self) -> u64 {
        let kept: usize = self.stripes.iter().map(|s| lock(s).kept.len()).sum();
        self.source().map_or(0, |source| source.left()) + kept as u64
    }

    /// Returns the keys of some items that have not moved, for a store that is itself a source. It
    /// must call this *first*, and then look at its own items: if this returns none, all items that
    /// were in hand have arrived there.
    ///
    /// # Errors
    /// The source's error.
    pub fn keys(&self, most: usize) -> Result<Vec<K>, TransferError> {
        if !self.attached() {
            return Ok(Vec::new());
        }
        let mut found = match self.source() {
            Some(source) => keys(&*source, most)?,
            None => Vec::new(),
        };
        // After the query of the source: a thread that took its last item holds one of these locks
        // until the item is here.
        for stripe in &self.stripes {
            let room = most - found.len();
            found.extend(lock(stripe).kept.iter().take(room).map(|(key, _)| key.clone()));
        }
        Ok(found)
    }

    fn source(&self) -> Option<Source<K, V>> {
        self.stripes.iter().find_map(|stripe| lock(stripe).source.clone())
    }

    fn stripe_of(&self, key: &K) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        (hasher.finish() % self.stripes.len() as u64) as usize
    }

    /// Closes all stripes, since the source has nothing left and need not be asked any more.
    fn close(&self, take_over: TakeOver<'_, K, V>) -> Result<(), TransferError> {
        let mut sources = Vec::new();
        for stripe in &self.stripes {
            // A thread that took an item out of the source before it was found empty holds this
            // lock until the item is here.
            sources.push(self.close_stripe(&mut lock(stripe), take_over)?);
        }
        self.attached.store(0, Ordering::Release); // Pairs with the load in `attached`.
        // The old implementation's state ends here, with no lock held.
        drop(sources);
        Ok(())
    }

    fn close_stripe(
        &self,
        stripe: &mut MutexGuard<'_, Stripe<K, V>>,
        take_over: TakeOver<'_, K, V>,
    ) -> Result<Option<Source<K, V>>, TransferError> {
        while let Some((key, _)) = stripe.kept.first() {
            let key = key.clone();
            self.move_one(stripe, &key, take_over, Mover::Drain)?;
        }
        Ok(stripe.source.take())
    }

    /// Moves an item from the source into the hand and here, with the stripe locked. Returns
    /// whether there was anything to move.
    fn move_one(
        &self,
        stripe: &mut Stripe<K, V>,
        key: &K,
        take_over: TakeOver<'_, K, V>,
        mover: Mover,
    ) -> Result<bool, TransferError> {
        let kept = stripe.kept.iter().position(|(k, _)| k == key);
        let found = match (kept, &stripe.source) {
            (Some(at), _) => Some(stripe.kept.swap_remove(at).1),
            (None, Some(source)) => calling("fetch", || source.fetch(key))?,
            (None, None) => None,
        };
        let Some(item) = found else { return Ok(false) };
        let mut custody = Custody { stripe, key, item: Some(item) };
        take_over(key, InHand(&mut custody.item));
        if custody.item.is_some() {
            return Err(TransferError("an item was fetched and not taken over; it is kept".into()));
        }
        let count = match mover {
            Mover::Call => &self.on_demand,
            Mover::Drain => &self.by_drain,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

/// Keeps the item in hand if it is not taken, by mistake or because of a panic.
struct Custody<'a, K: Clone, V> {
    stripe: &'a mut Stripe<K, V>,
    key: &'a K,
    item: Option<V>,
}

impl<K: Clone, V> Drop for Custody<'_, K, V> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.stripe.kept.push((self.key.clone(), item));
        }
    }
}

fn keys<K, V>(source: &dyn LazySource<K, V>, most: usize) -> Result<Vec<K>, TransferError> {
    calling("list of keys", || source.keys(most))
}

/// Calls foreign code under the locks of this module: a panic becomes an error, for the call that
/// needed the item.
fn calling<T>(
    what: &str,
    call: impl FnOnce() -> Result<T, TransferError>,
) -> Result<T, TransferError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        Err(TransferError(format!("the old implementation's {what} panicked: {text}")))
    })
}

#[cfg(all(test, loom))]
#[path = "lazy_model.rs"]
mod model;
