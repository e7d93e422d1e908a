//! Swaps file caches back and forth under the programs, and counts the outcomes.
//!
//! Two requests run side by side, each swapping one cache after the other for as long as its answer
//! is read: one over the files whose every byte is checked, so that each of them is swapped
//! hundreds of times per second while it is read and written; one over the files of postmark, as
//! they come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use refit_instance::Client;
use refit_instance::wire::{Repeat, Swap};

use crate::commands::objects::tally::Tally;
use crate::failure::Failure;

use super::server::Server;

/// The swapped caches, as a pattern, and the microseconds from swap to swap.
const BEATS: [(&str, u64); 2] = [("fcm:/checked/*", 1_000), ("fcm:/mail/*", 2_000)];

/// The time to wait for a report before checking whether to stop.
const REPORT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The outcomes of the swaps so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Swaps(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) tally: Tally,
    /// Commits by cache, of the files that are checked.
    pub(super) of_checked: BTreeMap<String, u64>,
}

impl Swaps {
    /// Gives access to the outcomes.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.0.lock())
    }
}

/// The threads that request swaps; they end on drop.
pub(super) struct Swapper {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Swapper {
    pub(super) fn start(server: &Server, swaps: &Swaps) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (glob, every_us) in BEATS {
            let (client, swaps, stop) = (server.client()?, swaps.clone(), Arc::clone(&stop));
            threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    swap_to_and_fro(&client, glob, every_us, &swaps, &stop);
                }
            }));
        }
        Ok(Swapper { stop, threads })
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn swap_to_and_fro(client: &Client, glob: &str, every_us: u64, swaps: &Swaps, stop: &AtomicBool) {
    let repeat = Repeat { others: vec!["partitioned".into()], every_us, for_ms: None };
    let request = Swap { repeat: Some(repeat), ..Swap::once(glob, "shared") };
    // The request is refused as a whole if there is no such file at this moment: soon there will
    // be.
    let Ok(mut lines) = client.swap(&request) else { return thread::sleep(REPORT_POLL_INTERVAL) };
    // The requester must not go away in the middle of a swap, which would be rolled back: it stops
    // at a report.
    while let Some(Ok(line)) = lines.next_within(REPORT_POLL_INTERVAL) {
        let Some(report) = line else {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            continue;
        };
        swaps.look(|inner| {
            inner.tally.add(&report);
            if report.committed() && report.change.target.starts_with("fcm:/checked/") {
                *inner.of_checked.entry(report.change.target.clone()).or_default() += 1;
            }
        });
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}
