//! Why threads do not move, and why a node does not start.

use std::io;

use refit_messages::MessageError;
use refit_sys::cpu_latency;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum BootError {
    /// The processors cannot be kept from sleeping.
    #[error("{device}: {0}", device = cpu_latency::DEVICE)]
    Awake(#[source] io::Error),
    /// There is a node with its number; or a node that it joins does not answer, or refuses.
    #[error(transparent)]
    Messages(#[from] MessageError),
    /// The directory of nodes cannot be read.
    #[error(transparent)]
    System(#[from] io::Error),
}

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
