//! Results of taking out patch areas.

use std::time::Duration;

/// Result of taking out patch areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Patch areas that were unmapped.
    pub areas: usize,
    /// Sites whose original bytes were restored.
    pub sites: usize,
    /// Sites whose bytes another tool has changed since; they were left alone.
    pub foreign: usize,
    /// Areas that stay mapped; no site leads there any more.
    pub kept: usize,
    /// The reason that the last of them stays mapped.
    pub because: Option<KeptReason>,
    /// Longest time that the program was stopped.
    pub stood: Duration,
    /// Whether unwinders still learn of areas that stay: code of theirs stays changed.
    pub finds: bool,
}

/// The reason that an area stays mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptReason {
    /// A thread is in it, or a signal handler returns to it.
    InUse,
    /// Another tool has changed a site of it, and may change it back.
    Foreign,
    /// No thread of the program may make the call that unmaps it (seccomp).
    Filtered,
    /// Every thread that may make the call waits where no signal reaches it.
    Restless,
    /// A word of the program's memory, where a saved context would have its program counter, is an
    /// address in the area.
    Saved,
    /// The frames of a thread are not all described, so return addresses may lead to the area.
    Unknown,
    /// Whenever the program was stopped, a thread was running in a signal handler that may have had
    /// the context of another one in registers.
    Handler,
    /// There is too much memory to search for saved contexts, or for return addresses.
    Large,
}

impl KeptReason {
    /// Whether the reason may cease to hold by itself.
    pub(super) fn passes(self) -> bool {
        matches!(self, Self::InUse | Self::Restless | Self::Saved | Self::Unknown)
    }
}

impl std::fmt::Display for KeptReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InUse => "a thread or a signal handler is executing it",
            Self::Foreign => "another tool has changed a site of it, and may change it back",
            Self::Filtered => "the program limits its system calls (seccomp) and may not unmap it",
            Self::Restless => "the threads that could unmap it wait where nothing interrupts them",
            Self::Saved => "the program has saved the context of a thread that was in it",
            Self::Unknown => "a thread's stack has frames that nothing describes, and may return there",
            Self::Handler => "a signal handler was running each time, and may be switching threads that were in it",
            Self::Large => "the program's memory is too large to be searched for contexts and return addresses that it has saved",
        })
    }
}

impl Removed {
    /// Adds the result of another program.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            areas: self.areas + other.areas,
            sites: self.sites + other.sites,
            foreign: self.foreign + other.foreign,
            kept: self.kept + other.kept,
            because: match (self.because, other.because) {
                // The area of the copies says more than one that stays because of them.
                (Some(own), Some(KeptReason::InUse)) if own.passes() => Some(own),
                (own, other) => other.or(own),
            },
            stood: self.stood.max(other.stood),
            finds: self.finds | other.finds,
        }
    }

    /// Adds the result of a further attempt, which says anew what stays.
    pub(super) fn again(self, more: Self) -> Self {
        Self { kept: 0, because: None, finds: false, ..self }.and(more)
    }
}
