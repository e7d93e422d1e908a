//! The nodes at which the threads of programs run.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::InstanceId;

/// The nodes of threads that have moved: by process, and by thread.
#[derive(Debug, Default)]
pub(crate) struct Places {
    places: Mutex<BTreeMap<u32, BTreeMap<u32, u16>>>,
}

impl Places {
    pub(crate) fn all(&self) -> MutexGuard<'_, BTreeMap<u32, BTreeMap<u32, u16>>> {
        self.places.lock()
    }

    pub(crate) fn put(&self, process: u32, thread: u32, at: InstanceId) {
        self.all().entry(process).or_default().insert(thread, at.0);
    }

    pub(crate) fn end(&self, process: u32, thread: u32) {
        self.all().entry(process).or_default().remove(&thread);
    }

    pub(crate) fn forget(&self, process: u32) {
        self.all().remove(&process);
    }
}
