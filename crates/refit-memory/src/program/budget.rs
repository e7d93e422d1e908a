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

impl BudgetStats {
    /// Frames that can be had at once.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }

    /// How many of them there are to be, before any is asked for.
    pub fn reserve(&self) -> u64 {
        (self.limit / 32).clamp(32, 1024)
    }
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

/// Draws by weights, for who has to give pages: over many draws each comes up as often as its weight says.
#[derive(Debug, Default)]
pub struct Draws(AtomicU64);

impl Draws {
    /// Which of several; those of weight 0 come up rarely. `None`: there are none.
    pub fn draw(&self, weights: impl Iterator<Item = u64> + Clone) -> Option<usize> {
        let sum: u64 = weights.clone().map(|weight| weight + 1).sum();
        // Any even spread will do: the golden ratio's multiples are one.
        let turn = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let mut left = ((u128::from(turn) * u128::from(sum)) >> 64) as u64;
        for (at, weight) in weights.enumerate() {
            match left.checked_sub(weight + 1) {
                Some(rest) => left = rest,
                None => return Some(at),
            }
        }
        None
    }
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
