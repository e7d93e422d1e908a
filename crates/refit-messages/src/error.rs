//! What can stand in the way of a message.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::{InstanceId, Way};

/// Why there is no message, no answer or no connection.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It has not joined, nor been joined.
    #[error("{0} is not connected")]
    NotConnected(InstanceId),
    /// It was connected when this began.
    #[error("{peer} is lost: {why}")]
    Lost {
        /// Who.
        peer: InstanceId,
        /// What told of it.
        why: String,
    },
    /// The handler let go of its [`Reply`](crate::Reply) without saying anything.
    #[error("{0} does not answer this question")]
    Unanswered(InstanceId),
    /// It would have to wait on the thread that has to receive what it waits for.
    #[error("a handler of messages cannot wait for an answer; ask from another thread")]
    InHandler,
    /// The message and its body, in bytes.
    #[error("a message of {0} bytes is longer than {limit} bytes; send it in parts", limit = crate::LIMIT)]
    TooLong(usize),
    /// The value cannot be encoded.
    #[error("the message cannot be encoded: {0}")]
    Encoding(postcard::Error),
    /// Two handlers for one [`KIND`](crate::Message::KIND).
    #[error("two handlers for messages of kind {0}")]
    KindTwice(u16),
    /// The two instances do not go together.
    #[error("{place}: {why}")]
    Refused {
        /// Where the other one was found.
        place: String,
        /// Why not.
        why: Refusal,
    },
    /// Nothing would protect what is said there, and nobody has said that this is meant.
    #[error("{0} can be reached from other hosts: use certificates, or say that none are wanted")]
    Insecure(IpAddr),
    /// What is in a file is no certificate, or no key, or not for this.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// [`Layer::close`](crate::Layer::close) has been called.
    #[error("this instance has closed its messages")]
    Closed,
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl MessageError {
    /// Says what was tried when the system refused.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// Why two instances do not become peers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What it said first is nothing that an instance says.
    #[error("what answers there is no instance of refit")]
    Stranger,
    /// It speaks another version of this layer.
    #[error(
        "it speaks version {theirs} of the messages, this one version {ours}; run the same refit"
    )]
    Version {
        /// Its version.
        theirs: u16,
        /// The one of this instance.
        ours: u16,
    },
    /// It is another release, whose messages may have other shapes.
    #[error("it is refit {theirs}, this one refit {ours}; run the same refit")]
    Release {
        /// Its release.
        theirs: String,
        /// The one of this instance.
        ours: String,
    },
    /// It has the number of this instance.
    #[error("it calls itself {0}, as this one; give one of them another number")]
    SameId(InstanceId),
    /// This instance has a peer of that number already.
    #[error("there is another connection with {0} already")]
    Taken(InstanceId),
    /// It says so, and why.
    #[error("it refuses: {0}")]
    ByPeer(Box<Refusal>),
    /// It refuses, and this instance does not know the reason that it gives.
    #[error("it refuses, for reason {0}")]
    ByPeerFor(u8),
    /// A process of another user, where only one's own may join.
    #[error("its process belongs to user {0}, not to this one's")]
    User(u32),
    /// It did not do its part in time.
    #[error("it does not answer")]
    Silent,
    /// It has certificates, and this instance has none.
    #[error("it speaks TLS, and this instance was given no certificates")]
    Encrypted,
    /// TLS says so: of a certificate, most likely.
    #[error("no secure connection: {0}")]
    Tls(String),
    /// The connection ended while they were getting to know each other.
    #[error("it hung up")]
    HungUp,
    /// The memory that both are to share cannot be, or could be cut by either.
    #[error("there is no memory that both can share")]
    Rings,
    /// The second of the two connections is not by the one who made the first.
    #[error("a connection of its second kind came without its first")]
    Half,
}

/// What a peer sent and cannot be meant; it is lost by that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A header of no known sort.
    #[error("a header says it is of sort {0}")]
    Sort(u16),
    /// Longer than a message may be.
    #[error("a header announces {0} bytes")]
    TooLong(u64),
    /// A header whose sort has no contents, with contents.
    #[error("a header without contents announces some")]
    Contents,
    /// There is no handler.
    #[error("a message is of kind {0}, which nobody handles here")]
    Kind(u16),
    /// A message where a question is expected, or the other way round.
    #[error("a message of kind {0} is a question on one side only")]
    NotThatSort(u16),
    /// It came by the other connection.
    #[error("a message of kind {0} came the {1:?} way")]
    WrongWay(u16, Way),
    /// postcard cannot read it.
    #[error("a message of kind {kind} cannot be decoded: {why}")]
    Undecodable {
        /// Which.
        kind: u16,
        /// What postcard says.
        why: postcard::Error,
    },
    /// An answer that nobody waits for.
    #[error("an answer has ticket {0}, which nobody holds")]
    Ticket(u64),
}
