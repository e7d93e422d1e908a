//! StopReason for a thread at its origin that runs on another host: leaves its calls to its shadow, and tells what they return.
//!
//! No result is lost when the thread is called back: what was told to a host from which the thread comes without having seen it is what
//! [`Proxy::end`] returns.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, mem};

use refit_messages::{InstanceId, Layer};
use refit_sys::adaptive_spin;
use refit_sys::shadow_stub::Slot;

use crate::dsm::{PAGE, PageHomeHandle};
use crate::origin::futex_ops::TRIES;
use crate::protocol::messages::{GroupId, SyscallRequest, SyscallResult};

/// Who waits for a call looks up that often.
const CALL_POLL: Duration = Duration::from_secs(1);

/// A proxy, as others see it.
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
    /// Serves a thread's stay at `host`.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn begin(
        (group, thread, residency): (GroupId, u32, u64),
        slot: Slot,
        page_home: PageHomeHandle,
        layer: &Arc<Layer>,
        host: InstanceId,
    ) -> io::Result<Self> {
        let (calls, asked) = mpsc::channel();
        let ended = Arc::new(Mutex::new(false));
        let made = move |value| SyscallResult { group, thread, residency, value };
        let (layer, ends) = (Arc::clone(layer), Arc::clone(&ended));
        let serve = move || {
            // One that is lost needs no result.
            let tell = |value| drop(layer.send(host, &made(value), &[]));
            serve(&asked, slot, &page_home, &ends, tell)
        };
        let serves = thread::Builder::new().name("refit-proxy".to_owned()).spawn(serve)?;
        Ok(Self { residency, slot, calls: Mutex::new(calls), ended, serves })
    }

    /// The thread makes a call.
    pub(crate) fn call(&self, make: SyscallRequest) {
        if make.residency == self.residency {
            self.ask(ProxyJob::Call(make));
        }
    }

    /// The thread is there, and waits for the call that its shadow is in. Not before: nobody would be told.
    pub(crate) fn has_arrived(&self) {
        self.ask(ProxyJob::Await);
    }

    fn ask(&self, job: ProxyJob) {
        // One that has ended has a thread that is on its way back.
        let _ = self.calls.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }

    /// Ends it; what the last call has returned, if it has.
    pub(crate) fn end(self) -> Option<u64> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.slot.ring();
        let (calls, _) = mpsc::channel();
        drop(mem::replace(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner), calls));
        self.serves.join().unwrap_or_default()
    }
}

/// What the last call has returned.
fn serve(
    asked: &Receiver<ProxyJob>,
    slot: Slot,
    page_home: &PageHomeHandle,
    ended: &Mutex<bool>,
    tell: impl Fn(u64),
) -> Option<u64> {
    let mut last = None;
    for job in asked {
        let value = match job {
            ProxyJob::Call(make) => call(slot, make, page_home, ended)?,
            ProxyJob::Await => answer(slot, ended)?,
        };
        last = Some(value);
        tell(value);
    }
    last
}

/// Has a call made. Of words that pass from thread to thread (`FUTEX_LOCK_PI`, `FUTEX_WAKE_OP`) the kernel does not wait for the pages: these are
/// brought here, and the call, which has done nothing, is made again.
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
        let lacks = value.cast_signed() == -i64::from(libc::EFAULT);
        if !lacks || number.cast_signed() != libc::SYS_futex {
            return Some(value);
        }
        for word in [arguments[0], arguments[4]] {
            let page = word / PAGE * PAGE;
            // Where there is none the next call tells so.
            let _ = page_home.gather(page..page.saturating_add(PAGE), || ());
        }
    }
    Some(i64::from(-libc::EFAULT).cast_unsigned())
}

/// Waits for what a call returns; `None`: it is not waited for any more.
fn answer(slot: Slot, ended: &Mutex<bool>) -> Option<u64> {
    loop {
        let heard = slot.wakeup();
        if let Some(value) = slot.answer() {
            return Some(value);
        }
        if *ended.lock().unwrap_or_else(PoisonError::into_inner) {
            return None;
        }
        if !adaptive_spin::a_moment(|| slot.wakeup() != heard) {
            slot.wait(heard, CALL_POLL);
        }
    }
}
