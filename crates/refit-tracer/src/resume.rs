//! Why a tracee is stopped when somebody acts on it, and how it goes on afterwards.

/// Why a tracee is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The event loop has interrupted it for the request at hand.
    ForUs,
    /// It was [kept](Resume::Stay) until somebody has decided about it.
    Kept,
    /// Job control has stopped its whole process.
    WithItsProcess,
}

/// How a stopped tracee goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// It runs on.
    GoOn,
    /// It runs to the next entry or exit of a system call, and receives this signal first, unless that is 0.
    ToSystemCall(i32),
    /// It receives this signal, unless that is 0, and stops again at once, behind what that leads to.
    Once(i32),
    /// It stays stopped until another request decides about it.
    Stay,
}
