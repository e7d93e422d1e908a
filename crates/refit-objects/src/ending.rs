//! The outcome of a swap, as reported to the root that does not serve after it.

/// The outcome of a swap, which a root learns in [`Root::relinquish`](crate::Root::relinquish).
#[derive(Debug)]
pub enum Ending<'a> {
    /// The swap was committed, and this was the old root: its successor serves, and may still take
    /// items from here.
    Committed,
    /// The swap was rolled back, and this was the new root: no call has reached it, and none will.
    RolledBack(&'a RolledBack),
}

/// Proof that the swap to the root that holds it was rolled back.
///
/// Operations that give up items which others may still need require it, such as
/// [`LazyMap::detach`](crate::transfer::LazyMap::detach): a root that was *replaced* cannot have
/// one. It cannot be created, copied or kept outside of this crate.
#[derive(Debug)]
pub struct RolledBack(());

impl RolledBack {
    pub(crate) const fn new() -> Self {
        RolledBack(())
    }
}
