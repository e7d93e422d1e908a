//! A plugin with page replacement policies for `refit mount`, which can be loaded while it serves:
//!
//! ```sh
//! cargo build -p example-policy && refit load target/debug/libexample_policy.so
//! refit swap 'policy:*' fifo
//! ```
//!
//! It is built with `refit-objects` alone. It is compatible because it declares the interface as
//! `refit-memory` does; otherwise `refit load` refuses it.

use std::sync::{Arc, Mutex, PoisonError};

use refit_objects::{OwnedRep, Root, State, TransferError, interface};

/// Decides which pages are evicted when page frames run short.
#[interface(name = "policy", state = Vec<u8>, loadable, hint)]
pub trait ReplacementPolicy {
    /// Judges the frames from number `first` on, one for each byte of `marks`, as the clock hand
    /// passes them. Sets the byte of `verdicts` to 1 for each frame whose page is to be evicted.
    /// `round` is 1 if the pages chosen in round 0 were not enough.
    fn judge(&self, first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]);
}

/// The frame contains another page than at the last pass.
const NEW: u8 = 1;
/// The page was used since the last pass.
const USED: u8 = 2;
/// The page is dirty and would have to be written back.
const DIRTY: u8 = 4;

/// Returns whether the eviction of a page is too expensive in this round.
fn too_dear(mark: u8, round: u32) -> bool {
    round == 0 && mark & DIRTY != 0
}

/// First in, first out: the hand evicts the page at its position, so the next one it reaches is the
/// oldest.
#[derive(Default)]
struct Fifo;

impl ReplacementPolicy for Fifo {
    fn judge(&self, _first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]) {
        for (mark, verdict) in marks.iter().zip(verdicts) {
            *verdict = u8::from(!too_dear(*mark, round));
        }
    }
}

impl State<Vec<u8>> for Fifo {
    fn export(&self) -> Result<Vec<u8>, TransferError> {
        Ok(Vec::new())
    }

    fn import(&self, _heat: Vec<u8>) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Counts the passes in which a page was used, and halves the count in each pass in which it was
/// not.
#[derive(Default)]
struct Counted(Mutex<Vec<u8>>);

impl Counted {
    fn with<T>(&self, run: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ReplacementPolicy for Counted {
    fn judge(&self, first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]) {
        self.with(|heat| {
            let first = first as usize;
            if heat.len() < first + marks.len() {
                heat.resize(first + marks.len(), 0);
            }
            for ((heat, mark), verdict) in heat[first..].iter_mut().zip(marks).zip(verdicts) {
                let before = if mark & NEW == 0 { *heat } else { 0 };
                let used = mark & USED != 0;
                *heat = if used { before.saturating_add(4) } else { before / 2 };
                let cold = if round == 0 { *heat == 0 } else { !used };
                *verdict = u8::from(cold && !too_dear(*mark, round));
            }
        });
    }
}

/// The state is a byte for each frame, so that the next build of this policy begins with the counts
/// of this one.
impl State<Vec<u8>> for Counted {
    fn export(&self) -> Result<Vec<u8>, TransferError> {
        Ok(self.with(|heat| heat.clone()))
    }

    fn import(&self, state: Vec<u8>) -> Result<(), TransferError> {
        self.with(|heat| *heat = state);
        Ok(())
    }
}

/// The root of a policy that all processors share.
struct PolicyRoot<P> {
    name: &'static str,
    policy: Arc<P>,
}

impl<P: ReplacementPolicy + State<Vec<u8>>> Root<ReplacementPolicyInterface> for PolicyRoot<P> {
    fn implementation(&self) -> &str {
        self.name
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<ReplacementPolicyInterface> {
        ReplacementPolicyInterface::rep(Arc::clone(&self.policy))
    }

    fn export(&self) -> Result<Vec<u8>, TransferError> {
        self.policy.export()
    }

    fn import(&self, state: Vec<u8>) -> Result<(), TransferError> {
        self.policy.import(state)
    }
}

refit_objects::plugin! {
    ReplacementPolicyInterface: "fifo" =>
        || Box::new(PolicyRoot { name: "fifo", policy: Arc::<Fifo>::default() }),
    ReplacementPolicyInterface: "counted" =>
        || Box::new(PolicyRoot { name: "counted", policy: Arc::<Counted>::default() }),
}
