//! The file server: an existing directory behind a FUSE mount, every file's data behind a file cache manager.
//!
//! - Does: serve all operations that a Linux program expects of a local file system, with the caller's identity, on
//!   several threads; keep every read, write and mapping of a file in one cache object that can be swapped.
//! - Does not: see changes made in the source directory by others before the file is opened; lock
//!   across hosts.
//!
//! How a request goes: [`mount()`] starts workers, each of which takes a request from the kernel
//! (`fuse`), carries it out (`names`, `files`, `status`, `listing`) and answers it (`answer`).
//! Names and attributes are the host's, reached by descriptors (`table`, `inode`); data goes
//! through the file's cache (`data`) and reaches the host later (`flusher`), with the times at
//! which it was written (`times`).

#![forbid(unsafe_code)]

mod answer;
mod aside;
mod attributes;
mod capability;
mod check;
mod composition;
mod data;
mod directory;
mod error;
mod events;
mod files;
mod flusher;
mod fuse;
mod glob;
mod host;
mod inode;
mod journal;
mod kernel_mount;
mod listing;
mod modes;
mod mount;
mod names;
mod outdated;
mod pressure;
mod representative;
mod server;
mod source_lock;
mod space;
mod status;
mod table;
mod times;
mod unstored;
mod version;
mod writing;

pub use composition::composition;
pub use error::{MountError, UnmountError};
pub use journal::{MountStats, RequestEvent};
pub use modes::CacheMode;
pub use mount::{Mount, MountOptions, mount};
pub use source_lock::Holder;
pub use unstored::{NotStored, Unstored};
