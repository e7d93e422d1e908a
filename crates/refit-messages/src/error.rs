//! The errors of messages and connections.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::{InstanceId, Way};

/// The reason for the loss of a peer that has ended or hung up.
pub const ENDED: &str = "its connection has ended";

/// The reason that there is no message, no answer or no connection.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// No such peer has joined, or been joined.
    #[error("{0} is not connected")]
    NotConnected(InstanceId),
    /// The peer was connected when the operation began.
    #[error("{peer} is lost: {why}")]
    Lost {
        /// The peer.
        peer: InstanceId,
        /// The reason of its loss.
        why: String,
    },
    /// The handler has dropped its [`Reply`](crate::Reply) without an answer.
    #[error("{0} does not answer this question")]
    Unanswered(InstanceId),
    /// The caller is a thread that receives, and would have to wait for its own work.
    #[error("a handler of messages cannot wait for an answer; ask from another thread")]
    InHandler,
    /// The message and its body are too long together, in bytes.
    #[error("a message of {0} bytes is longer than {limit} bytes; send it in parts", limit = crate::LIMIT)]
    TooLong(usize),
    /// The value cannot be encoded.
    #[error("the message cannot be encoded: {0}")]
    Encoding(postcard::Error),
    /// Two handlers were given for one [`KIND`](crate::Message::KIND).
    #[error("two handlers for messages of kind {0}")]
    KindTwice(u16),
    /// The two instances are not compatible.
    #[error("{place}: {why}")]
    Refused {
        /// The place of the other instance.
        place: String,
        /// The reason.
        why: Refusal,
    },
    /// The connection would be unprotected, and the configuration does not allow that.
    #[error(
        "{0} can be reached from other hosts; use certificates, or allow connections without them"
    )]
    Insecure(IpAddr),
    /// A file does not contain a certificate or key, or not one for this purpose.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// [`Layer::close`](crate::Layer::close) has been called.
    #[error("this instance has closed its connections")]
    Closed,
    /// The system has refused an operation.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl MessageError {
    /// Returns a function that adds the operation to the system's error.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// The reason that two instances do not become peers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its first bytes are not those of an instance.
    #[error("the peer is not an instance of refit")]
    Stranger,
    /// The instance uses another version of this layer.
    #[error(
        "it speaks version {theirs} of the messages, this instance version {ours}; run the same refit"
    )]
    Version {
        /// Its version.
        theirs: u16,
        /// The one of this instance.
        ours: u16,
    },
    /// The instance is of another release, whose messages may have other formats.
    #[error("it is refit {theirs}, this instance is refit {ours}; run the same refit")]
    Release {
        /// Its release.
        theirs: String,
        /// The one of this instance.
        ours: String,
    },
    /// The instance has the number of this one.
    #[error("it calls itself {0}, like this instance; give one of them another number")]
    SameId(InstanceId),
    /// This instance has a peer of that number already.
    #[error("there is another connection with {0} already")]
    Taken(InstanceId),
    /// The other side refuses, for this reason.
    #[error("it refuses: {0}")]
    ByPeer(Box<Refusal>),
    /// The other side refuses, for a reason that this instance does not know.
    #[error("it refuses, for reason {0}")]
    ByPeerFor(u8),
    /// The instance is a process of another user, but only those of the same user may join.
    #[error("its process belongs to user {0}, not to the user of this instance")]
    User(u32),
    /// The other side did not complete its part of the handshake in time.
    #[error("it does not answer")]
    Silent,
    /// The other side uses certificates, and this instance has none.
    #[error("it requires TLS, but this instance has no certificates")]
    Encrypted,
    /// TLS reports an error, most likely of a certificate.
    #[error("no secure connection: {0}")]
    Tls(String),
    /// The connection ended during the handshake.
    #[error("it closed the connection")]
    HungUp,
    /// The shared memory cannot be created, or one side could shrink it.
    #[error("the instances have no memory that both can share")]
    Rings,
    /// The second of the two connections does not belong to a first one.
    #[error("its second connection came without its first")]
    Half,
}

/// Data from a peer that is invalid, so that the peer is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A header of an unknown sort.
    #[error("a header says it is of sort {0}")]
    Sort(u16),
    /// A message longer than the limit.
    #[error("a header announces {0} bytes")]
    TooLong(u64),
    /// A header with contents, whose sort has none.
    #[error("a header without contents announces some")]
    Contents,
    /// There is no handler for the message.
    #[error("a message is of kind {0}, which this instance does not handle")]
    Kind(u16),
    /// A message where a question is expected, or vice versa.
    #[error("a message of kind {0} is a question on one side only")]
    NotThatSort(u16),
    /// The message arrived on the other connection.
    #[error("a message of kind {0} came the {1:?} way")]
    WrongWay(u16, Way),
    /// postcard cannot decode it.
    #[error("a message of kind {kind} cannot be decoded: {why}")]
    Undecodable {
        /// The kind of the message.
        kind: u16,
        /// postcard's error.
        why: postcard::Error,
    },
    /// An answer for which no caller waits.
    #[error("an answer has ticket {0}, which no question has")]
    Ticket(u64),
}
