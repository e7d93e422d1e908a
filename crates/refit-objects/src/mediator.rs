//! The mediator: a clustered object that replaces any other while that one is being swapped (Hui
//! 2000, §4.4.1).
//!
//! One mediator serves every interface: its vtable for an interface consists of shims that the
//! macro generates. Each shim calls [`mediate`] before the real method and drops the returned value
//! after it. The shims replace K42's assembly trampolines, which had to preserve all registers
//! because they did not know the signatures; the compiler does.
//!
//! It has one rep per processor, all created with it: a rep is five words. The rep knows its
//! processor, so that a call uses the ledger of the processor on which it arrived, even if it
//! leaves on another one.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::attached::AnyRoot;
use crate::clustering::Clustering;
use crate::generation::Caller;
use crate::id::ObjectId;
use crate::inside;
use crate::interface::Import;
use crate::mediation::{Mediation, Outcome};
use crate::rep::RepHeader;
use crate::rep_cell::RepCell;
use crate::request::{record, until_request_ends};
use crate::slot::Slot;

/// The number of a switch, unique within the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchNumber(u64);

impl SwitchNumber {
    pub(crate) fn next() -> Self {
        static SWITCHES: AtomicU64 = AtomicU64::new(1); // 0 is the number of none.
        SwitchNumber(SWITCHES.fetch_add(1, Ordering::Relaxed))
    }
}

/// The unit that a mediator tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// The call, from its entry to its return.
    Call,
    /// The rest of the request: since it has called an old implementation first, it gets the old
    /// ones until it ends.
    Request,
}

/// The mediator's root.
pub(crate) struct Mediator {
    /// The number of this switch, by which threads remember that they are inside.
    switch: u64,
    unit: Unit,
    id: ObjectId,
    mediation: Arc<Mediation>,
    old: Arc<dyn AnyRoot>,
    new: Arc<dyn AnyRoot>,
    reps: Box<[MediatorRep]>,
}

/// The mediator's rep on one processor.
#[repr(C)]
struct MediatorRep {
    header: RepHeader,
    /// The root that owns the rep; null until the rep is first requested.
    mediator: AtomicPtr<Mediator>,
    /// The old root's rep for this processor; null until a call has requested it.
    old: RepCell<RepHeader>,
    processor: usize,
}

impl Mediator {
    /// Creates a mediator for an object that takes part in the switch with this number.
    pub(crate) fn new(
        switch: SwitchNumber,
        slot: &Slot,
        unit: Unit,
        mediation: Arc<Mediation>,
        roots: [Arc<dyn AnyRoot>; 2],
    ) -> Arc<Self> {
        let [old, new] = roots;
        let rep = |processor| MediatorRep {
            header: RepHeader { vtable: slot.interface.mediator, object: slot.id.to_bits() },
            mediator: AtomicPtr::default(),
            old: RepCell::new(),
            processor,
        };
        Arc::new(Mediator {
            switch: switch.0,
            unit,
            id: slot.id,
            mediation,
            old,
            new,
            reps: (0..refit_sys::processor::count()).map(rep).collect(),
        })
    }

    /// Waits until the switch has ended. Returns the root that serves then. If another thread waits
    /// for this one, reports say what this one waits for.
    #[cold]
    fn wait(&self) -> &dyn AnyRoot {
        let record = record();
        record.wait_for(self.id.to_bits());
        let outcome = self.mediation.wait_for_outcome();
        record.wait_for(0);
        match outcome {
            Outcome::New => &*self.new,
            Outcome::Old => &*self.old,
        }
    }
}

impl AnyRoot for Mediator {
    fn rep(&self, processor: usize) -> *const RepHeader {
        let rep = &self.reps[processor];
        // Release pairs with the load in `MediatorRep::mediator`, though the table orders the two
        // as well.
        rep.mediator.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        std::ptr::from_ref(rep).cast()
    }

    fn implementation(&self) -> String {
        format!("{} → {}", self.old.implementation(), self.new.implementation())
    }

    fn reps(&self) -> usize {
        self.old.reps()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.old.stats()
    }

