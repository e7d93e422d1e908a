//! The cached knowledge of a file's `security.capability`, to avoid asking the host each time.
//!
//! The kernel asks for the attribute before the first write after each open, and a write removes
//! it. Few files have one, and it changes through the mount, so the host's answer stays valid until
//! the file is found changed beside the mount.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

const UNKNOWN: u8 = 0;
/// The host is being asked, and the attribute has not been set since.
const ASKED: u8 = 1;
const ABSENT: u8 = 2;

/// Whether a file may have the attribute.
#[derive(Debug, Default)]
pub(crate) struct Capability(AtomicU8);

impl Capability {
    pub(crate) const NAME: &str = "security.capability";

    /// Records that the file was just created and has no capability.
    pub(crate) fn is_absent(&self) {
        self.0.store(ABSENT, SeqCst);
    }

    /// Records that the attribute was set; the host already has it.
    pub(crate) fn set(&self) {
        self.0.store(UNKNOWN, SeqCst);
    }

    pub(crate) fn absent(&self) -> bool {
        self.0.load(SeqCst) == ABSENT
    }

    /// Records that the host is about to be asked. Must be called before it is.
    pub(crate) fn asks(&self) {
        let _ = self.0.compare_exchange(UNKNOWN, ASKED, SeqCst, SeqCst);
    }

    /// Records that the host reported no attribute, unless one was set since the host was asked.
    pub(crate) fn answered_absent(&self) {
        let _ = self.0.compare_exchange(ASKED, ABSENT, SeqCst, SeqCst);
    }

    /// Returns whether there may be an attribute to remove, and records it as removed.
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
