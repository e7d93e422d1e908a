//! Raw Linux for refit: thin, documented wrappers, each with a safe face.
//!
//! Does: tell the processor a thread runs on ([`processor`]), make one thread's plain stores visible to another
//! that asks ([`barrier`]), tell the time cheaply ([`clock`]), map memory that is a file
//! ([`memory`]), memory that processes share as atomic words ([`words`]; [`futex`] waits for one of them to change)
//! and libraries that are bytes ([`library`]), keep the latest of values that live forever ([`latest`]), tell whether
//! a process is still there ([`process`]),
//! tell what the scheduler does ([`perf`]), hold threads of other processes still ([`trace`]) and tell what is mapped
//! there ([`maps`]), start a program and stop it at its entry ([`launch`]),
//! give one thread an identity for files of its own ([`credentials`]). Does not: any policy; no module here knows what an
//! object or a file is.

pub mod auxv;
pub mod barrier;
pub mod clock;
pub mod credentials;
pub mod follow;
pub mod foreign;
pub mod futex;
mod ioctl;
pub mod latest;
pub mod launch;
pub mod layout;
pub mod library;
pub mod maps;
pub mod memfd;
pub mod memory;
pub mod pagemap;
pub mod perf;
pub mod pidfd;
pub mod process;
pub mod processor;
pub mod seccomp;
pub mod smaps;
pub mod step;
pub mod thread;
pub mod trace;
pub mod userfault;
pub mod words;