    fn imports(&self) -> Vec<Import> {
        self.old.imports()
    }

    fn clustering(&self) -> Clustering {
        self.old.clustering()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl MediatorRep {
    /// Returns the rep behind a header, and its mediator.
    ///
    /// # Safety
    /// `header` must be that of a mediator's rep that the caller found in its current request; the
    /// result must not be used after that.
    #[inline(always)]
    unsafe fn of<'a>(header: *const RepHeader) -> (&'a MediatorRep, &'a Mediator) {
        // SAFETY: repr(C) with the header first. The mediator, with its reps, is retired after the
        // entries have been pointed away from it, so it outlives every request that can know it.
        let rep = unsafe { &*header.cast::<MediatorRep>() };
        // SAFETY: the header was found in the table, where only `Mediator::rep` puts it, after it
        // has stored this.
        (rep, unsafe { &*rep.mediator.load(Ordering::Acquire) })
    }

    /// Returns the rep of the old implementation.
    #[inline]
    fn old(&self, mediator: &Mediator) -> *const RepHeader {
        let known = self.old.load();
        if known.is_null() { self.ask_old(mediator) } else { known }
    }

    #[cold]
    fn ask_old(&self, mediator: &Mediator) -> *const RepHeader {
        let rep = mediator.old.rep(self.processor);
        self.old.store(rep);
        rep
    }
}

/// A call on its way through the mediator. Dropped when the method has returned.
#[derive(Debug)]
pub struct Mediated {
    rep: *const RepHeader,
    /// The mediator's rep on which it arrived; null if it is not tracked.
    through: *const RepHeader,
    ticket: u64,
    /// Whether it is the thread's outermost call of this switch.
    outermost: bool,
}

impl Mediated {
    /// Returns the rep that serves the call.
    #[inline]
    pub fn rep(&self) -> *const RepHeader {
        self.rep
    }

    fn untracked(rep: *const RepHeader) -> Self {
        Mediated { rep, through: std::ptr::null(), ticket: 0, outermost: false }
    }
}

/// The prolog of a call: decides where the call goes, and waits if it must.
///
/// # Safety
/// `header` must be that of a mediator's rep that the caller looked up in its current request; the
/// result must be dropped within that request.
pub unsafe fn mediate(header: *const RepHeader, method: u16) -> Mediated {
    // SAFETY: guaranteed by the caller.
    let (rep, mediator) = unsafe { MediatorRep::of(header) };
    let again = inside::inside(mediator.switch);
    if again && mediator.unit == Unit::Request {
        // The request's ticket covers this call.
        return Mediated::untracked(rep.old(mediator));
    }
    let caller = Caller { tid: record().tid(), object: mediator.id.to_bits(), method };
    let Some(ticket) = mediator.mediation.admit(rep.processor, again, caller) else {
        return Mediated::untracked(mediator.wait().rep(rep.processor));
    };
    if !again {
        inside::enter(mediator.switch);
    }
    if mediator.unit == Unit::Request {
        hold_until_request_ends(mediator, rep.processor, ticket);
        return Mediated::untracked(rep.old(mediator));
    }
    // If the old root panics while it creates its rep, the ticket is returned.
    let mut mediated =
        Mediated { rep: std::ptr::null(), through: header, ticket, outermost: !again };
    mediated.rep = rep.old(mediator);
    mediated
}

/// Keeps the ticket until the request ends.
fn hold_until_request_ends(mediator: &Mediator, processor: usize, ticket: u64) {
    let (mediation, switch) = (Arc::clone(&mediator.mediation), mediator.switch);
    until_request_ends(move || {
        inside::leave(switch);
        mediation.leave(processor, ticket);
    });
}

impl Drop for Mediated {
    /// The epilog of a call, also when the method has panicked.
    #[inline]
    fn drop(&mut self) {
        if self.through.is_null() {
            return;
        }
        // SAFETY: as in `mediate`: the request has not ended.
        let (rep, mediator) = unsafe { MediatorRep::of(self.through) };
        if self.outermost {
            inside::leave(mediator.switch);
        }
        mediator.mediation.leave(rep.processor, self.ticket);
    }
}
