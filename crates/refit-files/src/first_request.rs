//! The first request of a worker, which gives its memory page frames.
//!
//! The memory into which a worker reads must have page frames before the worker reads from the
//! connection. When a process is killed, the kernel gives it no more page frames. If it was just
//! copying a request to memory that has none, it does not keep the request for the next server; it
//! fails it with `EIO` (Linux 6.18, `fuse_dev_do_read`). If that is a write of the kernel's cache,
//! the data is lost, and the program that wrote it may learn it only from `fsync`.
//!
//! The library allocates that memory in the worker's thread just before it reads. Therefore the
//! worker first finds a file in the place of the connection ([`Placeholder`]), with a request that
//! is as long as the longest of the kernel. While it executes this request, the connection takes
//! the place of the file.

use parking_lot::Mutex;
use refit_sys::descriptors::Placeholder;
use refit_sys::memfd::{self, Pages};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Sender;

/// The maximum size of the data of a request of the kernel, in bytes.
pub(crate) const MAX_REQUEST_SIZE: u32 = 1 << 20;
/// The length of the first request: that of the longest request of the kernel, whose header and
/// arguments take less than a page.
const FIRST_REQUEST: u64 = MAX_REQUEST_SIZE as u64 + 4096;
/// The length of a request of [`BMAP`] in its header. The rest of the first request is not looked
/// at.
const BMAP_LENGTH: u32 = 56;
/// `FUSE_BMAP`: the kernel never sends it to this server.
const BMAP: u32 = 37;
/// The offset of the user ID in a request. The library executes only those of permitted users.
const UID: usize = 24;

/// The connection that a worker is going to read from.
#[derive(Default)]
pub(crate) struct AwaitedConnection(Mutex<Option<Connection>>);

struct Connection {
    device: OwnedFd,
    placeholder: Placeholder,
    connected: Sender<io::Result<()>>,
}

impl AwaitedConnection {
    /// Makes the owner of `descriptor`, a worker that has not begun, read the first request from
    /// it and then from `device`, and report that to `connected`.
    pub(crate) fn follow_first_request(
        &self,
        descriptor: BorrowedFd<'_>,
        device: OwnedFd,
        connected: Sender<io::Result<()>>,
    ) -> io::Result<()> {
        let placeholder = Placeholder::put(first_request()?, descriptor)?;
        *self.0.lock() = Some(Connection { device, placeholder, connected });
        Ok(())
    }

    /// Makes the calling worker read from the connection. Called by its first request.
    pub(crate) fn connect(&self) {
        let Some(Connection { device, placeholder, connected }) = self.0.lock().take() else {
            return;
        };
        // The receiver has gone if another worker has failed.
        let _ = connected.send(placeholder.give_way(device));
    }
}

/// Creates the file with the first request of a worker.
fn first_request() -> io::Result<File> {
    let file = File::from(memfd::create(c"refit-first-request", FIRST_REQUEST, Pages::Base)?);
    let mut request = [0; BMAP_LENGTH as usize];
    request[..4].copy_from_slice(&BMAP_LENGTH.to_ne_bytes());
    request[4..8].copy_from_slice(&BMAP.to_ne_bytes());
    let own = rustix::process::geteuid().as_raw();
    request[UID..UID + 4].copy_from_slice(&own.to_ne_bytes());
    file.write_all_at(&request, 0)?;
    Ok(file)
}
