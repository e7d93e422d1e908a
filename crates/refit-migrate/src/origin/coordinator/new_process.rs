//! Processes that threads of a group make.

/// How a process was made.
#[derive(Clone, Copy)]
pub(super) struct Fork {
    pub(super) parent: u32,
    /// Whether the process gets a copy of the memory; with the address in it at which the process
    /// is told its number by refit, if there is one.
    pub(super) copy: Option<Option<u64>>,
}
