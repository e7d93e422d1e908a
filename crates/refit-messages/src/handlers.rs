//! The handlers of messages, by kind.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::frame::{Header, Sort};
use crate::link::Link;
use crate::{InstanceId, Malformed, Message, MessageError, Peer, Refusal, Request, Way};

/// The time for which a peer on another host may be silent before it counts as lost.
const SILENCE: Duration = Duration::from_secs(1);

/// Decodes and handles a message of its type.
type Handle = Box<dyn Fn(&Arc<Link>, &Header, &[u8], &[u8]) -> Result<(), Malformed> + Send + Sync>;
/// A callback for each new peer.
type PeerCallback = Box<dyn Fn(&Peer) + Send + Sync>;
/// A callback for each lost peer.
type Lost = Box<dyn Fn(InstanceId, &str) + Send + Sync>;
/// A callback for each instance that was refused.
type Refused = Box<dyn Fn(&str, &Refusal) + Send + Sync>;

pub(crate) struct Handler {
    pub(crate) sort: Sort,
    pub(crate) way: Way,
    pub(crate) handle: Handle,
}

/// The configuration of a layer.
pub struct Builder {
    pub(crate) own: InstanceId,
    pub(crate) handlers: HashMap<u16, Handler>,
    pub(crate) found: Vec<PeerCallback>,
    pub(crate) lost: Vec<Lost>,
    refused: Vec<Refused>,
    pub(crate) silence: Duration,
    pub(crate) twice: Option<u16>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Builder {
    pub(crate) fn new(own: InstanceId) -> Self {
        let (handlers, found, lost, refused) = Default::default();
        Self { own, handlers, found, lost, refused, silence: SILENCE, twice: None }
    }

    /// Sets the handler for messages of a type. It runs on the thread that receives them, in the
    /// order in which they were sent, and must not wait.
    #[must_use]
    pub fn on<M: Message>(
        self,
        handle: impl Fn(InstanceId, M, &[u8]) + Send + Sync + 'static,
    ) -> Self {
        self.add::<M>(Sort::Message, move |link, _, message, body| {
            handle(link.id, message, body);
        })
    }

    /// Sets the handler for questions of a type. It runs on the thread that receives them, and may
    /// answer later from any other. `handle` must not wait.
    #[must_use]
    pub fn answer<Q: Request>(
        self,
        handle: impl Fn(InstanceId, Q, &[u8], Reply<Q>) + Send + Sync + 'static,
    ) -> Self {
        self.add::<Q>(Sort::Question, move |link, ticket, question, body| {
            let reply = Reply { link: Some(Arc::clone(link)), ticket, question: PhantomData };
            handle(link.id, question, body, reply);
        })
    }

    /// Sets a callback for each instance that becomes a peer, which runs before any of its messages
    /// is handled. It must not wait, and must not panic.
    #[must_use]
    pub fn found(mut self, handle: impl Fn(&Peer) + Send + Sync + 'static) -> Self {
        self.found.push(Box::new(handle));
        self
    }

    /// Sets a callback for each lost peer, with the reason. It runs once, after the last message of
    /// the peer has been handled. It is not called for peers from which
    /// [`Layer::close`](crate::Layer::close) disconnects.
    #[must_use]
    pub fn lost(mut self, handle: impl Fn(InstanceId, &str) + Send + Sync + 'static) -> Self {
        self.lost.push(Box::new(handle));
        self
    }

    /// Sets a callback for each instance that tried to join and was refused, with the place and the
    /// reason.
    #[must_use]
    pub fn refused(mut self, handle: impl Fn(&str, &Refusal) + Send + Sync + 'static) -> Self {
        self.refused.push(Box::new(handle));
        self
    }

    /// Sets how long a peer on another host may be silent before it counts as lost; the default is
    /// a second. Each side sends heartbeats five times in that period if it has no messages; both
    /// sides should use the same value.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit.max(Duration::from_millis(5));
        self
    }

    /// Reports that an instance which tried to join there was refused.
    pub(crate) fn refuse(&self, place: &str, why: &Refusal) {
        for handle in &self.refused {
            handle(place, why);
        }
    }

    fn add<M: Message>(
        mut self,
        sort: Sort,
        handle: impl Fn(&Arc<Link>, u64, M, &[u8]) + Send + Sync + 'static,
    ) -> Self {
        let handle: Handle = Box::new(move |link, header, message, body| {
            handle(link, header.ticket, decode(M::KIND, message)?, body);
            Ok(())
        });
        if self.handlers.insert(M::KIND, Handler { sort, way: M::WAY, handle }).is_some() {
            self.twice = Some(M::KIND);
        }
        self
    }
}

/// Decodes a whole message.
pub(crate) fn decode<T: DeserializeOwned>(kind: u16, bytes: &[u8]) -> Result<T, Malformed> {
    let undecodable = |why| Malformed::Undecodable { kind, why };
    match postcard::take_from_bytes(bytes).map_err(undecodable)? {
        (value, []) => Ok(value),
        _ => Err(undecodable(postcard::Error::DeserializeBadEncoding)),
    }
}

/// The destination of the answer to a question. Dropping it without an answer tells the asker that
/// there is none.
#[must_use = "somebody waits for the answer"]
pub struct Reply<Q: Request> {
    /// `None` once the answer is sent.
    link: Option<Arc<Link>>,
    ticket: u64,
    question: PhantomData<fn(Q)>,
}

impl<Q: Request> Reply<Q> {
    /// Sends the answer. An answer that is too long, or cannot be encoded, is reported to the asker
    /// as missing. An answer to a lost asker is discarded.
    pub fn say(mut self, answer: &Q::Answer, body: &[u8]) {
        let Ok(message) = postcard::to_stdvec(answer) else { return };
        if let Some(link) = &self.link {
            let header = Header::bare(Sort::Answer, self.ticket);
            match link.send(Q::WAY, header, &message, body) {
                Err(MessageError::TooLong(_)) => {}
                _ => self.link = None,
            }
        }
    }

    /// Returns the asker.
    pub fn to(&self) -> Option<InstanceId> {
        self.link.as_ref().map(|link| link.id)
    }
}

impl<Q: Request> Drop for Reply<Q> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            // A lost asker knows already.
            let _ = link.send(Q::WAY, Header::bare(Sort::Unanswered, self.ticket), &[], &[]);
        }
    }
}

impl<Q: Request> std::fmt::Debug for Reply<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("to", &self.to()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_decoded_whole_or_not_at_all() {
        assert_eq!(decode::<(u8, u8)>(5, &[1, 2]), Ok((1, 2)));
        for wrong in [&[1][..], &[1, 2, 3]] {
            let malformed = decode::<(u8, u8)>(5, wrong).unwrap_err();
            assert!(matches!(malformed, Malformed::Undecodable { kind: 5, .. }), "{malformed}");
        }
    }

    #[test]
    fn the_silence_is_long_enough_for_heartbeats() {
        let silence = |limit| Builder::new(InstanceId(1)).silence(limit).silence;
        assert_eq!(silence(Duration::ZERO), Duration::from_millis(5));
        assert_eq!(silence(Duration::from_secs(3)), Duration::from_secs(3));
        assert_eq!(Builder::new(InstanceId(1)).silence, SILENCE);
    }
}
