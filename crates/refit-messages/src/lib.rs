//! Messages between kernel instances, each of which is a separate process.
//!
//! # Shape
//!
//! An instance has one [`Layer`], with a handler for each type of [`Message`]. It listens, and
//! joins others that listen; from then on both are *peers*, and either may [`send`](Layer::send) or
//! [`ask`](Layer::ask). A message is a small value, encoded by postcard, and a body of plain bytes.
//!
//! | module | contents |
//! |---|---|
//! | [`MessageError`], [`Refusal`] | errors |
//! | `message` | types of messages, the numbers of instances, and the ways to a peer |
//! | `frame` | the header of each message in transit |
//! | `hello` | the handshake of two instances before any message |
//! | `wire`, `socket`, `sink` | one connection, read by one thread and written by another |
//! | `outbox` | the queue of outgoing messages: its order, and its limit |
//! | `tickets` | questions that wait for their answers |
//! | `link` | the connections, queues and questions of one peer, and its loss |
//! | `handlers`, `receive`, `receiving` | received messages, and their handlers |
//! | `layer`, `connect`, `tcp`, `tls` | the layer, and connecting peers |
//!
//! # Guarantees
//!
//! - Messages of one peer and one [`Way`] arrive in the order in which they were sent. Each way has
//!   its own connection, so that urgent messages never wait for a long body.
//! - Handlers run on the receiving thread, one for each peer and way. They must not wait:
//!   [`Layer::ask`] is refused there ([`MessageError::InHandler`]), and the messages that they send
//!   are queued without waiting for room, so that two instances that answer each other with long
//!   bodies never wait for each other. A peer that leaves more than 512 MiB of them unread is lost.
//! - Every other thread that sends waits while more than a megabyte is queued for that peer and
//!   way.
//! - A peer that ends, falls silent or sends invalid data is *lost*: every question to it fails at
//!   once, and its last messages are handled. Then the handlers of [`Builder::lost`] are called,
//!   once. After that its number may join again.
//!
//! # Limitations
//!
//! Nothing is sent again: a message to a lost peer may or may not have been handled. Two instances
//! that join each other at the same time may both be refused as [`Refusal::Taken`]; only one of
//! them should join.

#![forbid(unsafe_code)]

mod connect;
mod error;
mod frame;
mod handlers;
mod hello;
mod layer;
mod link;
mod message;
mod outbox;
mod receive;
mod receiving;
mod sink;
mod socket;
mod tcp;
mod tickets;
mod tls;
mod wire;

pub use error::{ENDED, Malformed, MessageError, Refusal};
pub use handlers::{Builder, Reply};
pub use layer::Layer;
pub use link::{Peer, Transport, WayCounts};
pub use message::{InstanceId, LIMIT, Message, Request, Way};
#[doc(hidden)]
pub use receive::rehearse;
pub use tcp::Security;
