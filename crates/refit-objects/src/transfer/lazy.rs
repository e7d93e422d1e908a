//! Lazy transfer: look up what is not here in the old implementation, take it over, and never lose it on the way
//! (Hui 2000, §4.4.4: "look up and migrate on demand").
//!
//! # Idea
//!
//! After the commit the new implementation owns every item, but some still lie with the old one, the *source*. A
//! [`Lazy`] stands between: before the new implementation decides anything about a key it does not have, it *settles*
//! the key. Settling takes the item out of the source and puts it into the new store, under the lock of the key's
//! *stripe*. Calls settle the keys they need; a drain settles all others in batches. What can be found in the new store
//! needs no settling, so calls for what has moved do not come here at all.
//!
//! When the source says that it has nothing left, the drain *closes* the stripes one by one, under their locks, and only
//! then clears the flag that calls look at first. From then on settling is one load; the source is dropped.
//!
//! # Rules for the implementation
//!
//! 1. A look-up that finds nothing settles the key and looks again. Whatever adds, changes or removes a key settles it
//!    first.
//! 2. No lock that `take_over` needs is held while a key is settled.
//! 3. Nobody adds to the source. It is the old implementation's state; no call reaches that any more.
//!
//! # Why no key is lost, duplicated or resurrected
//!
//! Where is the item of a key? *In the source*; *in hand*, between its removal there and its arrival here; *here*, which
//! shall mean that whatever has become of it was done by calls to the new implementation.
//!
//! - *It moves one way only, under one lock.* Source → in hand → here happens in [`Lazy::settle`], `drain` and `finish`,
//!   each time with the key's stripe locked throughout. By rule 3 it never goes back. An item that was refused, or whose
//!   `take_over` panicked, is kept in the stripe; that counts as in the source.
//! - *Settled is for ever* (L). When `settle(k)` returns well, `k` is here, and stays: with the stripe locked it was in
//!   hand with nobody, and afterwards not in the source. If `settle` saw the flag cleared: the flag was cleared after
//!   `k`'s stripe had been closed, that was after the source had said that it had nothing, and closing took the lock. Who
//!   had taken `k` out before held that lock until `k` was here. (Clearing the flag without closing the stripes is
//!   wrong just there; the model below finds it.)
//! - *Nothing is lost.* A look-up that misses settles and looks again; by (L) the second look sees what calls have made
//!   of the key, and a reader never takes "in hand" for "not there".
//! - *Nothing is there twice.* `fetch` removes, so one thread at most has the item in hand.
//! - *Nothing comes back.* Who removes or overwrites `k` has settled it; by (L) no drain and no call can bring the old
//!   item afterwards.
//! - *A second swap* finds one of two things: the new implementation exports everything, then [`Lazy::finish`] comes
//!   first; or it becomes a source itself, then what is fetched from it is settled first, and (L) holds along the chain.
//!   It says that it has nothing left only when nothing is in hand either ([`Lazy::keys`] passes all stripes' locks).
//!
//! Progress: a stripe's lock is held for one fetch, or for the whole rest in `finish`. Locks are taken in the order
//! stripe, source, store; the stripes among themselves in ascending order.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::error::TransferError;
use crate::ending::RolledBack;
use crate::panics::panic_text;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// Where the items are that have not moved yet.
pub trait LazySource<K, V>: Send + Sync {
    /// Takes an item out; `None` if it is not here. If it fails or panics the item must still be here.
    ///
    /// # Errors
    /// Why it cannot be taken out now.
    fn fetch(&self, key: &K) -> Result<Option<V>, TransferError>;

    /// Some of the keys that are here, `most` at most; none only if nothing is left.
    ///
    /// # Errors
    /// Why they cannot be told now.
    fn keys(&self, most: usize) -> Result<Vec<K>, TransferError>;

    /// Items that are here.
    fn left(&self) -> u64;
}

/// How far a lazy transfer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether the old implementation is still needed: some item is there, or may just be on its way.
    pub open: bool,
    /// Items that have not moved.
    pub left: u64,
    /// Items that moved because a call needed them.
    pub on_demand: u64,
    /// Items that the drain moved.
    pub by_drain: u64,
}

/// An item between the two stores. It is the receiver's once it is taken; take it when nothing can fail any more. If
/// it is dropped, in a panic too, it is kept and offered again.
#[derive(Debug)]
pub struct InHand<'a, V>(&'a mut Option<V>);

impl<V> InHand<'_, V> {
    /// The item.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot: there is an item until it is taken, and taking takes the hand"
    )]
    pub fn take(self) -> V {
        self.0.take().expect("an item is in hand")
    }
}

/// That a root has attached a source; see [`Lazy::detach`]. It cannot be made otherwise, nor copied.
#[derive(Debug)]
pub struct AttachedSource(());

type Source<K, V> = Arc<dyn LazySource<K, V>>;

