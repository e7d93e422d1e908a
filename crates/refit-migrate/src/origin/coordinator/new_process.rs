//! Processes that threads of a group make.

/// The call that has made a process.
#[derive(Clone, Copy)]
pub(super) struct Fork {
    pub(super) parent: u32,
    /// Whether the process gets a copy of the memory; with the address in it at which the process
    /// is told its number by refit, if there is one.
    pub(super) copy: Option<Option<u64>>,
}
