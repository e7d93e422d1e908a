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
    #[error(transparent)]
    Refused(#[from] MoveRefusal),
    /// A node does not own the memory that it needs.
    #[error("{0}")]
    NoMemory(String),
    /// The program or thread has ended meanwhile.
    #[error("it has ended")]
    Ended,
}

/// Why a thread that could move stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum MoveRefusal {
    /// The program has no free slot for its calls.
    #[error("too many of its threads run at other instances")]
    TooManyAway,
    /// Job control has stopped its process.
    #[error("it is stopped")]
    Stopped,
    /// The thread has been blocked in `vfork` for as long as a departure is tried.
    #[error("it waits in `vfork` for its child")]
    InVfork,
    /// A later request wants it at the instance with this number.
    #[error("a later request moves it to instance {0}")]
    WantedElsewhere(u16),
    /// The destination has no slot with the number that the origin gave.
    #[error("there is no such slot")]
    NoSuchSlot,
    /// The destination runs the thread already.
    #[error("it is already here")]
    AlreadyHere,
    /// The destination has not answered.
    #[error("{0}")]
    Unanswered(String),
    /// The system, at the origin or at the destination, has refused an operation.
    #[error("{text}")]
    System {
        /// The number of the error, if it is one of Linux's.
        errno: Option<i32>,
        /// The report of the error.
        text: String,
    },
}

impl From<io::Error> for MoveRefusal {
    fn from(error: io::Error) -> Self {
        Self::System { errno: error.raw_os_error(), text: error.to_string() }
    }
}

impl From<io::Error> for MoveError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::QuotaExceeded => Self::NoMemory(error.to_string()),
            _ => Self::Refused(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_text_and_the_number_of_an_error() {
        let missing = io::Error::from_raw_os_error(libc::ESRCH);
        let text = missing.to_string();
        let error = MoveError::from(missing);
        assert_eq!(error.to_string(), text);
        let errno = Some(libc::ESRCH);
        assert_eq!(error, MoveError::Refused(MoveRefusal::System { errno, text }));
        let full = io::Error::from(io::ErrorKind::QuotaExceeded);
        assert!(matches!(MoveError::from(full), MoveError::NoMemory(_)));
        let wanted = MoveError::from(MoveRefusal::WantedElsewhere(3));
        assert_eq!(wanted.to_string(), "a later request moves it to instance 3");
    }
}
