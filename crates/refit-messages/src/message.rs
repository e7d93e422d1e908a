//! The types of messages, the numbers of instances, and the ways to a peer.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The maximum size of a message and its body together, in bytes.
pub const LIMIT: usize = 64 << 20;

/// The number of a kernel instance, unique among all that have messages with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub u16);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instance {}", self.0)
    }
}

/// The connection, of the two to a peer, that a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// For short messages for which a thread waits.
    Urgent,
    /// For long messages.
    Bulk,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Urgent, Self::Bulk];
}

/// A type that can be sent.
pub trait Message: Serialize + DeserializeOwned + 'static {
    /// The number of the type, unique among the types for which a layer has handlers.
    const KIND: u16;
    /// The connection that it takes.
    const WAY: Way;
}

/// A message that is answered. The answer takes the same way as the question.
pub trait Request: Message {
    /// The type of the answer.
    type Answer: Serialize + DeserializeOwned;
}
