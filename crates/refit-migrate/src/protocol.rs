//! The messages of nodes about threads that move, and a thread's state as it travels.

pub(crate) mod messages;
pub(crate) mod thread_state;
