//! Reading the kernel's events in a thread of its own, so that none is lost while the recorder is
//! busy: it opens large files to find stacks.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use refit_sys::perf::{EventKind, SchedulerEvent, Watch};

/// The interval at which the kernel's rings are read.
const INTERVAL: Duration = Duration::from_millis(5);
/// The most bytes of stacks that wait for the recorder. Beyond that the kernel's rings fill, and
/// the kernel counts what it drops.
const MAX_BYTES: usize = 256 << 20;

/// The thread that reads.
#[derive(Debug)]
pub(super) struct Reader {
    read: Arc<Mutex<Read>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The events that have been read and not taken yet.
#[derive(Debug, Default)]
struct Read {
    events: Vec<SchedulerEvent>,
    /// The bytes of their stacks.
    bytes: usize,
}

impl Reader {
    /// Starts to read.
    pub(super) fn start(mut watches: Vec<Watch>) -> io::Result<Reader> {
        let read = Arc::new(Mutex::new(Read::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (into, stop) = (Arc::clone(&read), Arc::clone(&stopping));
        let body = move || {
            loop {
                // Pairs with the store in `stop`: what happened before it is read below.
                let last = stop.load(Ordering::Acquire);
                watches.iter_mut().for_each(|watch| into.lock().add(watch, last));
                if last {
                    return;
                }
                thread::sleep(INTERVAL);
            }
        };
        let thread = thread::Builder::new().name("refit-switches".into()).spawn(body)?;
        Ok(Reader { read, stopping, thread: Some(thread) })
    }

    /// Returns the events since the last call, in the order of time.
    pub(super) fn take(&self) -> Vec<SchedulerEvent> {
        let Read { mut events, .. } = mem::take(&mut *self.read.lock());
        // Several watches are ordered separately.
        events.sort_by_key(|event| event.time);
        events
    }

    /// Reads for the last time.
    pub(super) fn stop(&mut self) {
        // Pairs with the load in the thread.
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Read {
    /// Reads the events of a watch; without regard to the room if it is for the last time.
    fn add(&mut self, watch: &mut Watch, last: bool) {
        if self.bytes >= MAX_BYTES && !last {
            return;
        }
        watch.read(|event| {
            if let EventKind::Stands(stands) = &event.kind {
                self.bytes += stands.bytes.len();
            }
            self.events.push(event);
        });
    }
}
