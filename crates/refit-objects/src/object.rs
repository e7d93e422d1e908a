//! Creation and destruction of objects, and their descriptions.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::attached::Attached;
use crate::bound::Bound;
use crate::by_name::ByName;
use crate::id::ObjectId;
use crate::interface::{Implementations, Import, Interface, Root};
use crate::maker::Origin;
use crate::name::Name;
use crate::registry;
use crate::retire::retire;
use crate::slot::Slot;
use crate::wrapper::{WrapperFailure, WrapperInfo};

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
    /// The grouping of processors, as [`Clustering`](crate::Clustering) is written.
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

impl Slot {
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
            misses: self.misses(),
            imports: root.imports(),
            stats: root.stats(),
            wrappers: self.wrapper_infos(),
            wrapper_failures: self.wrapper_failures(),
        }
    }
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
    let swapper = Box::new(ByName::new(implementations));
    let id = registry::add(|id| {
        let root = Arc::new(Attached::new(root, id));
        Slot::new(id, I::info(), name, swapper, origin, root)
    });
    // SAFETY: it was created just now, for this interface.
    I::bind(unsafe { Bound::new(id) })
}

/// Returns a reference to the object with this id; `None` if there is no such object, or it has
/// another interface.
pub fn reference<I: Interface>(id: ObjectId) -> Option<I::Ref> {
    let slot = registry::get(id).filter(|slot| std::ptr::eq(slot.interface, I::info()))?;
    // SAFETY: an object with this id was created, for this interface.
    Some(I::bind(unsafe { Bound::new(slot.id) }))
}

/// Destroys an object. Calls in progress finish normally, and its memory is freed after them; later
/// calls panic. A swap in progress is rolled back. Does nothing if the object was already
/// destroyed.
pub fn destroy(id: ObjectId) {
    let Some(slot) = registry::get(id) else { return };
    // A swap holds the ticket while the mediator is in place. It must not wait any longer for
    // requests to end, since this thread may be in one of them.
    slot.doom();
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
