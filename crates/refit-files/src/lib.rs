//! The file server: an existing directory behind a FUSE mount, with the data of every file in a
//! file cache manager.
//!
//! - Does: serve all operations that a Linux program expects of a local file system, with the
//!   caller's identity, on several threads; keep every read, write and mapping of a file in one
//!   cache object that can be swapped.
//! - Does not: notice changes that others make in the source directory before the file is opened;
//!   lock across hosts.
//!
//! [`mount()`] starts the workers. Each of them reads a request from the kernel (`fuse`), executes
//! it (`names`, `files`, `status`, `listing`) and replies to it (`answer`). Names and attributes
//! are those of the host, which are reached by descriptors (`table`, `inode`). Data goes through
//! the file's cache (`data`) and reaches the host later (`flusher`), together with the times at
//! which it was written (`times`).

#![deny(unsafe_code)]

mod adopt;
mod adopted_inodes;
mod answer;
mod attributes;
mod backing_files;
mod capability;
mod check;
mod composition;
mod data;
mod directory;
mod error;
mod events;
mod files;
mod first_request;
mod flusher;
mod fuse;
mod host;
mod image;
mod inode;
mod jobs;
mod journal;
mod kernel_cache;
mod kernel_mount;
mod listing;
mod modes;
mod mount;
mod mount_table;
mod names;
mod negotiation;
mod open_mode;
mod options;
mod outdated;
mod passthrough;
mod pressure;
mod refused_opens;
mod release;
mod representative;
mod requests;
mod server;
mod small_files;
mod source_lock;
mod space;
mod status;
mod table;
mod times;
mod unmount;
mod unstored;
mod usage;
mod values;
mod version;
mod wakefulness;
mod workers;
mod writing;

pub use adopt::{AdoptError, Adopted, Adoption, description};
pub use composition::composition;
pub use error::MountError;
pub use image::ImageError;
pub use journal::{MountStats, OpenFiles, RequestEvent};
pub use modes::CacheMode;
pub use mount::{Mount, mount};
pub use options::{MountOptions, Users};
pub use source_lock::Holder;
pub use unmount::UnmountError;
pub use unstored::{NotStored, Unstored};
pub use usage::FileUse;