struct Stripe<K, V> {
    /// `None`: nothing of this stripe is there any more.
    source: Option<Source<K, V>>,
    /// Taken out of the source, and refused here.
    kept: Vec<(K, V)>,
}

/// What stands between a new implementation and the source of its items. See the module.
pub struct Lazy<K, V> {
    stripes: Box<[Mutex<Stripe<K, V>>]>,
    /// 1 while there can be something to settle.
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

/// Who settles a key.
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
        // Acquire pairs with the release in `close`: what was settled before is seen.
        self.attached.load(Ordering::Acquire) != 0
    }
}

impl<K: Hash + Eq + Clone, V> Lazy<K, V> {
    /// Without a source; keys are settled under `stripes` locks, one at least.
    pub fn new(stripes: usize) -> Self {
        let stripe = |_| Mutex::new(Stripe { source: None, kept: Vec::new() });
        Lazy {
            stripes: (0..stripes.max(1)).map(stripe).collect(),
            attached: AtomicU64::new(0),
            on_demand: AtomicU64::new(0),
            by_drain: AtomicU64::new(0),
        }
    }

    /// From here on items are looked up in `source`. For imports: before anybody settles. What it returns is for
    /// [`detach`](Self::detach); whoever has no use for that drops it.
    pub fn attach(&self, source: Source<K, V>) -> AttachedSource {
        for stripe in &self.stripes {
            lock(stripe).source = Some(Arc::clone(&source));
        }
        self.attached.store(1, Ordering::Release);
        AttachedSource(())
    }

    /// Lets the source go without taking anything: the swap that attached it was rolled back, as `proof` from
    /// `Root::relinquish` says. A root that was *replaced* has no proof, and must keep its source: its successor takes
    /// what is still there from it. A root that got its items by reference has no attachment: the source is the other's.
    pub fn detach(&self, attachment: AttachedSource, proof: &RolledBack) {
        let (AttachedSource(()), RolledBack { .. }) = (attachment, proof);
        for stripe in &self.stripes {
            lock(stripe).source = None;
        }
        self.attached.store(0, Ordering::Release);
    }

    /// Makes sure that the item of `key` is here, if there is one. `take_over` puts it into the store.
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

    /// Settles `most` keys that calls have not needed yet; 0: only tells how far it is. One thread or several.
    ///
    /// # Errors
    /// The first failure; the other keys have been tried all the same.
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

    /// Settles all keys. Calls that need one of them wait until it is over; calls for what is here go on.
    ///
    /// # Errors
    /// The first failure; the other keys have been tried all the same.
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
                // Nobody else can have taken them, and everybody waits: no second try.
                let what = "the old implementation lists keys whose items it does not give";
                return Err(TransferError(what.into()));
            }
        }
        // Closed with everything locked, and still one by one: an item that is refused keeps its stripe open.
        let gone: Result<Vec<_>, _> =
            stripes.iter_mut().map(|s| self.close_stripe(s, &mut take_over)).collect();
        gone?;
        self.attached.store(0, Ordering::Release); // Pairs with the load in `attached`.
        drop(stripes);
        Ok(self.progress())
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let open = self.attached();
        let left = if open { self.left() } else { 0 };
        // Relaxed: counts for people.
        let [on_demand, by_drain] =
            [&self.on_demand, &self.by_drain].map(|n| n.load(Ordering::Relaxed));
        Progress { open, left, on_demand, by_drain }
    }

    fn left(&self) -> u64 {
        let kept: usize = self.stripes.iter().map(|s| lock(s).kept.len()).sum();
        self.source().map_or(0, |source| source.left()) + kept as u64
    }

    /// The keys of some items that have not moved; for a store that is itself a source. It must ask here *first*, and
    /// then look at its own items: if there are none here, all that was in hand has arrived there.
    ///
    /// # Errors
    /// The source's.
    pub fn keys(&self, most: usize) -> Result<Vec<K>, TransferError> {
        if !self.attached() {
            return Ok(Vec::new());
        }
        let mut found = match self.source() {
            Some(source) => keys(&*source, most)?,
            None => Vec::new(),
        };
        // After the look at the source: who took its last item holds one of these locks until the item is here.
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

    /// The source has nothing left: nobody needs to ask it any more.
    fn close(&self, take_over: TakeOver<'_, K, V>) -> Result<(), TransferError> {
        let mut gone = Vec::new();
        for stripe in &self.stripes {
            // Whoever took something out of the source before it was found empty holds this lock until it is here.
            gone.push(self.close_stripe(&mut lock(stripe), take_over)?);
        }
        self.attached.store(0, Ordering::Release); // Pairs with the load in `attached`.
        // The old implementation's state ends here, with no lock held.
        drop(gone);
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

    /// Source → in hand → here, with the stripe locked; whether there was anything to move.
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

/// Keeps what is in hand if nobody takes it, whether that is an oversight or a panic.
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

/// Foreign code under our locks: a panic becomes an error, so that whoever needed the item is told.
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
