//! Attaching and detaching wrappers: directly, and as changes with a report.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use refit_change::{Change, ChangeId, End, Phase, Report, Timeline};

use crate::id::ObjectId;
use crate::interface::Interface;
use crate::interposer::{Attachment, Layer, WrapperId};
use crate::registry;
use crate::retire::defer;
use crate::slot::Slot;
use crate::sync::lock;
use crate::wrapper::{TypedWrapper, Wrapper, WrapperFailure, WrapperInfo};
use crate::wrappers::{self, Setting};

/// The maximum number of wrappers of one object.
pub(crate) const MAX_WRAPPERS: usize = 64;

/// The number of failures of wrappers that an object remembers.
const MAX_FAILURES: usize = 8;

/// The reason that a wrapper was not attached or detached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// The object is gone.
    #[error("the object does not exist any more")]
    Gone,
    /// The object has the maximum number of wrappers.
    #[error("the object has {MAX_WRAPPERS} wrappers already; detach one first")]
    TooMany,
    /// No such wrapper is attached.
    #[error("no wrapper {asked} is attached; {}", attached(.there))]
    NotAttached {
        /// The wrapper to detach.
        asked: String,
        /// The attached wrappers, innermost first.
        there: Vec<String>,
    },
    /// There is no such wrapper, or its settings are invalid.
    #[error(transparent)]
    Wrapper(#[from] wrappers::WrapperError),
}

fn attached(there: &[String]) -> String {
    match there {
        [] => "there is none on this object".into(),
        some => format!("there are: {}", some.join(", ")),
    }
}

impl WrapperFailure {
    /// Returns the failure as a change of the journal.
    pub fn report(&self, change: ChangeId) -> Report {
        let owner = format!("refit: the wrapper {} {}", self.wrapper, self.why);
        let change = Change::new(change, "unwrap", &self.object, &self.from, &self.to, &owner);
        report(change, Timeline::begin(), End::Committed)
    }
}

/// A selection of wrappers to detach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// This one.
    Id(WrapperId),
    /// All with this name.
    Named(String),
}

impl Which {
    fn matches(&self, attachment: &Attachment) -> bool {
        match self {
            Which::All => true,
            Which::Id(id) => attachment.id == *id,
            Which::Named(name) => *attachment.name == **name,
        }
    }

    fn asked(&self) -> String {
        match self {
            Which::All => "at all".into(),
            Which::Id(id) => format!("number {}", id.0),
            Which::Named(name) => format!("{name:?}"),
        }
    }
}

impl Slot {
    /// Replaces the layer by one with the wrappers that `change` returns when it is given the
    /// present ones, and flushes the entries.
    fn change_layer<R>(
        &self,
        change: impl FnOnce(&[Arc<Attachment>]) -> Result<(Vec<Arc<Attachment>>, R), WrapError>,
    ) -> Result<R, WrapError> {
        let (before, result) = {
            let mut state = lock(&self.state);
            if state.destroyed {
                return Err(WrapError::Gone);
            }
            let present = state.layer.as_ref().map_or(&[][..], Layer::stack);
            let (stack, result) = change(present)?;
            let before = std::mem::replace(&mut state.layer, Layer::of(stack));
            self.flush_locked(&state);
            (before, result)
        };
        // Outside of the lock: it may free objects that were deferred earlier.
        if let Some(layer) = before {
            defer(Box::new(layer));
        }
        Ok(result)
    }

    fn attach(&self, attachment: Arc<Attachment>) -> Result<WrapperId, WrapError> {
        let id = attachment.id;
        self.change_layer(|present| {
            if present.len() >= MAX_WRAPPERS {
                return Err(WrapError::TooMany);
            }
            let mut stack = Vec::with_capacity(present.len() + 1);
            stack.extend_from_slice(present);
            stack.push(attachment);
            Ok((stack, id))
        })
    }

    /// Detaches wrappers and returns them.
    fn detach(&self, which: &Which) -> Result<Vec<Arc<Attachment>>, WrapError> {
        self.change_layer(|present| {
            let (out, stay): (Vec<_>, Vec<_>) =
                present.iter().cloned().partition(|a| which.matches(a));
            if out.is_empty() {
                let there = present.iter().map(|a| a.name.to_string()).collect();
                return Err(WrapError::NotAttached { asked: which.asked(), there });
            }
            Ok((stay, out))
        })
    }

    fn wrappers(&self) -> Vec<Arc<Attachment>> {
        lock(&self.state).layer.as_ref().map_or_else(Vec::new, |layer| layer.stack().to_vec())
    }

    /// Returns the descriptions of the wrappers, innermost first.
    pub(crate) fn wrapper_infos(&self) -> Vec<WrapperInfo> {
        self.wrappers().iter().map(|a| a.info()).collect()
    }

    /// Returns the wrappers that have failed recently.
    pub(crate) fn wrapper_failures(&self) -> Vec<WrapperFailure> {
        let mut failures: Vec<_> = lock(&self.state).failures.iter().cloned().collect();
        if !failures.is_empty() {
            let name = self.full_name();
            failures.iter_mut().for_each(|failure| failure.object.clone_from(&name));
        }
        failures
    }

    /// Returns the implementation with its wrappers: `latency(count(shared))`.
    pub(crate) fn composed(&self) -> String {
        let inner = self.root().implementation();
        self.wrappers().iter().fold(inner, |inner, a| format!("{}({inner})", a.name))
    }

    fn remember(&self, failure: WrapperFailure) {
        let failures: &mut VecDeque<_> = &mut lock(&self.state).failures;
        if failures.len() == MAX_FAILURES {
            failures.pop_front();
        }
        failures.push_back(failure);
    }
}

fn slot(id: ObjectId) -> Result<Arc<Slot>, WrapError> {
    registry::get(id).ok_or(WrapError::Gone)
}

