//! Why threads do not move.

use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a thread did not move; it goes on where it was.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum MoveError {
    /// No program of this node has such a process.
    #[error("no program that began at this instance has a process {0}")]
    NoProcess(u32),
    /// The program has no such thread.
    #[error("the program has no thread {0}")]
    NoThread(u32),
    /// There is no such node.
    #[error("there is no instance {0}")]
    NoInstance(u16),
    /// The node was there and is lost; it may come back.
    #[error("instance {number} is lost: {why}")]
    Absent {
        /// The node's number.
        number: u16,
        /// The report of the loss.
        why: String,
    },
    /// The program cannot migrate.
    #[error("it is not movable: {0}")]
    NotMovable(String),
    /// The move failed for this reason.
    #[error("{0}")]
    Refused(String),
    /// A node does not own the memory that it needs.
    #[error("{0}")]
    NoMemory(String),
    /// The program or thread has ended meanwhile.
    #[error("it has ended")]
    Ended,
}

impl From<io::Error> for MoveError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::QuotaExceeded => Self::NoMemory(error.to_string()),
            _ => Self::Refused(error.to_string()),
        }
    }
}
