//! The id of an object together with its interface, from which references are made.

use std::marker::PhantomData;

use crate::id::ObjectId;

/// The id of an object that was created for this interface, from which references are made. It
/// stays valid when the object is destroyed; calls detect that.
pub struct Bound<I> {
    /// As one number, since a call compares it as a whole.
    id: u64,
    interface: PhantomData<fn() -> I>,
}

impl<I> Bound<I> {
    /// # Safety
    /// An object with this id must have been created, for interface `I`.
    pub(crate) unsafe fn new(id: ObjectId) -> Self {
        Bound { id: id.to_bits(), interface: PhantomData }
    }

    /// Returns the id.
    #[inline(always)]
    pub fn id(self) -> ObjectId {
        ObjectId::from_bits(self.id)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.id
    }
}

// By hand, since a derive would require the same of `I`.
impl<I> Clone for Bound<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Bound<I> {}

impl<I> PartialEq for Bound<I> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<I> Eq for Bound<I> {}

impl<I> std::hash::Hash for Bound<I> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<I> std::fmt::Debug for Bound<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ObjectId { index, serial } = self.id();
        write!(f, "{index}.{serial}")
    }
}
