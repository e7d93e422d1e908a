//! Makes the calls of a thread that runs on another host: leaves them to its shadow, and sends the
//! results.
//!
//! No result is lost when the thread is recalled: [`Proxy::end`] returns the result that was sent
//! to a host which the thread leaves without having seen it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

use parking_lot::Mutex;
use refit_messages::{InstanceId, Layer};
use refit_sys::adaptive_spin;
use refit_sys::shadow_stub::Slot;

use crate::dsm::PageHomeHandle;
use crate::origin::futex_ops::TRIES;
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{GroupId, SyscallRequest, SyscallResult};

/// The interval at which a proxy that waits for a call's result looks for it by itself.
const CALL_POLL: Duration = Duration::from_secs(1);

/// The handle of a proxy.
///
/// # Locks
/// Each is taken alone. `calls` is locked for one send: the threads that receive messages share the
/// sender. `ended` is read by the proxy's own thread.
pub(crate) struct Proxy {
    residency: u64,
    slot: Slot,
    calls: Mutex<Sender<ProxyJob>>,
    ended: Arc<Mutex<bool>>,
    serves: JoinHandle<Option<u64>>,
}

enum ProxyJob {
    Call(SyscallRequest),
    /// The thread has arrived, and its shadow is in a call.
    Await,
}

impl Proxy {
    /// Starts the proxy of a thread's residency at `node`.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn begin(
        (group, thread, residency): (GroupId, u32, u64),
        slot: Slot,
        page_home: PageHomeHandle,
        layer: &Arc<Layer>,
        node: InstanceId,
    ) -> io::Result<Self> {
        let (calls, queue) = mpsc::channel();
        let ended = Arc::new(Mutex::new(false));
        let result = move |value| SyscallResult { group, thread, residency, value };
        let (layer, ends) = (Arc::clone(layer), Arc::clone(&ended));
        let serve = move || {
            // A node that is lost needs no result.
            let send = |value| drop(layer.send(node, &result(value), &[]));
            serve(&queue, slot, &page_home, &ends, send)
        };
        let serves = thread::Builder::new().name("refit-proxy".to_owned()).spawn(serve)?;
        Ok(Self { residency, slot, calls: Mutex::new(calls), ended, serves })
    }

    /// Makes a call of the thread.
    pub(crate) fn call(&self, make: SyscallRequest) {
        if make.residency == self.residency {
            self.ask(ProxyJob::Call(make));
        }
    }

    /// Waits for the call that the shadow is in, now that the thread has arrived. Before, nobody
    /// would receive the result.
    pub(crate) fn await_result(&self) {
        self.ask(ProxyJob::Await);
    }

    fn ask(&self, job: ProxyJob) {
        // The thread of a proxy that has ended is on its way back.
        let _ = self.calls.lock().send(job);
    }

    /// Ends the proxy. Returns the result of the last call, if it has returned.
    pub(crate) fn end(self) -> Option<u64> {
        *self.ended.lock() = true;
        self.slot.ring();
        let (calls, _) = mpsc::channel();
        drop(mem::replace(&mut *self.calls.lock(), calls));
        self.serves.join().unwrap_or_default()
    }
}

/// Serves the jobs of a proxy. Returns the result of the last call.
fn serve(
    jobs: &Receiver<ProxyJob>,
    slot: Slot,
    page_home: &PageHomeHandle,
    ended: &Mutex<bool>,
    send: impl Fn(u64),
) -> Option<u64> {
    let mut last = None;
    for job in jobs {
        let value = match job {
            ProxyJob::Call(make) => call(slot, make, page_home, ended)?,
            ProxyJob::Await => answer(slot, ended)?,
        };
        last = Some(value);
        send(value);
    }
    last
}

/// Has a call made. For the words that some futex operations pass from thread to thread
/// (`FUTEX_LOCK_PI`, `FUTEX_WAKE_OP`) the kernel does not wait for the pages: these are fetched,
/// and the call, which has done nothing, is restarted.
fn call(
    slot: Slot,
    make: SyscallRequest,
    page_home: &PageHomeHandle,
    ended: &Mutex<bool>,
) -> Option<u64> {
    let SyscallRequest { number, arguments, stack, .. } = make;
    for _ in 0..TRIES {
        slot.ask(number, arguments, stack);
        let value = answer(slot, ended)?;
        let missing = value.cast_signed() == -i64::from(libc::EFAULT);
        if !missing || number.cast_signed() != libc::SYS_futex {
            return Some(value);
        }
        for word in [arguments[0], arguments[4]] {
            let page = word / PAGE_SIZE * PAGE_SIZE;
            // If there is no such page the next call reports that.
            let _ = page_home.gather(page..page.saturating_add(PAGE_SIZE), || ());
        }
    }
    Some(i64::from(-libc::EFAULT).cast_unsigned())
}

/// Waits for the result of a call. Returns `None` if the proxy was ended.
fn answer(slot: Slot, ended: &Mutex<bool>) -> Option<u64> {
    loop {
        let wakeup = slot.wakeup();
        if let Some(value) = slot.answer() {
            return Some(value);
        }
        if *ended.lock() {
            return None;
        }
        if !adaptive_spin::a_moment(|| slot.wakeup() != wakeup) {
            slot.wait(wakeup, CALL_POLL);
        }
    }
}
