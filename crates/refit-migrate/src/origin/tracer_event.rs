//! The events that the event loop sends to coordinators, and which coordinator a thread has.

use refit_tracer::ThreadMoveRequest;

/// An event for a coordinator. The task that it names is stopped unless the variant says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TracerEvent {
    /// A signal is about to be delivered to a thread that is away and has a handler for it.
    Signal(u32),
    /// A signal is about to be delivered to a thread that stops all threads of the process.
    StopSignal(u32),
    /// Such a signal was delivered to a thread: whether it stops the threads is decided.
    StopDelivered(u32),
    /// A thread that is away is stopped with its process.
    Stopped(u32),
    /// A thread that was stopped with its process was continued.
    Continued(u32),
    /// A thread is about to change the memory.
    BeforeChange(u32),
    /// A thread is about to limit its own calls.
    BeforeLimit(u32),
    /// A thread has changed the memory; it runs.
    Changed(u32),
    /// A thread that had returned for one call has made it.
    CallReturned(u32),
    /// A thread has made a call that did nothing, since pages of its words may be at another node.
    MissingPages(u32),
    /// A thread asks to run elsewhere.
    MoveRequested(ThreadMoveRequest),
    /// There is a new thread, or a process that a thread of this one has made.
    NewTask(u32),
    /// A process was made. The parent is stopped if the process gets a copy of the memory.
    Forked {
        /// The thread that made it.
        parent: u32,
        /// The process.
        child: u32,
        /// Whether it gets a copy of the memory.
        copy: bool,
        /// The address at which refit must write its number.
        word: Option<u64>,
    },
    /// A thread of a program whose pages move is about to exit: its memory is still its own.
    Exiting(u32),
    /// A thread has ended, and the kernel had to clear this word.
    ClearWord {
        /// The thread.
        thread: u32,
        /// The word's address.
        word: u64,
    },
    /// A thread has ended.
    Ended(u32),
    /// The process has executed another program; later events are not of this one.
    ProgramReplaced,
}

/// Where a thread of a program with a coordinator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// At its origin.
    Home,
    /// At its origin, for one system call.
    Visiting,
    /// At its origin, in a call that changes the memory.
    Changing,
    /// At another node.
    Away,
}

/// Identifies a coordinator. A process that executes another program gets another coordinator,
/// while the first may still be busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoordinatorId {
    /// The process.
    pub(crate) process: u32,
    /// Differs for all coordinators of a [`ThreadTable`].
    pub(super) number: u64,
}
