//! Physical memory of programs: how many pages they may have in memory, all together (Hui 2000, §3.2: PM).
//!
//! The frames themselves are the kernel's, in the programs; what is counted here is who has been promised one. A page takes its
//! frame before it comes, and gives it back after it has gone, so that there are never more pages than frames.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use refit_objects::{Choices, Name, State, TransferError};

/// What a budget is and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetStats {
    /// Frames that may be out at once.
    pub limit: u64,
    /// Frames that are out.
    pub taken: u64,
    /// How often none was left.
    pub refused: u64,
}

/// How many pages programs may have in memory.
#[refit_objects::interface(name = "budget", state = BudgetStats)]
pub trait Budget {
    /// Takes frames, as many as there are, up to `wanted`; how many.
    fn take(&self, wanted: u64) -> u64;
    /// Gives frames back.
    fn give(&self, frames: u64);
    /// Allows so many from now on. If more are out, none is given until enough have come back.
    fn allow(&self, limit: u64);
    /// What is allowed, and what is out.
    fn stats(&self) -> BudgetStats;
}

/// Name of the implementation: one number for all processors.
const COUNTED: &str = "counted";

/// Makes a budget of so many frames.
pub fn create_budget(name: impl Into<Name>, limit: u64) -> BudgetRef {
    let budget = Choices::new().with(COUNTED, BudgetInterface::rep, Counted::default);
    let budget = budget.create(name, COUNTED).expect("it is the one choice");
    budget.allow(limit);
    budget
}

/// Relaxed throughout: a number of frames tells nothing of what is in them.
#[derive(Debug, Default)]
struct Counted {
    limit: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Budget for Counted {
    fn take(&self, wanted: u64) -> u64 {
        let limit = self.limit.load(Relaxed);
        let granted = |taken: u64| wanted.min(limit.saturating_sub(taken));
        let before =
            self.taken.fetch_update(Relaxed, Relaxed, |taken| Some(taken + granted(taken)));
        let granted = before.map_or(0, granted);
        if granted == 0 && wanted > 0 {
            self.refused.fetch_add(1, Relaxed);
        }
        granted
    }

    fn give(&self, frames: u64) {
        let before = self.taken.fetch_sub(frames, Relaxed);
        debug_assert!(before >= frames, "{frames} frames come back of {before}");
    }

    fn allow(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    fn stats(&self) -> BudgetStats {
        BudgetStats {
            limit: self.limit.load(Relaxed),
            taken: self.taken.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

impl State<BudgetStats> for Counted {
    fn export(&self) -> Result<BudgetStats, TransferError> {
        Ok(self.stats())
    }

    fn import(&self, state: BudgetStats) -> Result<(), TransferError> {
        self.limit.store(state.limit, Relaxed);
        self.taken.store(state.taken, Relaxed);
        self.refused.store(state.refused, Relaxed);
        Ok(())
    }
}
