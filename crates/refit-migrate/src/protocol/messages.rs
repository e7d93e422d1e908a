//! What instances say to each other about threads that move.
//!
//! | who | says | |
//! |---|---|---|
//! | origin | [`Prepare`] | a thread's instructions will run there |
//! | origin | [`Expect`] | they are about to |
//! | origin | [`Arrive`] | a thread's instructions are to run there |
//! | origin | [`Recall`] | it is wanted back |
//! | origin | [`Invalidate`] | these addresses are not what they were |
//! | origin | [`InvalidateDone`] | now they are something else |
//! | origin | [`Follow`] | whom to ask what is at an address |
//! | origin | [`Teardown`] | a thread, or the whole program, is no more |
//! | host | [`ThreadReturned`] | the thread is back, and why |
//! | host | [`ThreadLost`] | the thread is lost |
//! | host | [`Retrieve`] | what is at this address? |
//! | host | [`Seek`] | the same, to those that may know as well |
//! | any of those | [`Found`] | what is there |
//! | host | [`Claim`] | who may change the memory, if hosts agree on that |
//! | host | [`Change`] | a thread makes a call that changes the memory |
//! | origin | [`Counted`] | what has been counted there? |
//!
//! And where hosts share no memory:
//!
//! | who | says | |
//! |---|---|---|
//! | host | [`Fetch`] | these pages are needed |
//! | host | [`OutOfMemory`] | it has no memory for another page: its threads are to come |
//! | origin | [`PageGrant`] | here they are |
//! | origin | [`PageRecall`] | this one is needed by another |
//! | origin | [`PageInvalidate`] | nobody needs these any more |
//! | host | [`SyscallRequest`] | a thread makes a call |
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

/// A distributed thread group (Katz 2014, §5.3): the instance that its process began at, the process's number there, and which program it runs:
/// what is said of a program that the process ran before is not said of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// Where it began.
    pub origin: u16,
    /// Its number there.
    pub process: u32,
    /// Tells the programs of one process apart.
    pub program: u64,
}

impl fmt::Display for GroupId {
    /// Origin, process and program, e.g. `0.4711.2`: the same at each node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, process, program } = self;
        write!(f, "{origin}.{process}.{program}")
    }
}

/// A descriptor that a process of the same host holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) process: u32,
    pub(crate) number: i32,
}

/// How a host has the group's memory, and its threads' shadows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MemoryMode {
    /// It shares memory with the origin.
    Borrow {
        /// The frames of the group's memory, where the address is the offset.
        frames: Descriptor,
        /// Where calls are left for the threads.
        slots: Descriptor,
        /// How many mappings are made unasked with one that is asked for.
        beside: u16,
    },
    /// It has messages only: pages move.
    Move {
        /// How many pages are asked for at once; 0: as many as turn out to be good.
        window: u16,
    },
}

/// What a host has to know of a group before its first thread comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupParams {
    /// Addresses that are refit's in every instance.
    pub(crate) window: Range<u64>,
    pub(crate) hold: MemoryMode,
    /// Whether threads go home for each of their calls.
    pub(crate) calls_home: bool,
    /// Who may change the memory.
    pub(crate) lock: Lock,
    /// Which replicas of the group these are: what those say that ended before concerns nobody.
    pub(crate) epoch: u64,
}

/// A thread will arrive, and runs on until then: what it needs there is to be ready. The answer is the number of the replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub(crate) group: GroupId,
    pub(crate) params: GroupParams,
    /// Its number at the origin.
    pub(crate) thread: u32,
}

/// A thread is about to arrive where it has been: who will have to do with it looks out for it, and does not have to be woken then.
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
    /// Counts the thread's moves: what is said of an earlier stay does not concern this one.
    pub(crate) residency: u64,
    /// Which slot is its own.
    pub(crate) slot: u32,
    /// Whether it stands behind a call that the shadow is still in.
    pub(crate) in_call: bool,
    /// How urgent it is, if that is known: policy, priority, niceness (sched(7)).
    pub(crate) urgency: Option<(i32, i32, i32)>,
    pub(crate) state: ThreadState,
}