/// Attaches a wrapper to an object, outside of those it has. Waits for nothing; calls in progress
/// continue without it.
///
/// # Errors
/// The object is gone, or has too many wrappers.
pub fn attach(object: ObjectId, wrapper: impl Wrapper + 'static) -> Result<WrapperId, WrapError> {
    let slot = slot(object)?;
    slot.attach(Attachment::untyped(object, slot.interface, Box::new(wrapper), detach_broken))
}

/// Attaches a wrapper that knows the object's interface: `CounterInterface::wrapper(name, value)`.
///
/// # Errors
/// As [`attach`].
pub fn attach_typed<I: Interface>(
    object: I::Ref,
    wrapper: TypedWrapper<I>,
) -> Result<WrapperId, WrapError> {
    let id = I::id(object);
    slot(id)?.attach(Attachment::typed(id, I::info(), wrapper, detach_broken))
}

/// Detaches a wrapper. Waits for nothing: calls in progress continue through it, and it is dropped
/// some time after the last of them.
///
/// # Errors
/// The object is gone, or the wrapper is not attached to it.
pub fn detach(object: ObjectId, wrapper: WrapperId) -> Result<(), WrapError> {
    slot(object)?.detach(&Which::Id(wrapper)).map(drop)
}

/// Checks whether a wrapper of this name can be created for an object like this one.
///
/// # Errors
/// The reason that it cannot.
pub fn can_wrap(object: ObjectId, wrapper: &str, settings: &[Setting]) -> Result<(), WrapError> {
    wrappers::by_name(wrapper, settings, slot(object)?.interface)?;
    Ok(())
}

/// Attaches a wrapper by its name (see [`wrappers::by_name`]), as a change with a report.
pub fn wrap_named(
    object: ObjectId,
    wrapper: &str,
    settings: &[Setting],
    change: ChangeId,
    owner: &str,
) -> Report {
    let mut timeline = Timeline::begin();
    let Ok(slot) = slot(object) else { return gone(object, "wrap", wrapper, change, owner) };
    let from = slot.composed();
    let to = format!("{wrapper}({from})");
    let change = Change::new(change, "wrap", &slot.full_name(), &from, &to, owner);
    let made = wrappers::by_name(wrapper, settings, slot.interface);
    let attached = made.map_err(WrapError::from).and_then(|wrapper| {
        let attachment = Attachment::untyped(object, slot.interface, wrapper, detach_broken);
        timeline.enter(Phase::Install);
        slot.attach(attachment)
    });
    finish(change, timeline, attached.map(drop))
}

/// Detaches wrappers, as a change with a report.
pub fn unwrap_named(object: ObjectId, which: &Which, change: ChangeId, owner: &str) -> Report {
    let mut timeline = Timeline::begin();
    let Ok(slot) = slot(object) else { return gone(object, "unwrap", "", change, owner) };
    let from = slot.composed();
    timeline.enter(Phase::Install);
    let detached = slot.detach(which);
    let to = slot.composed();
    let change = Change::new(change, "unwrap", &slot.full_name(), &from, &to, owner);
    finish(change, timeline, detached.map(drop))
}

fn finish(change: Change, mut timeline: Timeline, done: Result<(), WrapError>) -> Report {
    match done {
        Ok(()) => {
            timeline.enter(Phase::Commit);
            report(change, timeline, End::Committed)
        }
        Err(error) => {
            let target_gone = error == WrapError::Gone;
            Report { target_gone, ..Report::refused(change, &error.to_string()) }
        }
    }
}

fn gone(object: ObjectId, what: &str, to: &str, change: ChangeId, owner: &str) -> Report {
    let change = Change::new(change, what, &object.to_string(), "", to, owner);
    finish(change, Timeline::begin(), Err(WrapError::Gone))
}

fn report(change: Change, timeline: Timeline, end: End) -> Report {
    Report { phases: timeline.end(), end, objects: 1, attempts: 1, ..Report::refused(change, "") }
}

type Observer = dyn Fn(&WrapperFailure) + Send + Sync;

/// Protects the list of observers, which are called without it.
static OBSERVERS: Mutex<Vec<Weak<Observer>>> = Mutex::new(Vec::new());

/// Calls `observer` for every wrapper that panics, as long as the observer lives. It is called
/// shortly after the wrapped call has ended, on any thread.
pub fn observe_failures(observer: &Arc<Observer>) {
    let mut observers = OBSERVERS.lock();
    observers.retain(|o| o.strong_count() > 0);
    observers.push(Arc::downgrade(observer));
}

/// Detaches a wrapper that has panicked, and informs the observers.
///
/// This happens in the middle of the wrapped call, whose thread may hold any lock. Computing the
/// object's name, and informing observers, can take locks too; so these wait in limbo until the
/// request has ended.
pub(crate) fn detach_broken(object: ObjectId, wrapper: WrapperId, why: String) {
    let Ok(slot) = slot(object) else { return };
    let from = slot.composed();
    let Ok(detached) = slot.detach(&Which::Id(wrapper)) else { return };
    let failure = WrapperFailure {
        object: String::new(),
        wrapper: detached.first().map_or_else(String::new, |a| a.name.to_string()),
        why,
        from,
        to: slot.composed(),
    };
    slot.remember(failure.clone());
    defer(Box::new(Announcement { slot, failure }));
}

/// Informs the observers when it is dropped.
struct Announcement {
    slot: Arc<Slot>,
    failure: WrapperFailure,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.failure.object = self.slot.full_name();
        let observers: Vec<Arc<Observer>> = {
            let observers = OBSERVERS.lock();
            observers.iter().filter_map(Weak::upgrade).collect()
        };
        observers.iter().for_each(|observer| observer(&self.failure));
    }
}
