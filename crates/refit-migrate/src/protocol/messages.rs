//! The messages of nodes about threads that move.
//!
//! | sender | message | |
//! ---|---|---|
//! | origin | [`Prepare`] | a thread's instructions will run there |
//! | origin | [`Expect`] | a thread is about to arrive |
//! | origin | [`Arrive`] | a thread's instructions run there from now on |
//! | origin | [`Recall`] | a thread must return |
//! | origin | [`Invalidate`] | what is at these addresses changes |
//! | origin | [`InvalidateDone`] | it has changed |
//! | origin | [`Follow`] | which nodes to ask in lookups |
//! | origin | [`Teardown`] | a thread, or the whole program, has ended |
//! | destination | [`ThreadReturned`] | the thread has returned, and why |
//! | destination | [`ThreadLost`] | the thread is lost |
//! | destination | [`Retrieve`] | asks what is at an address |
//! | destination | [`Seek`] | the same, of nodes that may know as well |
//! | any of those | [`SeekAnswer`] | what is there |
//! | destination | [`Claim`] | who may change the memory, if destinations agree on that |
//! | destination | [`Change`] | a thread makes a call that changes the memory |
//! | origin | [`Counted`] | asks what has been counted there |
//!
//! Where hosts share no memory, also:
//!
//! | sender | message | |
//! ---|---|---|
//! | destination | [`Fetch`] | requests pages |
//! | destination | [`OutOfMemory`] | it has no memory for another page: its threads must return |
//! | origin | [`PageGrant`] | the pages |
//! | origin | [`PageRecall`] | another holder needs this page |
//! | origin | [`PageInvalidate`] | these pages are not needed any more |
//! | destination | [`SyscallRequest`] | a thread makes a call |
//! | origin | [`SyscallResult`] | its shadow has made it |

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use refit_messages::{InstanceId, Message, Request, Way};
use serde::{Deserialize, Serialize};

use crate::error::MoveError;
use crate::lookup::Plan;
use crate::mm_lock::{Lock, LockMessage};
use crate::protocol::thread_state::ThreadState;
use crate::stats::Tally;

/// Identifies a distributed thread group (Katz 2014, §5.3): the node at which its process began,
/// the process's number there, and the program that it runs. Messages about a program that the
/// process ran before do not concern this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// The node at which the process began.
    pub origin: u16,
    /// The process's number there.
    pub process: u32,
    /// Distinguishes the programs of one process.
    pub program: u64,
}

impl fmt::Display for GroupId {
    /// Origin, process and program, e.g. `0.4711.2`: the same at each node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, process, program } = self;
        write!(f, "{origin}.{process}.{program}")
    }
}

/// A descriptor of a process on the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) process: u32,
    pub(crate) number: i32,
}

/// The way in which a destination gets the group's memory, and reaches its threads' shadows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemoryMode {
    /// The destination shares memory with the origin.
    Borrow {
        /// The frames of the group's memory, in which the offset is the address.
        frames: Descriptor,
        /// Where calls are left for the shadows.
        slots: Descriptor,
        /// The number of mappings that are made unasked with one that is looked up (fault-around).
        beside: u16,
    },
    /// The destination has messages only: pages move.
    Move {
        /// The number of pages that are requested at once; 0: adaptively.
        window: u16,
    },
}

/// The parameters of a group that a destination needs before its first thread comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupParams {
    /// The addresses that are refit's at every node.
    pub(crate) window: Range<u64>,
    pub(crate) hold: MemoryMode,
    /// Whether threads return to the origin for each of their calls.
    pub(crate) calls_home: bool,
    /// The protocol by which nodes agree on which may change the memory.
    pub(crate) lock: Lock,
    /// Distinguishes the replicas of the group from earlier ones, whose messages concern nobody.
    pub(crate) epoch: u64,
}

/// A thread will arrive, and runs on until then: the destination prepares for it. The answer is the
/// process of the replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) group: GroupId,
    pub(crate) params: GroupParams,
    /// Its number at the origin.
    pub(crate) thread: u32,
}

/// A thread is about to arrive where it has been: its executor spins for it, and need not be woken
/// then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expect {
    pub(crate) group: GroupId,
    /// Its number at the origin.
    pub(crate) thread: u32,
}

/// A thread arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrive {
    pub(crate) group: GroupId,
    pub(crate) params: GroupParams,
    /// Its number at the origin.
    pub(crate) thread: u32,
    /// The number of the thread's residency: messages of an earlier one do not concern this one.
    pub(crate) residency: u64,
    /// The slot in which its calls are left.
    pub(crate) slot: u32,
    /// Whether it stands behind a call that the shadow is still in.
    pub(crate) in_call: bool,
    /// Its scheduling urgency, if that is known: policy, priority, niceness (sched(7)).
    pub(crate) urgency: Option<(i32, i32, i32)>,
    pub(crate) state: ThreadState,
}

/// A thread must return, wherever in its program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recall {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) residency: u64,
}

/// The memory at these addresses changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invalidate {
    pub(crate) group: GroupId,
    pub(crate) ranges: Vec<Range<u64>>,
    /// Whether only the origin answers lookups of them until [`InvalidateDone`].
    pub(crate) freezes: bool,
}

/// The change for which ranges were invalidated is made, or is not made at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InvalidateDone {
    pub(crate) group: GroupId,
}

/// Which nodes to ask in lookups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Follow {
    pub(crate) group: GroupId,
    /// No node but these and the origin is believed.
    pub(crate) members: BTreeSet<u16>,
    pub(crate) plan: Plan,
}

/// A thread has ended, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Teardown {
    pub(crate) group: GroupId,
    pub(crate) thread: Option<u32>,
}

