//! A root that can succeed another one in an object, and the transfer of the state to it.

use std::sync::Arc;

use crate::attached::{AnyRoot, Attached};
use crate::clustering::Clustering;
use crate::id::ObjectId;
use crate::interface::{Interface, Root};
use crate::transfer::moving::{Moving, Transferring};

/// A new root of an object.
pub(crate) struct Successor {
    pub(crate) root: Arc<dyn AnyRoot>,
    pub(crate) moving: Arc<dyn Transferring>,
}

impl Successor {
    /// Creates the successor of `old` in the object with this id; `None` if `old` has another
    /// interface.
    pub(crate) fn new<I: Interface>(
        id: ObjectId,
        old: &Arc<dyn AnyRoot>,
        root: Box<dyn Root<I>>,
        clustering: Clustering,
    ) -> Option<Self> {
        let old = Arc::clone(old).into_any().downcast::<Attached<I>>().ok()?;
        let new = Arc::new(Attached::clustered(root, id, clustering));
        let moving = Arc::new(Moving::new(old, Arc::clone(&new)));
        Some(Successor { root: new, moving })
    }
}
