//! The file representative as a clustered object, with one implementation: the host's file.

use crate::host::HostFile;
use refit_memory::{
    DiskWork, FileRepresentative, FileRepresentativeInterface, FileRepresentativeRef,
};
use refit_objects::{Implementations, Interface, Name, OwnedRep, Root, TransferError};
use std::sync::Arc;

/// The name of the implementation.
pub(crate) const HOST: &str = "host";

/// The host's file as a representative. All processors share its descriptors.
struct HostRep(Arc<HostFile>);

impl FileRepresentative for HostRep {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        self.0.write(offset, data)
    }

    fn truncate(&self, size: u64) -> Result<(), i32> {
        self.0.truncate(size)
    }

    fn size(&self) -> Result<u64, i32> {
        self.0.size()
    }

    fn sync(&self, data_only: bool) -> Result<(), i32> {
        self.0.sync(data_only)
    }

    fn punch(&self, start: u64, end: u64) -> Result<(), i32> {
        self.0.punch(start, end)
    }

    fn sync_work(&self, data_only: bool) -> Result<DiskWork, i32> {
        self.0.sync_work(data_only)
    }

    fn fetch_work(&self, offset: u64, len: u64) -> Result<DiskWork, i32> {
        self.0.fetch_work(offset, len)
    }
}

struct HostRoot(Arc<HostFile>);

impl Root<FileRepresentativeInterface> for HostRoot {
    fn implementation(&self) -> &str {
        HOST
    }

    fn make_rep(&self, _processor: usize) -> OwnedRep<FileRepresentativeInterface> {
        FileRepresentativeInterface::rep(HostRep(Arc::clone(&self.0)))
    }

    // Both roots share the host's file, which is the whole state.
    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }

    fn transfers_promptly(&self) -> bool {
        true
    }
}

struct Hosts(Arc<HostFile>);

impl Implementations<FileRepresentativeInterface> for Hosts {
    fn names(&self) -> Vec<&'static str> {
        vec![HOST]
    }

    fn root(&self, name: &str) -> Option<Box<dyn Root<FileRepresentativeInterface>>> {
        (name == HOST).then(|| Box::new(HostRoot(Arc::clone(&self.0))) as _)
    }
}

/// Creates the representative of a host file.
pub(crate) fn create(name: Name, host: Arc<HostFile>) -> FileRepresentativeRef {
    let root = Box::new(HostRoot(Arc::clone(&host)));
    refit_objects::create(name, root, Arc::new(Hosts(host)))
}

/// Destroys a representative. Calls in progress complete.
pub(crate) fn destroy(representative: FileRepresentativeRef) {
    refit_objects::destroy(FileRepresentativeInterface::id(representative));
}
