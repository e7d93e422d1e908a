//! Upgrades of classes: one per class at a time, followed by its requester.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use refit_objects::UpgradeControl;
use tokio::sync::mpsc::Sender;

use crate::context::Shared;
use crate::recording;
use crate::refusal::{Kind, Refusal};
use crate::system::UpgradeRequest;
use crate::wire::{Upgrade, UpgradeLine};

/// The interval between two lines about the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which the thread checks whether the upgrade has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An upgrade in progress, which is listed as such until this is dropped.
pub(crate) struct ActiveUpgrade {
    shared: Shared,
    request: UpgradeRequest,
}

impl ActiveUpgrade {
    /// Checks an upgrade before anything is changed, and lists it.
    ///
    /// # Errors
    ///
    /// There is no such class, or an upgrade of it is in progress.
    pub(crate) fn begin(
        shared: Shared,
        request: Upgrade,
        owner: String,
        disconnected: Arc<AtomicBool>,
    ) -> Result<Self, Refusal> {
        let Upgrade { class, implementation, deadline_ms, rate } = request;
        let what = || format!("upgrade {class} to {implementation}");
        let refuse = |kind, obstacle: &str, remedy: &str| {
            Err(Refusal::new(kind, what(), obstacle, remedy.to_owned()))
        };
        let classes = shared.core.system.classes();
        if !classes.iter().any(|known| known.class == class) {
            return refuse(Kind::Unknown, "no such class", "list classes with `refit classes`");
        }
        if rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return refuse(
                Kind::Malformed,
                "the rate is not a positive number",
                "leave it out, or give one",
            );
        }
        if rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            let remedy = "give a number above 0, or none";
            return refuse(Kind::Malformed, "the rate is not a number above 0", remedy);
        }
        let control = Arc::new(UpgradeControl::default());
        {
            let mut under_way = shared.core.upgrades.lock();
            if under_way.contains_key(&class) {
                let remedy = "wait for its end, or interrupt the command that started it";
                return refuse(Kind::Busy, "another upgrade of the class is under way", remedy);
            }
            under_way.insert(class.clone(), Arc::clone(&control));
        }
        let change = shared.core.journal.next_id();
        let deadline = deadline_ms.map(Duration::from_millis);
        let request = UpgradeRequest {
            class,
            implementation,
            rate,
            change,
            deadline,
            cancel: disconnected,
            owner,
            control,
        };
        Ok(ActiveUpgrade { shared, request })
    }

    /// Performs the upgrade, and sends its progress at intervals.
    pub(crate) fn run(self, sender: &Sender<UpgradeLine>) {
        let core = &self.shared.core;
        thread::scope(|scope| {
            let request = &self.request;
            let work = || core.system.upgrade(request);
            let upgrade = scope.spawn(move || recording::changing(request.change, work));
            let mut reported = Instant::now();
            while !upgrade.is_finished() {
                if *self.shared.ending.borrow() {
                    // Pairs with the loads in the object system; nothing else is published with it.
                    self.request.cancel.store(true, Ordering::Relaxed);
                }
                if reported.elapsed() >= PROGRESS_INTERVAL {
                    reported = Instant::now();
                    let control = &self.request.control;
                    let ((done, total), paused) = (control.progress(), control.paused());
                    let (done, total) = (done as u64, total as u64);
                    // The upgrade itself notices that the client has disconnected.
                    let _ = sender.try_send(UpgradeLine::Progress { done, total, paused });
                }
                // Polled, since no single wait covers the end of the thread, the end of the
                // instance and the next progress line. The loop ends with the upgrade: each of its
                // batches has a deadline, and it notices `cancel`.
                thread::sleep(POLL_INTERVAL);
            }
            if let Ok(report) = upgrade.join() {
                core.ended(report.clone());
                let _ = sender.blocking_send(UpgradeLine::Report(Box::new(report)));
            }
        });
    }
}

impl Drop for ActiveUpgrade {
    fn drop(&mut self) {
        self.shared.core.upgrades.lock().remove(&self.request.class);
    }
}
