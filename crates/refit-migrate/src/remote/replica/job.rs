//! Work for the thread that traces a replica's leader.

use std::io;
use std::sync::mpsc::Sender;

use refit_messages::Reply;

use crate::protocol::messages::{Follow, Invalidate};

/// A job of a replica server.
pub(super) enum ReplicaJob {
    /// Make a task, or hand out the spare one; the sender receives its number.
    Thread(Sender<io::Result<u32>>),
    Invalidate(Invalidate, Reply<Invalidate>),
    InvalidateDone,
    Follow(Follow, Reply<Follow>),
    End,
}
