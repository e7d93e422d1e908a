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

/// What one program has of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Pages that it has in memory.
    pub resident: u64,
    /// Pages that have come to it since somebody last had to give.
    pub came: u64,
}

/// How many pages programs may have in memory, and which of them has to give some when frames are short.
#[refit_objects::interface(name = "budget", state = BudgetStats, version = 2)]
pub trait Budget {
    /// Takes frames, as many as there are, up to `wanted`; how many.
    fn take(&self, wanted: u64) -> u64;
    /// Gives frames back.
    fn give(&self, frames: u64);
    /// Allows so many from now on. If more are out, none is given until enough have come back.
    fn allow(&self, limit: u64);
    /// What is allowed, and what is out.
    fn stats(&self) -> BudgetStats;
    /// Which of several programs gives pages next. `None`: there are none.
    fn who_gives(&self, shares: &[Share]) -> Option<usize>;
}

/// Draws by weights, for who has to give pages: over many draws each comes up as often as its weight says.
#[derive(Debug, Default)]
pub(super) struct Draws(AtomicU64);

impl Draws {
    /// Which of several; those of weight 0 come up rarely. `None`: there are none.
    pub(super) fn draw(&self, weights: impl Iterator<Item = u64> + Clone) -> Option<usize> {
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

/// Each program gives as often as it has pages: who uses little of what it has makes room for all.
pub const GLOBAL: &str = "global";
/// Each program gives as many pages as come to it: none makes room for others that want more than there is.
pub const LOCAL: &str = "local";

/// Makes a budget of so many frames: `global` until it is swapped.
pub fn create_budget(name: impl Into<Name>, limit: u64) -> BudgetRef {
    let choices = Choices::new().with(GLOBAL, BudgetInterface::rep, Global::default).with(
        LOCAL,
        BudgetInterface::rep,
        Local::default,
    );
    let budget = choices.create(name, GLOBAL).expect("it is one of the choices");
    budget.allow(limit);
    budget
}

type Global = Counted<true>;
type Local = Counted<false>;

/// Relaxed throughout: a number of frames tells nothing of what is in them.
#[derive(Debug, Default)]
struct Counted<const IS_GLOBAL: bool> {
    limit: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    draws: Draws,
}

impl<const IS_GLOBAL: bool> Budget for Counted<IS_GLOBAL> {
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

    fn who_gives(&self, shares: &[Share]) -> Option<usize> {
        // Where nothing has come, the limit is another.
        let by_size = IS_GLOBAL || shares.iter().all(|share| share.came == 0);
        let weight = |share: &Share| if by_size { share.resident } else { share.came };
        self.draws.draw(shares.iter().map(weight))
    }
}

impl<const IS_GLOBAL: bool> State<BudgetStats> for Counted<IS_GLOBAL> {
    const PROMPT: bool = true;

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
