//! Messages between kernel instances, each of which is a process of its own.
//!
//! # Shape
//!
//! An instance has one [`Layer`], with a handler for each type of [`Message`]. It listens, and joins those that listen; from then on
//! both are *peers*, and either may [`send`](Layer::send) or [`ask`](Layer::ask). A message is a small value, encoded by postcard,
//! and a body of plain bytes.
//!
//! | module | what |
//! |---|---|
//! | [`MessageError`], [`Refusal`] | what can stand in the way |
//! | `frame` | the header of each message on its way |
//! | `hello` | what two instances say to each other before any message |
//! | `wire`, `socket` | one connection, read by one thread and written by another |
//! | `outbox` | what is on its way out: the order of it, and the limit on it |
//! | `tickets` | who waits for which answer |
//! | `link` | all of that for one peer, and its end |
//! | `handlers`, `receive` | what has come in, and who is called for it |
//! | `layer`, `connect`, `tcp`, `tls` | the whole, and how peers are made |
//!
//! # What holds
//!
//! - Messages of one peer and one [`Way`] arrive in the order in which they were sent. Each way has a connection of its own, so that
//!   nothing urgent waits for a long body.
//! - Handlers run on the thread that receives, one for each peer and way. They must not wait: [`Layer::ask`] is refused there
//!   ([`MessageError::InHandler`]), and what they send is queued without a limit that could stop them, so that two instances that answer each other
//!   with long bodies never wait for each other.
//! - Every other thread that sends waits while more than a megabyte is queued for that peer and way.
//! - A peer that ends, falls silent or says what cannot be understood is *lost*: every question to it fails at once, its
//!   last messages are handled, then the handlers of [`Builder::lost`] are called, once; after that its id may join again.
//!
//! # What it does not do
//!
//! Nothing is sent again: a message to a lost peer may or may not have been handled. Two instances that join each other at the same
//! time may both be refused as [`Refusal::Taken`]; let one of them join.

#![forbid(unsafe_code)]

mod connect;
mod error;
mod frame;
mod handlers;
mod hello;
mod layer;
mod link;
mod outbox;
mod receive;
mod socket;
mod tcp;
mod tickets;
mod tls;
mod wire;

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use error::{Malformed, MessageError, Refusal};
pub use frame::LIMIT;
pub use handlers::{Builder, Reply};
pub use layer::Layer;
pub use link::{Peer, Transport, WayCounts};
pub use receive::ENDED;
pub use tcp::Security;

/// The number of a kernel instance, unique among all that have messages with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId(pub u16);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instance {}", self.0)
    }
}

/// Which of the two connections to a peer a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// For what somebody waits for, and is short.
    Urgent,
    /// For what is long.
    Bulk,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Urgent, Self::Bulk];
}

/// What can be sent.
pub trait Message: Serialize + DeserializeOwned + 'static {
    /// Its number, another one for each type that a layer has a handler for.
    const KIND: u16;
    /// The connection that it takes.
    const WAY: Way;
}

/// A message that is answered. The answer takes the way of the question.
pub trait Request: Message {
    /// What is said to it.
    type Answer: Serialize + DeserializeOwned;
}

/// Reads bytes as a peer's, for nothing but to see that any can be read: how many messages they are, and what ends them.
#[doc(hidden)]
pub fn rehearse(bytes: &[u8]) -> (usize, String) {
    receive::rehearse(bytes)
}
