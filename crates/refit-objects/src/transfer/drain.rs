//! The drain after the commit of a lazy transfer: moves the items that calls have not moved yet,
//! and reports the outcome.
//!
//! The drain runs on the thread that asked for the swap, in batches, with calls in between. It ends
//! when everything has moved; then the old implementation's state is freed. Other outcomes:
//!
//! - *The old implementation fails or panics over an item.* The item stays where it is, the call
//!   that needed it gets the error, and the drain tries it again until its deadline.
//! - *The deadline passes.* With [`AtDeadline::Finish`] the rest is moved at once, while calls that
//!   need any of it wait. With [`AtDeadline::Report`] it stays: calls continue to move what they
//!   need, and the report says how much is left.
//! - *The requester goes away or the object is about to be destroyed.* The drain stops as with
//!   `Report`.
//! - *Another swap begins while items are left.* Its export is complete nevertheless: a root that
//!   still has a source either moves all items first, or becomes a source that keeps its own
//!   source.
//!
//! The swap has been committed before its drain begins, and is never rolled back. Returning to the
//! old implementation is a separate swap.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use refit_change::Drained;

use super::lazy::Progress;
use crate::interface::{Interface, Root, TransferError};
use crate::panics::panic_text;

/// The behavior of a drain at its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtDeadline {
    /// Moves the rest at once; calls that need any of it wait for all of it.
    #[default]
    Finish,
    /// Leaves the rest to the calls that need it, and to the next swap.
    Report,
}

/// A callback that gets the progress of a drain after every batch.
pub type Watch = Arc<dyn Fn(Progress) + Send + Sync>;

/// The options for moving the rest of a lazy transfer.
#[derive(Clone)]
pub struct DrainOptions {
    /// The number of items moved before calls get a chance again.
    pub batch: usize,
    /// The time limit, from the commit.
    pub deadline: Duration,
    /// The behavior at the time limit.
    pub at_deadline: AtDeadline,
    /// A callback for every batch.
    pub watch: Option<Watch>,
}

impl Default for DrainOptions {
    fn default() -> Self {
        let deadline = Duration::from_secs(5);
        DrainOptions { batch: 64, deadline, at_deadline: AtDeadline::default(), watch: None }
    }
}

impl std::fmt::Debug for DrainOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DrainOptions { batch, deadline, at_deadline, watch } = self;
        f.debug_struct("DrainOptions")
            .field("batch", batch)
            .field("deadline", deadline)
            .field("at_deadline", at_deadline)
            .field("watch", &watch.is_some())
            .finish()
    }
}

/// The pause after a failure, before the next attempt.
const BACK_OFF: Duration = Duration::from_micros(100);
const BACK_OFF_AT_MOST: Duration = Duration::from_millis(10);

/// Moves everything, until it is done or `over` returns true.
pub(crate) fn run<I: Interface>(
    root: &dyn Root<I>,
    options: &DrainOptions,
    over: &dyn Fn() -> bool,
) -> Drained {
    let began = Instant::now();
    let mut seen = Progress { open: true, ..Progress::default() };
    let mut back_off = BACK_OFF;
    let (mut why, mut forced) = (String::new(), false);
    while seen.open {
        if over() {
            why = "its requester went away, or the object is being destroyed".into();
            break;
        }
        let late = began.elapsed() >= options.deadline;
        if late && (forced || options.at_deadline == AtDeadline::Report) {
            if why.is_empty() {
                why = format!("the deadline of {:?} passed", options.deadline);
            }
            break;
        }
        forced = late;
        let most = if forced { usize::MAX } else { options.batch.max(1) };
        match attempt(root, most) {
            Ok(progress) => {
                (seen, why, back_off) = (progress, String::new(), BACK_OFF);
                if let Some(watch) = &options.watch {
                    watch(progress);
                }
                std::thread::yield_now();
            }
            Err(error) => {
                why = error.to_string();
                std::thread::sleep(back_off);
                back_off = (back_off * 2).min(BACK_OFF_AT_MOST);
            }
        }
    }
    // Calls have continued in the meantime, so the counts are queried again.
    if let Ok(now) = attempt(root, 0) {
        seen = now;
    }
    let Progress { left, on_demand, by_drain, .. } = seen;
    let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Drained { on_demand, by_drain, left, ns, forced, why }
}

fn attempt<I: Interface>(root: &dyn Root<I>, most: usize) -> Result<Progress, TransferError> {
    catch_unwind(AssertUnwindSafe(|| root.drain(most))).unwrap_or_else(|panic| {
        Err(TransferError(format!("the drain panicked: {}", panic_text(&*panic))))
    })
}
