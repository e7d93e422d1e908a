//! The commands of a coordinator's queue.

use std::io;
use std::sync::mpsc::Sender;
use std::time::Instant;

use refit_messages::{InstanceId, Reply};

use crate::error::MoveError;
use crate::origin::detach_attach::Restoration;
use crate::origin::tracer_event::TracerEvent;
use crate::protocol::messages::{Change, Retrieve, Seek, ThreadLost, ThreadReturned};

/// A request or notification for a coordinator.
pub(crate) enum Command {
    Event(TracerEvent),
    Move {
        thread: Option<u32>,
        to: InstanceId,
        done: Sender<Result<(), MoveError>>,
    },
    Spread {
        over: Vec<InstanceId>,
        done: Sender<Result<(), MoveError>>,
    },
    /// Have all threads stay here from now on, and say when they are.
    Lend(Sender<io::Result<()>>),
    /// Once for each `Lend`.
    LoanOver,
    /// With the registers restored already, if they are.
    ThreadReturned(Box<ThreadReturned>, Option<Restoration>),
    Retrieve(Retrieve, Reply<Retrieve>),
    Seek(Seek),
    /// Lookups may be planned differently from now on.
    Planned,
    Change(Change, Reply<Change>),
    ThreadLost(ThreadLost),
    /// A destination has no memory for another page.
    OutOfMemory(InstanceId),
    NodeLost(InstanceId, String),
}

/// A command, and the time at which it was sent.
pub(crate) struct QueuedCommand {
    pub(super) command: Command,
    pub(super) since: Instant,
}

impl QueuedCommand {
    pub(crate) fn now(command: Command) -> Self {
        Self { command, since: Instant::now() }
    }
}
