//! The interface of a replacement policy, which says whose pages go when frames run short, and the policy CLOCK.
//!
//! A policy is asked only then, outside of every cache's lock, and gets to see *marks*: what has become of each frame
//! since the hand last came by. A hit sets a mark in the frame's descriptor and calls nobody, so that it costs the same
//! whatever the policy. All that crosses are numbers and bytes: a policy can be built apart and loaded
//! (`refit load`), with nothing but the declaration of this trait.

use refit_objects::{Choices, CreateError, Factory, Interface, Name, State, TransferError};

/// Marks of a frame, for [`ReplacementPolicy::judge`].
pub mod mark {
    /// The frame has got another page since the hand last came by.
    pub const NEW: u8 = 1;
    /// The page has been used since then; to be read in is not yet to be used.
    pub const USED: u8 = 2;
    /// The page would have to be written back first.
    pub const DIRTY: u8 = 4;
    /// The frame cannot be given up now: it is free, being filled or being written. No verdict changes that.
    pub const LOCKED: u8 = 8;
}

/// Who says which pages are given up: a hand goes over all frames, in the order of their numbers and round again.
///
/// A policy decides how well a cache works, and can do no harm otherwise: a verdict on a page that cannot go has no effect,
/// and if it names no page in two rounds, or panics, the hand takes what comes. A method calls no object and waits for
/// nobody.
#[refit_objects::interface(name = "policy", state = Vec<u8>, loadable, hint)]
pub trait ReplacementPolicy {
    /// The hand passes the frames from number `first` on, one for each byte of `marks` (see [`mark`]). Sets the byte of
    /// `verdicts`, which are all 0, to 1 for each frame whose page is to go. `round` is 0 the first time that a
    /// search for victims comes by, and 1 the second time, when what was named before was not enough. Several
    /// threads may ask at once, about different frames.
    fn judge(&self, first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]);
}

/// Makes policies; there is one for each mount, and `refit upgrade policy` concerns them all.
pub type ReplacementPolicyFactory = Factory<ReplacementPolicyInterface>;

/// Name of the policy that is built in.
pub const CLOCK: &str = "clock";

/// A page that was used since the hand last came by gets a second chance. Clean pages go first: they cost nothing to
/// give up. It knows nothing that does not stand in the marks.
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

/// Makes a policy of the implementation that serves the class.
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

/// Ends a policy that no physical memory asks any more.
pub fn destroy_policy(policy: ReplacementPolicyRef) {
    refit_objects::destroy(ReplacementPolicyInterface::id(policy));
}
