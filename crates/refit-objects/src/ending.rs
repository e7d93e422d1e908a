//! How a swap ended, as the root that lost it hears it.

/// How the swap ended that a root hears of in [`Root::relinquish`](crate::Root::relinquish).
#[derive(Debug)]
pub enum Ending<'a> {
    /// It was committed, and this was the old root: its successor serves, and may still take items from here.
    Committed,
    /// It was rolled back, and this was the new root: nobody has called it, and nobody will.
    RolledBack(&'a RolledBack),
}

/// Proof that the swap to the root that holds it was rolled back.
///
/// Whatever gives up items that others may still need asks for it, such as
/// [`LazyMap::detach`](crate::transfer::LazyMap::detach): a root that was *replaced* cannot have one. It cannot be made,
/// copied or kept outside of this crate.
#[derive(Debug)]
pub struct RolledBack(());

impl RolledBack {
    pub(crate) const fn new() -> Self {
        RolledBack(())
    }
}
