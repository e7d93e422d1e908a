//! The objects that a file cache depends on.

use std::sync::Arc;

use refit_objects::Import;

use crate::fr::FileRepresentativeRef;
use crate::frames::FramePool;
use crate::pm::PhysicalMemoryRef;

/// The objects that a file cache depends on.
#[derive(Clone, Debug)]
pub struct CacheParts {
    /// The physical memory from which it takes frames.
    pub pm: PhysicalMemoryRef,
    /// The memory of the frames: the pool that `pm` allocates from.
    pub frames: Arc<FramePool>,
    /// The file that it caches.
    pub fr: FileRepresentativeRef,
}

impl CacheParts {
    pub(crate) fn imports(&self) -> Vec<Import> {
        let fr = Import { port: "fr", object: self.fr.id() };
        let pm = Import { port: "pm", object: self.pm.id() };
        vec![fr, pm]
    }
}
