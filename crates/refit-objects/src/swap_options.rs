//! The options of a swap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use refit_change::Phase;

use crate::clustering::Clustering;
use crate::transfer::DrainOptions;

/// The reason for giving up a change that its requester has cancelled.
pub(crate) const REQUESTER_GONE: &str = "its requester went away";

/// A callback for each phase of a swap; an error rolls the swap back.
pub type Hook = Arc<dyn Fn(Phase) -> Result<(), String> + Send + Sync>;

/// The options of a swap.
#[derive(Clone)]
pub struct SwapOptions {
    /// The time from the beginning of an attempt until its commit, after which it is rolled back.
    pub deadline: Duration,
    /// The number of further attempts after a swap has missed its deadline. The pause before an
    /// attempt doubles each time; the callers that delayed the swap may be gone after it.
    pub retries: u32,
    /// The grouping of processors that share a rep.
    pub clustering: Clustering,
    /// A flag by which the requester, or a thread that notices the requester's end, has the swap
    /// rolled back.
    pub cancel: Option<Arc<AtomicBool>>,
    /// The name of the requester, for the report.
    pub owner: String,
    /// A callback for every phase, for tests and probes.
    pub hook: Option<Hook>,
    /// Goes as far as the commit, measures, and rolls back, so that nothing changes.
    pub dry_run: bool,
    /// The name of the protocol to use; `None` for the best one.
    pub protocol: Option<String>,
    /// The limits for moving the rest of a lazy transfer after the commit.
    pub drain: DrainOptions,
    /// The treatment of the old implementation's state.
    pub handover: Handover,
    /// Runs the swapping thread before all ordinary ones (`SCHED_FIFO`, where permitted) while
    /// others wait for it. It shortens the wait on a machine with as many busy threads as
    /// processors. It changes a property of the caller's thread, so it is off by default.
    pub urgent: bool,
}

/// The treatment of the state of the implementation that is swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// The new implementation takes it over.
    #[default]
    Transfer,
    /// The state is abandoned, and the new implementation begins as created. Refused unless the
    /// interface declares its state a hint.
    WithoutState,
    /// The state is discarded, and the new implementation begins with the empty state of the
    /// interface. **Loses the contents of the object.** Refused unless the interface declares an
    /// empty state.
    EmptyState,
}

impl Default for SwapOptions {
    fn default() -> Self {
        SwapOptions {
            deadline: Duration::from_secs(1),
            retries: 0,
            clustering: Clustering::AsMade,
            cancel: None,
            owner: String::new(),
            hook: None,
            dry_run: false,
            protocol: None,
            drain: DrainOptions::default(),
            handover: Handover::default(),
            urgent: false,
        }
    }
}

impl std::fmt::Debug for SwapOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SwapOptions {
            deadline,
            retries,
            clustering,
            cancel,
            owner,
            hook,
            dry_run,
            protocol,
            drain,
            handover,
            urgent,
        } = self;
        f.debug_struct("SwapOptions")
            .field("deadline", deadline)
            .field("retries", retries)
            .field("clustering", clustering)
            .field("cancel", cancel)
            .field("owner", owner)
            .field("hook", &hook.is_some())
            .field("dry_run", dry_run)
            .field("protocol", protocol)
            .field("drain", drain)
            .field("handover", handover)
            .field("urgent", urgent)
            .finish()
    }
}

impl SwapOptions {
    pub(crate) fn cancelled(&self) -> bool {
        // Relaxed: no other load depends on it.
        self.cancel.as_ref().is_some_and(|c| c.load(Ordering::Relaxed))
    }
}
