//! The errors of a store.

use std::io;

/// The error of an operation of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Neither the compressed part nor the swap file has room.
    #[error("the swap store is full ({bytes} bytes); enlarge it, or give the program more memory")]
    Full {
        /// The limit in bytes.
        bytes: u64,
    },
    /// An error of the host.
    #[error("cannot {what} the swap file: {source}; make room on its disk, or check the disk")]
    Host {
        /// The operation, as the words between "cannot" and "the swap file".
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The disk has returned other contents than were written.
    #[error(
        "the swap file has changed at byte {at}; its disk did not return the data that was written"
    )]
    Changed {
        /// The position in bytes.
        at: u64,
    },
}
