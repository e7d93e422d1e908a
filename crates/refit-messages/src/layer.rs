//! The layer: the peers of an instance, and joining.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;

use parking_lot::{Condvar, Mutex};

use refit_sys::ring::Rings;

use crate::frame::{self, Header, Sort};
use crate::handlers::{Builder, decode};
use crate::link::{Link, Place};
use crate::socket::Socket;
use crate::wire::Wire;
use crate::{
    InstanceId, Message, MessageError, Peer, Refusal, Request, Transport, Way, receive, receiving,
};

/// The messages of an instance. It lives until [`close`](Layer::close), since its threads hold it.
pub struct Layer {
    pub(crate) made: Builder,
    peers: Mutex<Peers>,
    /// Notified when a peer is removed.
    change: Condvar,
}

#[derive(Default)]
struct Peers {
    slots: BTreeMap<InstanceId, Slot>,
    listeners: Vec<Listener>,
    /// Urgent connections that wait for the second one of their joining, by token.
    halves: HashMap<(InstanceId, u64), SyncSender<Wire>>,
    closed: bool,
}

enum Slot {
    /// An instance that is about to become a peer.
    Joining,
    Here(Arc<Link>),
}

/// A place at which this instance can be joined.
pub(crate) struct Listener {
    pub(crate) socket: Arc<Socket>,
    /// The socket file, which is removed at the end.
    pub(crate) path: Option<PathBuf>,
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer").field("own", &self.own()).finish_non_exhaustive()
    }
}

impl Layer {
    /// Returns a builder for the instance with this number.
    pub fn builder(own: InstanceId) -> Builder {
        Builder::new(own)
    }

    pub(crate) fn new(made: Builder) -> Arc<Self> {
        Arc::new(Self { made, peers: Mutex::default(), change: Condvar::new() })
    }

    /// Returns the number of this instance.
    pub fn own(&self) -> InstanceId {
        self.made.own
    }

    /// Sends a message and a body to a peer. Waits while much is queued for it, unless the caller
    /// is a handler. Success does not mean that the message has arrived.
    ///
    /// # Errors
    /// Returns [`NotConnected`](MessageError::NotConnected), [`Lost`](MessageError::Lost),
    /// [`TooLong`](MessageError::TooLong) or [`Encoding`](MessageError::Encoding).
    pub fn send<M: Message>(
        &self,
        to: InstanceId,
        message: &M,
        body: &[u8],
    ) -> Result<(), MessageError> {
        let header = Header { kind: M::KIND, ..Header::bare(Sort::Message, 0) };
        let message = postcard::to_stdvec(message).map_err(MessageError::Encoding)?;
        self.link(to)?.send(M::WAY, header, &message, body)
    }

    /// Sends a question to a peer, and waits for the answer and its body, as long as the peer is
    /// connected. Spins for a moment before it sleeps.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send), [`Unanswered`](MessageError::Unanswered) or
    /// [`InHandler`](MessageError::InHandler).
    pub fn ask<Q: Request>(
        &self,
        to: InstanceId,
        question: &Q,
        body: &[u8],
    ) -> Result<(Q::Answer, Vec<u8>), MessageError> {
        if receiving::is_receiving() {
            return Err(MessageError::InHandler);
        }
        let question = postcard::to_stdvec(question).map_err(MessageError::Encoding)?;
        let link = self.link(to)?;
        let (answer, body) = link.ask(Q::WAY, Q::KIND, &question, body)?;
        match decode(Q::KIND, &answer) {
            Ok(answer) => Ok((answer, body)),
            Err(malformed) => {
                link.lose(&malformed.to_string());
                Err(link.error())
            }
        }
    }

    /// Returns all peers, in the order of their numbers.
    pub fn peers(&self) -> Vec<Peer> {
        let peers = self.peers.lock();
        let here = peers.slots.values().filter_map(|slot| match slot {
            Slot::Here(link) if link.lost().is_none() => Some(link.peer()),
            _ => None,
        });
        here.collect()
    }

    /// Disconnects from all peers, and stops accepting new ones. Unsent messages are lost; a final
    /// question ensures that everything before it has arrived. When this returns, no handler runs
    /// any more, unless the caller is one.
    pub fn close(&self) {
        let mut peers = self.peers.lock();
        peers.closed = true;
        for listener in peers.listeners.drain(..) {
            listener.socket.end();
            if let Some(path) = listener.path {
                // Another process may have removed it.
                let _ = std::fs::remove_file(path);
            }
        }
        peers.halves.clear();
        let here = |peers: &Peers| -> Vec<Arc<Link>> {
            let links = peers.slots.values().filter_map(|slot| match slot {
                Slot::Here(link) => Some(Arc::clone(link)),
                Slot::Joining => None,
            });
            links.collect()
        };
        let links = here(&peers);
        drop(peers);
        for link in links {
            link.lose("this instance has closed its connections");
        }
        if !receiving::is_receiving() {
            self.change.wait_while(&mut self.peers.lock(), |peers| !here(peers).is_empty());
        }
    }

    /// Returns whether it has been [closed](Self::close).
    pub fn closed(&self) -> bool {
        self.peers.lock().closed
    }

    /// Keeps a listener, which ends with the layer.
    pub(crate) fn keep(&self, listener: Listener) -> Result<(), MessageError> {
        let mut peers = self.peers.lock();
        if peers.closed {
            return Err(MessageError::Closed);
        }
        peers.listeners.push(listener);
        Ok(())
    }

    fn link(&self, id: InstanceId) -> Result<Arc<Link>, MessageError> {
        let peers = self.peers.lock();
        match peers.slots.get(&id) {
            Some(Slot::Here(link)) => Ok(Arc::clone(link)),
            _ if peers.closed => Err(MessageError::Closed),
            _ => Err(MessageError::NotConnected(id)),
        }
    }

