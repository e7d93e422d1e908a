//! Raw Linux for refit: thin, documented wrappers, each with a safe face.
//!
//! Does: tell the processor a thread runs on ([`processor`]), make one thread's plain stores visible to another
//! that asks ([`barrier`]), map memory that is a file ([`memory`]). Does not: any policy; no module here knows what an
//! object or a file is.

pub mod credentials;
pub mod barrier;
pub mod memory;
pub mod processor;
pub mod thread;
