//! The requests that are being executed: their slots in the image, and the gate that keeps new ones
//! from beginning.
//!
//! # The gate
//!
//! [`Requests::close`] returns once no worker executes a request and none begins one. A worker
//! stores its request in its slot and then looks whether the gate is closed; if so, it withdraws
//! the request and waits. The closing thread closes the gate and then looks at the slots. Both use
//! `SeqCst`, so in the single order of these accesses either the worker's look comes after the
//! closing, and it withdraws, or its store comes before the closing thread's look, which then waits
//! for the request to end.
//!
//! A request that has been passed to the thread of jobs is not waited for: it may wait for the
//! kernel to write back pages, and the requests by which the kernel does so wait at the gate. If
//! the server ends before it is answered, the kernel sends it again.

use crate::image::Image;
use crate::image::layout::SLOTS;
use crate::image::request::{self, Logged, RESENT, Slot};
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// The interval at which a closing thread looks at the slots. Requests are short, and a worker that
/// notified the thread would do so at each request.
const CLOSE_INTERVAL: Duration = Duration::from_micros(20);

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
    closed: AtomicBool,
    /// Protects the waits for the gate to open.
    gate: Mutex<()>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    /// The slots that workers have.
    workers: Vec<Slot>,
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
        let slot = request::set_current(None);
        if let Some(slot) = &slot {
            self.requests.slots.lock().workers.retain(|worker| worker.index() != slot.index());
        }
        slot
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
    /// Creates the requests of a server with this image, which already contains those of
    /// `unfinished`, by request.
    pub(crate) fn new(image: &Arc<Image>, unfinished: HashMap<u64, u32>) -> Self {
        let taken = |slot: &u32| unfinished.values().any(|taken| taken == slot);
        let free = (0..SLOTS as u32).rev().filter(|slot| !taken(slot)).collect();
        Self {
            image: Arc::clone(image),
            repeats: AtomicBool::new(!unfinished.is_empty()),
            slots: Mutex::new(Slots { free, workers: Vec::new(), unfinished }),
            closed: AtomicBool::new(false),
            gate: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// Begins a request on this thread, once the gate is open.
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
            // A request that is repeated passes, since its slot says what it has done.
            while self.closed.load(SeqCst) && repeated.is_none() {
                slot.withdraw();
                self.wait_at_gate();
                slot.begin(id);
            }
        }
        request::set_current(slot);
        InProgress { requests: self, repeated }
    }

    /// Continues on this thread a request that another one has begun.
    pub(crate) fn resume(&self, slot: Option<Slot>) -> InProgress<'_> {
        request::set_current(slot);
        InProgress { requests: self, repeated: None }
    }

    fn wait_at_gate(&self) {
        let mut gate = self.gate.lock();
        while self.closed.load(SeqCst) {
            self.opened.wait(&mut gate);
        }
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
        slots.workers.push(slot.clone());
        Some(slot)
    }

    /// Returns the slot of a request that a server that has ended did not finish.
    fn unfinished(&self, id: u64) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let slot = Slot::new(&self.image, slots.unfinished.remove(&id)?);
        slots.workers.push(slot.clone());
        Some(slot)
    }

    fn put_back(&self, slot: &Slot) {
        let mut slots = self.slots.lock();
        slots.workers.retain(|worker| worker.index() != slot.index());
        slots.free.push(slot.index());
    }

    /// Closes the gate and waits until no worker executes a request. Returns whether that happened
    /// within `timeout`; the gate is open again if it did not.
    pub(crate) fn close(&self, timeout: Duration) -> bool {
        let began = Instant::now();
        self.closed.store(true, SeqCst);
        loop {
            let busy = self.slots.lock().workers.iter().any(Slot::occupied);
            if !busy {
                return true;
            }
            if began.elapsed() > timeout {
                self.open();
                return false;
            }
            // Polled; see `CLOSE_INTERVAL`. `timeout` bounds it.
            std::thread::sleep(CLOSE_INTERVAL);
        }
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        let _gate = self.gate.lock();
        self.closed.store(false, SeqCst);
        self.opened.notify_all();
    }
}
