//! What instances say to each other about threads that move.
//!
//! | who | says | |
//! |---|---|---|
//! | origin | [`Arrive`] | a thread's instructions are to run there |
//! | origin | [`Recall`] | it is wanted back |
//! | origin | [`Forget`] | these addresses are not what they were |
//! | origin | [`Vanish`] | a thread, or the whole program, is no more |
//! | host | [`Came`] | the thread is back, and why |
//! | host | [`Fell`] | the thread is lost |
//! | host | [`Retrieve`] | what is at this address? |
//! | host | [`Change`] | a thread makes a call that changes the memory |

use std::ops::Range;

use refit_messages::{InstanceId, Message, Request, Way};
use serde::{Deserialize, Serialize};

use super::half::UserHalf;

/// A distributed thread group (Katz 2014, §5.3): the instance that its process began at, and the process's number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// Where it began.
    pub origin: u16,
    /// Its number there.
    pub process: u32,
}

/// A descriptor that a process of the same host holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    pub(crate) process: u32,
    pub(crate) number: i32,
}

/// What a host has to know of a group before its first thread comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Particulars {
    /// Addresses that are refit's in every instance.
    pub(crate) window: Range<u64>,
    /// The frames of the group's memory, where the address is the offset.
    pub(crate) frames: Descriptor,
    /// Where calls are left for the threads.
    pub(crate) slots: Descriptor,
    /// Whether threads go home for each of their calls.
    pub(crate) calls_home: bool,
}

/// A thread arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrive {
    pub(crate) group: GroupId,
    pub(crate) particulars: Particulars,
    /// Its number at the origin.
    pub(crate) thread: u32,
    /// Counts the thread's moves: what is said of an earlier stay does not concern this one.
    pub(crate) stay: u64,
    /// Which slot is its own.
    pub(crate) slot: u32,
    /// Whether it stands behind a call that the shadow is still in.
    pub(crate) in_call: bool,
    /// How nice it is (getpriority(2)).
    pub(crate) nice: i32,
    pub(crate) half: UserHalf,
}

/// A thread is wanted back, wherever in its program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recall {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) stay: u64,
}

/// What was at these addresses is so no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Forget {
    pub(crate) group: GroupId,
    pub(crate) ranges: Vec<Range<u64>>,
}

/// A thread has ended, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vanish {
    pub(crate) group: GroupId,
    pub(crate) thread: Option<u32>,
}

/// Why a thread comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    /// It was asked to.
    Recalled,
    /// It makes a call that makes a task, or ends one, or changes all of its registers.
    Call,
    /// It does what only happens there: it touches what is not memory, divides by zero, has a breakpoint.
    Exception,
}

/// A thread is back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Came {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) stay: u64,
    pub(crate) why: Why,
    /// Whether it stands behind a call whose result it has not seen.
    pub(crate) in_call: bool,
    pub(crate) half: UserHalf,
}

/// A thread cannot go on where it was: its registers are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fell {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) why: String,
}

/// A thread has touched an address that its host knows nothing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retrieve {
    pub(crate) group: GroupId,
    pub(crate) thread: u32,
    pub(crate) address: u64,
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
    Arrive = 1 => Result<(), String>;
    Recall = 2;
    Forget = 3 => ();
    Vanish = 4;
    Came = 5;
    Retrieve = 6 => Mapping;
    Change = 7 => i64;
    Fell = 8;
}

impl GroupId {
    /// Where it began.
    pub(crate) fn home(self) -> InstanceId {
        InstanceId(self.origin)
    }
}
