//! The requests that are being executed, and their slots in the image.
//!
//! A worker keeps its slot from request to request. A request that is passed to the thread of jobs
//! takes its slot along.
//!
//! # Requests that make the server crash
//!
//! The kernel sends such a request to every next server again. A request is *suspect* if servers
//! have crashed in two executions of it; and if one has crashed in a third, it is set aside: it is
//! not executed any more, but answered with `EIO`. A server that was killed has not crashed.
//!
//! A request that is executed beside the one that makes the server crash is suspect as well. It is
//! not set aside, since suspect requests are executed one at a time, and one that waits for its
//! turn has not been executed. It waits for a second at most: the one before it may wait for it.

use crate::image::Image;
use crate::image::layout::SLOTS;
use crate::image::request::{self, Logged, RESENT, Slot, UnfinishedRequest};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tracing::warn;

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
    /// The number of crashes in executions of a request.
    crashes: Mutex<HashMap<u64, u64>>,
    /// Locked by the suspect request that is being executed.
    turn: Mutex<()>,
}

/// The number of crashes with which a request is suspect, and with which it is set aside.
const SUSPECT: u64 = 2;
const SET_ASIDE: u64 = 3;
/// For how long a suspect request waits for another.
const MAX_WAIT: Duration = Duration::from_secs(1);

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
    crashes: u64,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl InProgress<'_> {
    /// Returns `EIO` if the request is set aside.
    pub(crate) fn permit(&self) -> Result<(), Errno> {
        if self.crashes < SET_ASIDE {
            return Ok(());
        }
        warn!(crashes = self.crashes, "answers a request that makes the server crash with EIO");
        Err(Errno::IO)
    }

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
            crashes: Mutex::default(),
            turn: Mutex::default(),
            slots: Mutex::new(Slots { free, unfinished: HashMap::new() }),
        }
    }

    /// Adds the requests that the server of `old` has not finished. `crashed`: in executions of
    /// them it has crashed. No request is executed yet.
    pub(crate) fn continue_from(&self, old: &Image, crashed: bool) {
        let (mut slots, mut crashes) = (self.slots.lock(), self.crashes.lock());
        for slot in 0..SLOTS as u32 {
            let Some(request) = UnfinishedRequest::read(old, slot) else { continue };
            let count = request.crashes(crashed);
            request.continue_in(&self.image, slot, count);
            slots.unfinished.insert(request.unique, slot);
            if count > 0 {
                crashes.insert(request.unique, count);
            }
        }
        let taken: HashSet<u32> = slots.unfinished.values().copied().collect();
        slots.free.retain(|slot| !taken.contains(slot));
        self.repeats.store(!slots.unfinished.is_empty(), Relaxed);
    }

    /// Begins a request on this thread.
    pub(crate) fn begin(&self, unique: u64) -> InProgress<'_> {
        let id = unique & !RESENT;
        let resent = unique != id && self.repeats.load(Relaxed);
        let crashes = if resent { self.crashes(id) } else { 0 };
        // Before its slot says that it is executed.
        let turn = (crashes >= SUSPECT).then(|| self.turn.try_lock_for(MAX_WAIT)).flatten();
        let mut slot = resent.then(|| self.unfinished(id)).flatten();
        let repeated = slot.as_mut().map(Slot::repeat);
        let ours = |slot: &Slot| slot.is_in(&self.image);
        let idle = || IDLE.take().filter(ours).or_else(|| self.worker_slot());
        let slot = slot.or_else(idle);
        if let Some(slot) = &slot {
            slot.begin(id);
            if resent {
                slot.set_crashes(crashes);
            }
        }
        request::set_current(slot);
        InProgress { requests: self, repeated, crashes, _turn: turn }
    }

    /// Returns the number of crashes in executions of a request.
    fn crashes(&self, id: u64) -> u64 {
        self.crashes.lock().get(&id).copied().unwrap_or(0)
    }

    /// Continues on this thread a request that another one has begun.
    pub(crate) fn resume(&self, slot: Option<Slot>) -> InProgress<'_> {
        request::set_current(slot);
        InProgress { requests: self, repeated: None, crashes: 0, _turn: None }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the requests of the next server, in whose image the unfinished ones of `last` are.
    fn after(last: &Requests, crashed: bool) -> Requests {
        let next = Requests::new(&Image::new(1).unwrap());
        next.continue_from(&last.image, crashed);
        next
    }

    /// Begins a request whose server ends before it has finished it, and returns its permission.
    fn begins(requests: &Requests, unique: u64) -> Result<(), Errno> {
        let request = requests.begin(unique);
        let permitted = request.permit();
        // Neither its slot nor its turn is given back.
        std::mem::forget(request);
        request::set_current(None);
        permitted
    }

    fn first() -> Requests {
        Requests::new(&Image::new(1).unwrap())
    }

    #[test]
    fn a_request_in_which_three_servers_crash_is_set_aside() {
        let mut server = first();
        assert_eq!(begins(&server, 7), Ok(()));
        for _ in 0..2 {
            // That it was killed says nothing about the request, and neither does a crash before it
            // was executed.
            server = after(&server, true);
            server = after(&server, true);
            assert_eq!(begins(&server, RESENT | 7), Ok(()));
            server = after(&server, false);
            assert_eq!(begins(&server, RESENT | 7), Ok(()));
        }
        server = after(&server, true);
        assert_eq!(begins(&server, RESENT | 7), Err(Errno::IO));
        assert_eq!(begins(&server, RESENT | 8), Ok(()));
    }

    #[test]
    fn a_request_that_is_executed_beside_it_is_not_set_aside() {
        let mut server = first();
        for unique in [7, 8] {
            assert_eq!(begins(&server, unique), Ok(()));
        }
        server = after(&server, true);
        for unique in [7, 8] {
            assert_eq!(begins(&server, RESENT | unique), Ok(()));
        }
        // Now both are suspect: 8 waits for its turn.
        server = after(&server, true);
        assert_eq!(begins(&server, RESENT | 7), Ok(()));
        assert!(server.turn.try_lock().is_none());
        server = after(&server, true);
        assert_eq!(begins(&server, RESENT | 7), Err(Errno::IO));
        assert_eq!(server.crashes(8), SUSPECT);
        let other = after(&server, false);
        assert_eq!(begins(&other, RESENT | 8), Ok(()));
    }
}