/// A thread is wanted back, wherever in its program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recall {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) residency: u64,
}

/// What was at these addresses is so no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invalidate {
    pub(crate) group: GroupId,
    pub(crate) ranges: Vec<Range<u64>>,
    /// Until it is thawed only the origin answers for them.
    pub(crate) freezes: bool,
}

/// The change is made for which something had to be forgotten, or is not made at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InvalidateDone {
    pub(crate) group: GroupId,
}

/// Whom to ask what is at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Follow {
    pub(crate) group: GroupId,
    /// Nobody else but the origin is believed.
    pub(crate) members: BTreeSet<u16>,
    pub(crate) plan: Plan,
}

/// A thread has ended, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Teardown {
    pub(crate) group: GroupId,
    pub(crate) thread: Option<u32>,
}

/// ReturnReason a thread comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReturnReason {
    /// It was asked to.
    Recalled,
    /// It has asked to be there, and been told that it is.
    Asked,
    /// It makes a call that makes a task, or ends one, or changes all of its registers.
    Call,
    /// It does what only happens there: it touches what is not memory, divides by zero, has a breakpoint.
    Exception,
}

/// A thread is back.
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

/// A thread has touched an address that its host knows nothing of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retrieve {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) address: u64,
    /// Around it nothing is mapped there.
    pub(crate) gap: Range<u64>,
    /// So much else of what is frames in that gap may be told, too.
    pub(crate) beside: u16,
}

/// What is at an address, and near it.
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

/// What is at an address, as far as whoever is asked has it mapped? Who does not know passes it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seek {
    pub(crate) group: GroupId,
    /// Who is answered.
    pub(crate) asker: u16,
    /// Which of its questions it is.
    pub(crate) number: u64,
    pub(crate) thread: u32,
    pub(crate) address: u64,
    /// Whether pages move there.
    pub(crate) moves: bool,
    /// Who is asked after this one.
    pub(crate) left: Vec<u16>,
    /// Messages until now, with this one.
    pub(crate) messages: u32,
}

/// What is at an address that was sought; `None`: who was asked last does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) group: GroupId,
    pub(crate) number: u64,
    pub(crate) mapping: Option<Mapping>,
    /// Messages that it took, with this one.
    pub(crate) messages: u32,
}

/// What is at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mapping {
    /// Nothing that could be had elsewhere.
    Nothing,
    /// Frames of the group.
    Frames {
        range: Range<u64>,
        /// `PROT_*`.
        access: u32,
    },
    /// A file, unchanged.
    File {
        range: Range<u64>,
        access: u32,
        offset: u64,
        shared: bool,
        /// Where it can be opened.
        path: String,
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

/// What is said about who may change the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) group: GroupId,
    pub(crate) epoch: u64,
    pub(crate) word: LockMessage,
    pub(crate) time: u64,
}

/// Pages are needed: so many, from this one on, the first of them at least.
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

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PageContent {
    /// It is in the body.
    Data,
    /// It is all zeros.
    Zeros,
    /// Whoever has asked has it.
    AlreadyHeld,
}

/// Pages from this one on are granted; the body has those that are said to be in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageGrant {
    pub(crate) group: GroupId,
    pub(crate) page: u64,
    pub(crate) write: bool,
    pub(crate) pieces: Vec<PageContent>,
}

/// A page is needed elsewhere; whoever has it may keep it to be read, or not. The body of the answer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRecall {
    pub(crate) group: GroupId,
    pub(crate) page: u64,
    pub(crate) keeps: bool,
}

/// What is on these pages is needed no more.
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

/// The call that a thread stands in has returned this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SyscallResult {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) residency: u64,
    pub(crate) value: u64,
}

/// What has been counted of a group?
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
    Found = 20;
    Claim = 21;
    Expect = 22;
    OutOfMemory = 23;
}

impl GroupId {
    /// Where it began.
    pub(crate) fn home(self) -> InstanceId {
        InstanceId(self.origin)
    }
}
