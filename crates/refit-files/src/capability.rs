//! What is known about a file's `security.capability`, without asking the host each time.
//!
//! The kernel asks for it before the first write after each open, and a write takes it away. Hardly
//! any file has one, and it changes through the mount, so that an answer of the host stays good
//! until the file is found changed beside it.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

const UNKNOWN: u8 = 0;
/// The host is being asked; nobody has set one since.
const ASKED: u8 = 1;
const ABSENT: u8 = 2;

/// Whether a file may have the attribute.
#[derive(Debug, Default)]
pub(crate) struct Capability(AtomicU8);

impl Capability {
    pub(crate) const NAME: &str = "security.capability";

    /// The file was made a moment ago.
    pub(crate) fn is_absent(&self) {
        self.0.store(ABSENT, SeqCst);
    }

    /// Somebody set it, and the host has it already.
    pub(crate) fn set(&self) {
        self.0.store(UNKNOWN, SeqCst);
    }

    pub(crate) fn absent(&self) -> bool {
        self.0.load(SeqCst) == ABSENT
    }

    /// To be called before the host is asked.
    pub(crate) fn asks(&self) {
        let _ = self.0.compare_exchange(UNKNOWN, ASKED, SeqCst, SeqCst);
    }

    /// The host said that there is none. Does not count if somebody has set one since the host was asked.
    pub(crate) fn answered_absent(&self) {
        let _ = self.0.compare_exchange(ASKED, ABSENT, SeqCst, SeqCst);
    }

    /// Whether there may be one that has to be taken away; counts as taken away from here on.
    pub(crate) fn take(&self) -> bool {
        !self.absent() && self.0.swap(ABSENT, SeqCst) != ABSENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_answer_does_not_hide_a_new_capability() {
        let capability = Capability::default();
        capability.asks();
        capability.set();
        capability.answered_absent();
        assert!(!capability.absent());
        capability.asks();
        capability.answered_absent();
        assert!(capability.absent());
        assert!(!capability.take());
        capability.set();
        assert!(capability.take());
        assert!(!capability.take());
    }
}
