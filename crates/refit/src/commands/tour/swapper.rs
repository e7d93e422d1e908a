//! Swaps all file caches to and fro, as fast as the pace allows, and counts how it went.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use refit_change::{End, Report};
use refit_instance::Client;
use refit_instance::wire::Swap;

use crate::histogram::Times;

/// A pause per object swapped: some hundred swaps a second are plenty to see and leave the machine to the
/// programs.
const PACE: Duration = Duration::from_millis(2);

/// What has become of the swaps so far.
#[derive(Debug)]
pub(super) struct Swaps {
    pub(super) times: Times,
    pub(super) committed: u64,
    pub(super) rolled_back: u64,
    pub(super) refused: u64,
    pub(super) forwarded: u64,
    pub(super) blocked: u64,
    /// Why the last one that did not commit did not.
    pub(super) why: String,
}

impl Default for Swaps {
    fn default() -> Self {
        Swaps {
            times: Times::new(),
            committed: 0,
            rolled_back: 0,
            refused: 0,
            forwarded: 0,
            blocked: 0,
            why: String::new(),
        }
    }
}

impl Swaps {
    fn add(&mut self, report: &Report) {
        self.forwarded += report.forwarded;
        self.blocked += report.blocked;
        match &report.end {
            End::Committed => {
                self.committed += 1;
                self.times.add(report.total_ns());
            }
            End::RolledBack(why) => {
                self.rolled_back += 1;
                self.why.clone_from(why);
            }
            End::Refused(why) => {
                self.refused += 1;
                self.why.clone_from(why);
            }
        }
    }
}

/// The thread that swaps.
pub(super) struct Swapper {
    swaps: Arc<Mutex<Swaps>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    pub(super) fn start(client: Client) -> Self {
        let swaps = Arc::new(Mutex::new(Swaps::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (swaps, stop) = (Arc::clone(&swaps), Arc::clone(&stop));
            move || swap_to_and_fro(&client, &swaps, &stop)
        });
        Swapper { swaps, stop, thread: Some(thread) }
    }

    /// Looks at what there is so far.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Swaps) -> T) -> T {
        look(&self.swaps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends after the swap in progress.
    pub(super) fn stop(mut self) -> Swaps {
        self.end();
        std::mem::take(&mut *self.swaps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.end();
    }
}

fn swap_to_and_fro(client: &Client, swaps: &Mutex<Swaps>, stop: &AtomicBool) {
    for implementation in ["partitioned", "shared"].into_iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let request = Swap {
            glob: "fcm:*".into(),
            implementation: implementation.into(),
            deadline_ms: Some(1000),
        };
        // Refused as a whole when there is no cache at this moment: the next round may find some.
        let Ok(lines) = client.swap(&request) else {
            thread::sleep(PACE);
            continue;
        };
        for report in lines.flatten() {
            swaps.lock().unwrap_or_else(PoisonError::into_inner).add(&report);
            // Not reading slows the instance down only after a thousand reports: sleep between rounds too.
            if stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(PACE);
        }
    }
}
