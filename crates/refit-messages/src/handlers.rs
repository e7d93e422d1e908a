//! What is done with messages, by their kind.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::frame::{Header, Sort};
use crate::link::Link;
use crate::{InstanceId, Layer, Malformed, Message, MessageError, Peer, Refusal, Request, Way};

/// Silence of a peer on another host after which it counts as lost.
const SILENCE: Duration = Duration::from_secs(1);

/// What reads a message of its type and does with it what is to be done.
type Handle = Box<dyn Fn(&Arc<Link>, &Header, &[u8], &[u8]) -> Result<(), Malformed> + Send + Sync>;
/// What is told of a new peer.
type Found = Box<dyn Fn(&Peer) + Send + Sync>;
/// What is told of a lost peer.
type Lost = Box<dyn Fn(InstanceId, &str) + Send + Sync>;
/// What is told of one that was refused.
type Refused = Box<dyn Fn(&str, &Refusal) + Send + Sync>;

pub(crate) struct Handler {
    pub(crate) sort: Sort,
    pub(crate) way: Way,
    pub(crate) handle: Handle,
}

/// All that a layer is made of.
pub struct Builder {
    pub(crate) own: InstanceId,
    pub(crate) handlers: HashMap<u16, Handler>,
    pub(crate) found: Vec<Found>,
    pub(crate) lost: Vec<Lost>,
    refused: Vec<Refused>,
    pub(crate) silence: Duration,
    twice: Option<u16>,
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

    /// Has messages of a type handled: on the thread that receives them, in the order in which they were sent. `handle` must not wait.
    #[must_use]
    pub fn on<M: Message>(
        self,
        handle: impl Fn(InstanceId, M, &[u8]) + Send + Sync + 'static,
    ) -> Self {
        self.add::<M>(Sort::Message, move |link, _, message, body| {
            handle(link.id, message, body);
        })
    }

    /// Has questions of a type answered, by the thread that receives them or later by any other. `handle` must not wait.
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

    /// Has somebody told of each instance that becomes a peer, before any of its messages is
    /// handled. `handle` must not wait, and must not panic.
    #[must_use]
    pub fn found(mut self, handle: impl Fn(&Peer) + Send + Sync + 'static) -> Self {
        self.found.push(Box::new(handle));
        self
    }

    /// Has somebody told of each peer that is lost, and why: once, after the last of its messages has been handled. Not told of
    /// are those that [`Layer::close`] parts from.
    #[must_use]
    pub fn lost(mut self, handle: impl Fn(InstanceId, &str) + Send + Sync + 'static) -> Self {
        self.lost.push(Box::new(handle));
        self
    }

    /// Has somebody told of each that tried to join and was refused: where it tried, and why.
    #[must_use]
    pub fn refused(mut self, handle: impl Fn(&str, &Refusal) + Send + Sync + 'static) -> Self {
        self.refused.push(Box::new(handle));
        self
    }

    /// Counts a peer on another host as lost after so much silence, instead of a second. It says something five times in that time,
    /// even if it has nothing to say; both sides should be built with the same.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit.max(Duration::from_millis(5));
        self
    }

    /// Makes the layer, which has no peers yet.
    ///
    /// # Errors
    /// [`MessageError::KindTwice`]: of two types with the same number.
    pub fn start(self) -> Result<Arc<Layer>, MessageError> {
        match self.twice {
            Some(kind) => Err(MessageError::KindTwice(kind)),
            None => Ok(Layer::new(self)),
        }
    }

    /// Somebody who tried to join there has been refused.
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

/// Reads a whole message.
pub(crate) fn decode<T: DeserializeOwned>(kind: u16, bytes: &[u8]) -> Result<T, Malformed> {
    let undecodable = |why| Malformed::Undecodable { kind, why };
    match postcard::take_from_bytes(bytes).map_err(undecodable)? {
        (value, []) => Ok(value),
        _ => Err(undecodable(postcard::Error::DeserializeBadEncoding)),
    }
}

/// Where the answer to a question goes. Who lets go of it without an answer has the asker told that there is none.
#[must_use = "somebody waits for the answer"]
pub struct Reply<Q: Request> {
    /// Until something has been said.
    link: Option<Arc<Link>>,
    ticket: u64,
    question: PhantomData<fn(Q)>,
}

impl<Q: Request> Reply<Q> {
    /// Answers. An answer that is too long, or cannot be encoded, is told to the asker as none. What an asker that is lost is told,
    /// nobody hears.
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

    /// Who asks.
    pub fn to(&self) -> Option<InstanceId> {
        self.link.as_ref().map(|link| link.id)
    }
}

impl<Q: Request> Drop for Reply<Q> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            // If it is lost, it knows.
            let _ = link.send(Q::WAY, Header::bare(Sort::Unanswered, self.ticket), &[], &[]);
        }
    }
}

impl<Q: Request> std::fmt::Debug for Reply<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("to", &self.to()).finish_non_exhaustive()
    }
}
