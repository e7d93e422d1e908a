//! Physical memory of programs: the number of pages that they may have in memory, all together (Hui
//! 2000, §3.2: PM).
//!
//! The frames themselves are the kernel's, in the programs; a budget only counts those it has
//! granted. A frame is granted to a page before the page enters the program, and taken back after
//! the page has left, so that there are never more pages than frames.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use refit_objects::{Choices, Name, State, TransferError};

/// The limit and the counters of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetStats {
    /// Number of frames that may be granted at once.
    pub limit: u64,
    /// Number of frames that are granted.
    pub taken: u64,
    /// Number of times that none was left.
    pub refused: u64,
}

impl BudgetStats {
    /// Returns the number of frames that can be granted at once.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }

    /// Returns the number of frames that should be kept free, so that a fault finds one.
    pub fn reserve(&self) -> u64 {
        (self.limit / 32).clamp(32, 1024)
    }
}

/// One program's share of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of its pages in memory.
    pub resident: u64,
    /// Number of pages that have entered it since a program last had to give some back.
    pub came: u64,
}

/// The number of pages that programs may have in memory, and the choice of the program that gives
/// some back when frames are short.
#[refit_objects::interface(name = "budget", state = BudgetStats, version = 2)]
pub trait Budget {
    /// Grants as many frames as there are, up to `wanted`. Returns their number.
    fn take(&self, wanted: u64) -> u64;
    /// Takes frames back.
    fn give(&self, frames: u64);
    /// Sets the limit. If more frames are granted, no more are until enough have come back.
    fn allow(&self, limit: u64);
    /// Returns the limit and the counters.
    fn stats(&self) -> BudgetStats;
    /// Returns which of several programs gives pages back next; `None` if there are none.
    fn who_gives(&self, shares: &[Share]) -> Option<usize>;
}

/// Draws by weight, to choose who gives pages back: over many draws each item comes up as often as
/// its weight says.
#[derive(Debug, Default)]
pub(super) struct Draws(AtomicU64);

impl Draws {
    /// Returns the index of one of the items; those of weight 0 come up rarely. `None` if there are
    /// none.
    pub(super) fn draw(&self, weights: impl Iterator<Item = u64> + Clone) -> Option<usize> {
        let sum: u64 = weights.clone().map(|weight| weight + 1).sum();
        // Any even spread would do; the multiples of the golden ratio are one.
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

/// The policy by which each program gives pages back in proportion to those it has: a program that
/// uses few of its pages makes room for all others.
pub const GLOBAL: &str = "global";
/// The policy by which each program gives back as many pages as enter it: none makes room for
/// others that want more than there is.
pub const LOCAL: &str = "local";

/// Creates a budget of `limit` frames. Its implementation is `global` until it is swapped.
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

/// Relaxed throughout: the number of frames implies nothing about their contents.
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
        // If no page has entered any program, the limit has been lowered.
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