    /// Reserves a number: no other instance becomes the peer with this number as long as the result
    /// lives.
    pub(crate) fn reserve(self: &Arc<Self>, id: InstanceId) -> Result<Reserved, Refusal> {
        let mut peers = self.peers.lock();
        if peers.closed {
            return Err(Refusal::HungUp);
        }
        if peers.slots.contains_key(&id) {
            return Err(Refusal::Taken(id));
        }
        peers.slots.insert(id, Slot::Joining);
        Ok(Reserved { layer: Arc::clone(self), id })
    }

    /// Registers the receiver of the second connection of a joining.
    pub(crate) fn expect(&self, id: InstanceId, token: u64, at: SyncSender<Wire>) {
        self.peers.lock().halves.insert((id, token), at);
    }

    /// Removes and returns the receiver of that connection.
    pub(crate) fn expected(&self, id: InstanceId, token: u64) -> Option<SyncSender<Wire>> {
        self.peers.lock().halves.remove(&(id, token))
    }

    /// Removes a peer whose last message has been handled.
    fn part(&self, link: &Link) {
        let why = link.lost().unwrap_or_default();
        if !self.closed() {
            for lost in &self.made.lost {
                // The panic has been reported already; the other handlers must still be called.
                let _ = catch_unwind(AssertUnwindSafe(|| lost(link.id, &why)));
            }
        }
        self.peers.lock().slots.remove(&link.id);
        self.change.notify_all();
    }
}

impl Builder {
    /// Creates the layer, which has no peers yet.
    ///
    /// # Errors
    /// [`MessageError::KindTwice`]: two types have the same number.
    pub fn start(self) -> Result<Arc<Layer>, MessageError> {
        match self.twice {
            Some(kind) => Err(MessageError::KindTwice(kind)),
            None => Ok(Layer::new(self)),
        }
    }
}

/// A reserved number, for which there is no peer yet.
pub(crate) struct Reserved {
    layer: Arc<Layer>,
    id: InstanceId,
}

impl Reserved {
    /// Makes the peer, and starts to receive its messages.
    pub(crate) fn fill(
        self,
        place: Place,
        transport: Transport,
        wires: [Wire; 2],
    ) -> Result<(), MessageError> {
        let rings = wires[0].rings.clone();
        let [(urgent, of_urgent), (bulk, of_bulk)] = wires.map(Wire::split);
        let link = Link::new(self.id, place, transport, [of_urgent, of_bulk]);
        {
            let mut peers = self.layer.peers.lock();
            if peers.closed {
                return Err(MessageError::Closed);
            }
            peers.slots.insert(self.id, Slot::Here(Arc::clone(&link)));
        }
        // Before any of its messages is received, and so before its loss can be reported.
        let peer = link.peer();
        self.layer.made.found.iter().for_each(|found| found(&peer));
        let receivers = Arc::new(AtomicUsize::new(Way::ALL.len()));
        for (way, from) in Way::ALL.into_iter().zip([urgent, bulk]) {
            let (layer, of, left) =
                (Arc::clone(&self.layer), Arc::clone(&link), Arc::clone(&receivers));
            let body = move || {
                of.lose(&receive::receive(&layer.made.handlers, &of, way, from));
                layer.leave(&of, &left);
            };
            if let Err(error) = spawn("refit-receive", body) {
                link.lose("there is no thread for its messages");
                self.layer.leave(&link, &receivers);
                // The other thread ends by itself, if it was started.
                if way == Way::Urgent {
                    self.layer.leave(&link, &receivers);
                }
                return Err(MessageError::system("make a thread")(error));
            }
        }
        match rings {
            Some(rings) => self.watch(&link, rings),
            None => self.beat(&link),
        }
    }

    /// Ends the rings when the peer's process ends, or this side is done with it.
    fn watch(&self, link: &Arc<Link>, rings: Arc<Rings>) -> Result<(), MessageError> {
        let (socket, at_once) = (Arc::clone(&link.way(Way::Urgent).socket), Arc::clone(&rings));
        let body = move || {
            socket.watch();
            rings.end();
        };
        spawn("refit-watch", body).map_err(|error| {
            link.lose("there is no thread to watch it");
            at_once.end();
            MessageError::system("make a thread")(error)
        })
    }

    /// Sends heartbeats to the peer.
    fn beat(&self, link: &Arc<Link>) -> Result<(), MessageError> {
        let (of, time) = (Arc::clone(link), self.layer.made.silence / 5);
        let body = move || {
            // Otherwise peers would take a busy host for a dead one.
            refit_sys::thread::go_before_others();
            while !of.lost_within(time) {
                let outbox = &of.way(Way::Urgent).outbox;
                // Messages in transit serve the same purpose.
                if outbox.idle() {
                    let beat = frame::Header::bare(Sort::Heartbeat, 0).encode();
                    let _ = outbox.put(beat.to_vec(), true);
                }
            }
        };
        spawn("refit-beat", body).map_err(|error| {
            link.lose("there is no thread for its heartbeats");
            MessageError::system("make a thread")(error)
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut peers = self.layer.peers.lock();
        if let Some(Slot::Joining) = peers.slots.get(&self.id) {
            peers.slots.remove(&self.id);
        }
    }
}

impl Layer {
    /// Records that one of the receiving threads of this peer has ended; the last one removes the
    /// peer.
    fn leave(&self, link: &Link, receivers: &AtomicUsize) {
        // AcqRel: the work of the others' handlers is complete before the end is reported.
        if receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.part(link);
        }
    }
}

/// Starts a thread that ends by itself.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}