/// Why a thread returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReturnReason {
    /// The thread was recalled.
    Recalled,
    /// The thread has asked to be at its origin, and was answered that it is.
    Asked,
    /// The thread makes a call that makes or ends a task, or changes all of its registers.
    Call,
    /// The thread does what only its origin can handle: it touches unmapped memory, divides by
    /// zero, has a breakpoint.
    Exception,
}

/// A thread has returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadReturned {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) residency: u64,
    pub(crate) why: ReturnReason,
    /// Whether it stands behind a call whose result it has not seen.
    pub(crate) in_call: bool,
    pub(crate) state: ThreadState,
}

/// A thread cannot go on where it was: its registers are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadLost {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) why: String,
}

/// A thread has touched an address that its node has not mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retrieve {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) address: u64,
    /// The range around the address in which nothing is mapped there.
    pub(crate) gap: Range<u64>,
    /// The number of other frames in that gap that the answer may have, for fault-around.
    pub(crate) beside: u16,
}

/// The mapping at an address, and frames near it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retrieved {
    pub(crate) mapping: Mapping,
    pub(crate) beside: Vec<Frames>,
}

/// Frames of the group that are one mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frames {
    pub(crate) range: Range<u64>,
    /// `PROT_*`.
    pub(crate) access: u32,
}

/// Asks a node what it has mapped at an address. A node that has nothing passes the question on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seek {
    pub(crate) group: GroupId,
    /// The node that receives the answer.
    pub(crate) asker: u16,
    /// The number of the lookup at that node.
    pub(crate) number: u64,
    pub(crate) thread: u32,
    pub(crate) address: u64,
    /// Whether pages move there.
    pub(crate) moves: bool,
    /// The nodes to ask after this one.
    pub(crate) left: Vec<u16>,
    /// The number of messages so far, this one included.
    pub(crate) messages: u32,
}

/// The mapping at the address of a [`Seek`]; `None`: the node that was asked last does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeekAnswer {
    pub(crate) group: GroupId,
    pub(crate) number: u64,
    pub(crate) mapping: Option<Mapping>,
    /// The number of messages that it took, this one included.
    pub(crate) messages: u32,
}

/// The mapping at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mapping {
    /// Nothing that could be mapped elsewhere.
    Nothing,
    /// Frames of the group.
    Frames {
        range: Range<u64>,
        /// `PROT_*`.
        access: u32,
    },
    /// A file.
    File {
        range: Range<u64>,
        access: u32,
        offset: u64,
        shared: bool,
        /// The path at which it can be opened.
        path: String,
        /// Pages that differ from the file's: code that refit has changed.
        written: Vec<Range<u64>>,
        /// A task that has these pages.
        task: u32,
    },
}

/// A thread makes a call that changes the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) number: u64,
    pub(crate) arguments: [u64; 6],
    pub(crate) stack: u64,
}

/// A message of the lock on the group's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) group: GroupId,
    pub(crate) epoch: u64,
    pub(crate) word: LockMessage,
    pub(crate) time: u64,
}

/// Requests `count` pages from this one on, the first of them at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetch {
    pub(crate) group: GroupId,
    pub(crate) page: u64,
    pub(crate) count: u16,
    pub(crate) write: bool,
}

/// A page is needed, and there is no memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutOfMemory {
    pub(crate) group: GroupId,
}

/// The content of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PageContent {
    /// The page is in the body.
    Data,
    /// The page is all zeros.
    Zeros,
    /// The requester has it.
    AlreadyHeld,
}

/// Grants pages from this one on; the body has those whose content is [`PageContent::Data`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageGrant {
    pub(crate) group: GroupId,
    pub(crate) page: u64,
    pub(crate) write: bool,
    pub(crate) pieces: Vec<PageContent>,
}

/// Takes a page for another holder; the present one `keeps` it for reading, or not. The body of the
/// answer has the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRecall {
    pub(crate) group: GroupId,
    pub(crate) page: u64,
    pub(crate) keeps: bool,
}

/// The content of these pages is not needed any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageInvalidate {
    pub(crate) group: GroupId,
    pub(crate) ranges: Vec<Range<u64>>,
}

/// A thread makes a call, with this stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SyscallRequest {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) residency: u64,
    pub(crate) number: u64,
    pub(crate) arguments: [u64; 6],
    pub(crate) stack: u64,
}

/// The result of the call that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SyscallResult {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) residency: u64,
    pub(crate) value: u64,
}

/// Asks what has been counted of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) group: GroupId,
}

macro_rules! messages {
    ($($name:ident = $kind:literal $(=> $answer:ty)?;)*) => {
        $(
            impl Message for $name {
                const KIND: u16 = $kind;
                const WAY: Way = Way::Urgent;
            }
            $(impl Request for $name {
                type Answer = $answer;
            })?
        )*
    };
}

messages! {
    Arrive = 1 => Result<(), MoveError>;
    Recall = 2;
    Invalidate = 3 => ();
    Teardown = 4;
    ThreadReturned = 5;
    Retrieve = 6 => Retrieved;
    Change = 7 => i64;
    ThreadLost = 8;
    Fetch = 9;
    PageGrant = 10;
    PageRecall = 11 => Option<PageContent>;
    PageInvalidate = 12 => ();
    SyscallRequest = 13;
    SyscallResult = 14;
    Counted = 15 => Option<Tally>;
    Prepare = 16 => Result<u32, MoveError>;
    InvalidateDone = 17;
    Follow = 18 => ();
    Seek = 19;
    SeekAnswer = 20;
    Claim = 21;
    Expect = 22;
    OutOfMemory = 23;
}

impl GroupId {
    /// Returns the node at which the process began.
    pub(crate) fn home(self) -> InstanceId {
        InstanceId(self.origin)
    }
}
