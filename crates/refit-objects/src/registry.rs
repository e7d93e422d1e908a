//! The registry of all objects.

use std::sync::Arc;

use crate::id::ObjectId;
use crate::slot::Slot;
use crate::table;
use parking_lot::{Mutex, MutexGuard};

/// Protects the list of objects and the free indices. Held for one operation on them.
static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { slots: Vec::new(), free: Vec::new(), serial: 0 });

struct Registry {
    slots: Vec<Option<Arc<Slot>>>,
    /// Indices that no request can know any more.
    free: Vec<u32>,
    serial: u32,
}

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock()
}

/// Allocates an id, creates a slot for it, and publishes the slot.
pub(crate) fn add(make: impl FnOnce(ObjectId) -> Arc<Slot>) -> ObjectId {
    table::prepare();
    let id = {
        let mut registry = lock();
        let index = registry.free.pop().unwrap_or_else(|| {
            registry.slots.push(None);
            u32::try_from(registry.slots.len() - 1).expect("indices are 32 bits wide")
        });
        assert!((index as usize) < table::CAPACITY, "the object translation table is full");
        registry.serial = registry.serial.wrapping_add(1).max(1); // 0 is the serial of `GONE`
        ObjectId { index, serial: registry.serial }
    };
    let slot = make(id);
    slot.publish();
    lock().slots[id.index as usize] = Some(slot);
    id
}

/// Returns the object with this id, if it lives.
pub(crate) fn get(id: ObjectId) -> Option<Arc<Slot>> {
    lock().slots.get(id.index as usize)?.clone().filter(|slot| slot.id == id)
}

/// Returns all objects.
pub(crate) fn all() -> Vec<Arc<Slot>> {
    lock().slots.iter().flatten().cloned().collect()
}

/// Removes an object; its index is not reused before [`Freed`] is dropped.
pub(crate) fn remove(slot: &Slot) {
    lock().slots[slot.id.index as usize] = None;
}

/// A slot that waits for its last request; dropping it releases its index.
pub(crate) struct Freed(pub(crate) Arc<Slot>);

impl Drop for Freed {
    fn drop(&mut self) {
        lock().free.push(self.0.id.index);
    }
}
