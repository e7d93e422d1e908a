//! Why a tracee is stopped when work is done with it, and how it goes on afterwards.

/// Why a tracee is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The event loop has interrupted it for the work at hand.
    Requested,
    /// The tracee was [kept](Resume::Stay) for a decision.
    Kept,
    /// Job control has stopped its whole process.
    JobControl,
}

/// The way in which a stopped tracee goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The tracee runs on.
    Continue,
    /// The tracee runs to the next entry or exit of a system call. This signal is delivered first,
    /// unless it is 0.
    ToSystemCall(i32),
    /// This signal is delivered, unless it is 0, and the tracee stops again at once, behind what
    /// the signal leads to.
    Once(i32),
    /// The tracee stays stopped until other work decides about it.
    Stay,
}
