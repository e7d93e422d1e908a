//! A wrapper that does nothing, for tests of when it is freed.

use refit_objects::{After, PreCall, Wrapper};

pub(crate) struct Idle;

impl Wrapper for Idle {
    fn name(&self) -> &str {
        "idle"
    }
    fn precall(&self, _call: &PreCall<'_>) -> After {
        After::Forward
    }
}
