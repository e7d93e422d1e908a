//! The requests that are being executed, and their slots in the image.
//!
//! A worker keeps its slot from request to request. A request that is passed to the thread of jobs
//! takes its slot along.

use crate::image::Image;
use crate::image::layout::SLOTS;
use crate::image::request::{self, Logged, RESENT, Slot};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

thread_local! {
    /// The slot that this thread used last.
    static IDLE: Cell<Option<Slot>> = const { Cell::new(None) };
}

/// The requests of a server.
#[derive(Debug)]
pub(crate) struct Requests {
    image: Arc<Image>,
    slots: Mutex<Slots>,
    /// Whether requests of a server that has ended are left in slots.
    repeats: AtomicBool,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    /// The slots of requests that a server that has ended did not finish, by request. Those of
    /// requests that it answered stay until the slots run short.
    unfinished: HashMap<u64, u32>,
}

/// A request that this thread executes. Dropping it ends the request: the reply was sent.
#[derive(Debug)]
pub(crate) struct InProgress<'a> {
    requests: &'a Requests,
    /// The counts that it changed when it was executed before, if it was; the caller takes them
    /// back.
    pub(crate) repeated: Option<Logged>,
}

impl InProgress<'_> {
    /// Ends the execution on this thread. Another one continues with [`Requests::resume`].
    pub(crate) fn detach(self) -> Option<Slot> {
        request::set_current(None)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let Some(mut slot) = request::set_current(None) else { return };
        slot.end();
        let idle = IDLE.replace(Some(slot));
        if let Some(idle) = idle {
            self.requests.put_back(&idle);
        }
    }
}

impl Requests {
    /// Creates the requests of a server with this image.
    pub(crate) fn new(image: &Arc<Image>) -> Self {
        let free = (0..SLOTS as u32).rev().collect();
        Self {
            image: Arc::clone(image),
            repeats: AtomicBool::new(false),
            slots: Mutex::new(Slots { free, unfinished: HashMap::new() }),
        }
    }

    /// Adds the requests of a server that has ended, whose slots, by request, the image contains
    /// already. No request is executed yet.
    pub(crate) fn continue_unfinished(&self, unfinished: HashMap<u64, u32>) {
        let taken: HashSet<u32> = unfinished.values().copied().collect();
        let mut slots = self.slots.lock();
        slots.free.retain(|slot| !taken.contains(slot));
        self.repeats.store(!unfinished.is_empty(), Relaxed);
        slots.unfinished = unfinished;
    }

    /// Begins a request on this thread.
    pub(crate) fn begin(&self, unique: u64) -> InProgress<'_> {
        let id = unique & !RESENT;
        let resent = unique != id && self.repeats.load(Relaxed);
        let mut slot = resent.then(|| self.unfinished(id)).flatten();
        let repeated = slot.as_mut().map(Slot::repeat);
        let ours = |slot: &Slot| slot.is_in(&self.image);
        let idle = || IDLE.take().filter(ours).or_else(|| self.worker_slot());
        let slot = slot.or_else(idle);
        if let Some(slot) = &slot {
            slot.begin(id);
        }
        request::set_current(slot);
        InProgress { requests: self, repeated }
    }

    /// Continues on this thread a request that another one has begun.
    pub(crate) fn resume(&self, slot: Option<Slot>) -> InProgress<'_> {
        request::set_current(slot);
        InProgress { requests: self, repeated: None }
    }

    /// Returns a slot for this thread; `None` if thousands of requests wait for the thread of jobs.
    /// A request without a slot is executed again if the server ends before it is answered.
    fn worker_slot(&self) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let index = slots.free.pop().or_else(|| {
            // The oldest request of a server that has ended was answered by it, or it would have
            // come again by now.
            let oldest = slots.unfinished.keys().min().copied()?;
            slots.unfinished.remove(&oldest)
        })?;
        let slot = Slot::new(&self.image, index);
        slot.clear();
        Some(slot)
    }

    /// Returns the slot of a request that a server that has ended did not finish.
    fn unfinished(&self, id: u64) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let slot = Slot::new(&self.image, slots.unfinished.remove(&id)?);
        Some(slot)
    }

    fn put_back(&self, slot: &Slot) {
        self.slots.lock().free.push(slot.index());
    }
}
