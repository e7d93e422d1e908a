//! The interface of a replacement policy, which decides what pages are evicted when frames run
//! short, and the policy CLOCK.
//!
//! Refit calls a policy only when frames run short, and holds no cache's lock during the call. The
//! policy sees *marks*, which record what has happened to each frame since the hand last passed it.
//! A hit sets a mark in the frame's descriptor and makes no call, so it costs the same with every
//! policy. Only numbers and bytes are passed, so a policy can be built separately and loaded
//! (`refit load`), with nothing but the declaration of this trait.

use refit_objects::{Choices, CreateError, Factory, Interface, Name, State, TransferError};

/// The marks of a frame, for [`ReplacementPolicy::judge`].
pub mod mark {
    /// The frame has received another page since the hand last passed.
    pub const NEW: u8 = 1;
    /// The page has been used since then; reading it in does not count as a use.
    pub const USED: u8 = 2;
    /// The page would have to be written back first.
    pub const DIRTY: u8 = 4;
    /// The frame cannot be reclaimed now: it is free, being filled or being written. No verdict
    /// changes that.
    pub const LOCKED: u8 = 8;
}

/// Decides which pages are evicted, while a hand passes all frames in the order of their numbers,
/// again and again.
///
/// A policy determines how well a cache works, but can do no harm. A verdict on a page that cannot
/// be evicted has no effect. If the policy names no page in two rounds (a panic counts as naming
/// none), the hand takes every page that can be evicted. Its methods must not call objects or wait.
#[refit_objects::interface(name = "policy", state = Vec<u8>, loadable, hint)]
pub trait ReplacementPolicy {
    /// Judges the frames from number `first` on, one for each byte of `marks` (see [`mark`]), as
    /// the hand passes them. Sets the byte of `verdicts`, which are all 0, to 1 for each frame
    /// whose page should be evicted. `round` is 0 the first time that a search for victims passes,
    /// and 1 the second time, if the victims named before did not suffice. Several threads may call
    /// this at the same time for different frames.
    fn judge(&self, first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]);
}

/// Creates policies. There is one factory for each mount, and `refit upgrade policy` applies to all
/// of them.
pub type ReplacementPolicyFactory = Factory<ReplacementPolicyInterface>;

/// Name of the built-in policy.
pub const CLOCK: &str = "clock";

/// The policy CLOCK: a page that was used since the hand last passed gets a second chance. Clean
/// pages are evicted first, since that costs nothing. It keeps no state beyond the marks.
struct Clock;

impl ReplacementPolicy for Clock {
    fn judge(&self, _first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]) {
        let spare = mark::USED | mark::LOCKED | if round == 0 { mark::DIRTY } else { 0 };
        for (mark, verdict) in marks.iter().zip(verdicts) {
            *verdict = u8::from(mark & spare == 0);
        }
    }
}

impl State<Vec<u8>> for Clock {
    const PROMPT: bool = true;

    fn export(&self) -> Result<Vec<u8>, TransferError> {
        Ok(Vec::new())
    }

    fn import(&self, _heat: Vec<u8>) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Creates a policy with the default implementation of the class.
///
/// # Errors
/// There is no such implementation.
pub fn create_policy(
    factory: &ReplacementPolicyFactory,
    name: impl Into<Name>,
) -> Result<ReplacementPolicyRef, CreateError> {
    let choices = Choices::new().with(CLOCK, ReplacementPolicyInterface::rep, || Clock);
    factory.create(name, std::sync::Arc::new(choices), None)
}

/// Destroys a policy that no physical memory asks any more.
pub fn destroy_policy(policy: ReplacementPolicyRef) {
    refit_objects::destroy(ReplacementPolicyInterface::id(policy));
}
