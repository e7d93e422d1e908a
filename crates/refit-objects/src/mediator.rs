//! The mediator: a clustered object that stands in for any other while that one is switched (Hui 2000, §4.4.1).
//!
//! One mediator serves every interface: its vtable for an interface consists of shims that the macro generates, and
//! each shim does nothing but call [`mediate`] before the real method and drop what it returned after it. The shims
//! take the place of K42's assembly trampolines, which had to keep all registers because they did not know the
//! signatures; the compiler does.
//!
//! It has one rep per processor, made on first use. The rep knows its processor, so that the call's ledger is that of
//! the processor it came in on, wherever it leaves.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::clustering::Clustering;
use crate::generation::Caller;
use crate::interface::Import;
use crate::mediation::{Admission, Mediation, Outcome};
use crate::object::{AnyRoot, ObjectId, Slot};
use crate::rep::{InterfaceInfo, RepHeader};
use crate::request::{inside, pop_inside, push_inside, record, until_request_ends};

/// Number of a switch; no other switch of the process has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchNumber(u64);

impl SwitchNumber {
    pub(crate) fn next() -> Self {
        static SWITCHES: AtomicU64 = AtomicU64::new(0);
        SwitchNumber(SWITCHES.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a mediator tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// The call, from its entry to its return.
    Call,
    /// The rest of the request: what it called first was the old one, so it gets the old ones until it ends.
    Request,
}

/// The mediator's root.
pub(crate) struct Mediator {
    /// Number of this switch, by which threads remember that they are inside.
    switch: u64,
    unit: Unit,
    interface: &'static InterfaceInfo,
    id: ObjectId,
    mediation: Arc<Mediation>,
    old: Arc<dyn AnyRoot>,
    new: Arc<dyn AnyRoot>,
    reps: Box<[OnceLock<Box<MediatorRep>>]>,
}

/// The mediator's rep on one processor.
#[repr(C)]
struct MediatorRep {
    header: RepHeader,
    mediator: *const Mediator,
    processor: usize,
}

// SAFETY: `mediator` points to the root that owns the rep, which is Send and Sync and outlives it.
unsafe impl Send for MediatorRep {}
// SAFETY: as above.
unsafe impl Sync for MediatorRep {}

impl Mediator {
    /// A mediator for an object that takes part in the switch of this number.
    pub(crate) fn new(
        switch: SwitchNumber,
        slot: &Slot,
        unit: Unit,
        mediation: Arc<Mediation>,
        roots: [Arc<dyn AnyRoot>; 2],
    ) -> Arc<Self> {
        let [old, new] = roots;
        let processors = refit_sys::processor::count();
        Arc::new(Mediator {
            switch: switch.0,
            unit,
            interface: slot.interface,
            id: slot.id,
            mediation,
            old,
            new,
            reps: (0..processors).map(|_| OnceLock::new()).collect(),
        })
    }

    fn target(&self, outcome: Outcome) -> &dyn AnyRoot {
        match outcome {
            Outcome::New => &*self.new,
            Outcome::Old => &*self.old,
        }
    }
}

impl AnyRoot for Mediator {
    fn rep(&self, processor: usize) -> *const RepHeader {
        let rep = self.reps[processor].get_or_init(|| {
            Box::new(MediatorRep {
                header: RepHeader { vtable: self.interface.mediator, serial: self.id.serial },
                mediator: self,
                processor,
            })
        });
        (&raw const **rep).cast()
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

    fn relinquish(&self) {}

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A call on its way through the mediator. Dropped when the method has returned.
#[derive(Debug)]
pub struct Mediated {
    rep: *const RepHeader,
    /// The mediator's rep and the ticket, if the call is tracked.
    tracked: Option<(*const MediatorRep, u64)>,
}

impl std::fmt::Debug for MediatorRep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediatorRep").field("processor", &self.processor).finish_non_exhaustive()
    }
}

impl Mediated {
    /// The rep that is to serve the call.
    #[inline]
    pub fn rep(&self) -> *const RepHeader {
        self.rep
    }
}

/// The prolog: decides where a call goes, and waits if it must wait.
///
/// # Safety
/// `rep` must be the header of a mediator's rep that the caller looked up in its present request; the result must be
/// dropped within that request.
pub unsafe fn mediate(rep: *const RepHeader, method: u16) -> Mediated {
    let rep = rep.cast::<MediatorRep>();
    // SAFETY: the caller's promise; the mediator is retired, with its reps, only after all requests that can know it.
    let (mediator, processor) = unsafe { (&*(*rep).mediator, (*rep).processor) };
    let again = inside(mediator.switch);
    if again && mediator.unit == Unit::Request {
        // The request's ticket covers this call.
        return Mediated { rep: mediator.old.rep(processor), tracked: None };
    }
    let caller = Caller { tid: record().tid(), object: mediator.id.index, method };
    match mediator.mediation.enter(processor, again, caller) {
        Admission::Tracked(ticket) => {
            push_inside(mediator.switch);
            let tracked = match mediator.unit {
                Unit::Call => Some((rep, ticket)),
                Unit::Request => {
                    let (mediation, switch) = (Arc::clone(&mediator.mediation), mediator.switch);
                    until_request_ends(move || {
                        pop_inside(switch);
                        mediation.leave(processor, ticket);
                    });
                    None
                }
            };
            Mediated { rep: mediator.old.rep(processor), tracked }
        }
        Admission::Pass(outcome) => {
            Mediated { rep: mediator.target(outcome).rep(processor), tracked: None }
        }
    }
}

impl Drop for Mediated {
    /// The epilog; also when the method panicked.
    fn drop(&mut self) {
        if let Some((rep, ticket)) = self.tracked {
            // SAFETY: as in `mediate`: the request has not ended.
            let (mediator, processor) = unsafe { (&*(*rep).mediator, (*rep).processor) };
            pop_inside(mediator.switch);
            mediator.mediation.leave(processor, ticket);
        }
    }
}
