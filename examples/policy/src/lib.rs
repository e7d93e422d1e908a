//! A plugin: page replacement policies for `refit mount`, to be loaded while it serves:
//!
//! ```sh
//! cargo build -p example-policy && refit load target/debug/libexample_policy.so
//! refit swap 'policy:*' fifo
//! ```
//!
//! It is built from `refit-objects` alone. What makes it fit is that it declares the interface as `refit-memory` does;
//! `refit load` refuses it otherwise.

use std::sync::{Arc, Mutex, PoisonError};

use refit_objects::{OwnedRep, Root, State, TransferError, interface};

/// Says which pages are given up when page frames run short.
#[interface(name = "policy", state = Vec<u8>, loadable, hint)]
pub trait ReplacementPolicy {
    /// The hand passes the frames from number `first` on, one for each byte of `marks`. Sets the byte of `verdicts` to
    /// 1 for each whose page is to go; `round` is 1 when what was named in round 0 was not enough.
    fn judge(&self, first: u32, marks: &[u8], round: u32, verdicts: &mut [u8]);
}

/// Another page than when the hand last came by.
const NEW: u8 = 1;
/// Used since then.
const USED: u8 = 2;
/// Would have to be written back.
const DIRTY: u8 = 4;

/// Whether a page costs more to give up than this round is willing to pay.
fn too_dear(mark: u8, round: u32) -> bool {
    round == 0 && mark & DIRTY != 0
}

/// First in, first out: the hand gives a frame away where it stands, so what it meets next has been there longest.
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

/// Counts in how many passes a page was used, and forgets half of it in each in which it was not.
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

/// A byte for each frame, so that the next build of this policy begins with what this one knows.
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
