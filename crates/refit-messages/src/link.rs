//! The link to one peer, and its loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::frame::{self, Header, Sort};
use crate::outbox::Outbox;
use crate::socket::Socket;
use crate::tickets::{Outcome, Tickets};
use crate::{ENDED, InstanceId, MessageError, Way, receiving};

/// The transport of messages to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory, on the same host.
    Shared,
    /// TCP, to any host.
    Tcp,
}

/// The description of a peer, with its counters.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The number of the peer.
    pub id: InstanceId,
    /// The path or address at which one of the two listens.
    pub place: String,
    /// Whether this instance has joined the peer there, as opposed to having been joined.
    pub dialed: bool,
    /// The time at which it became a peer.
    pub since: Instant,
    /// The transport of messages to it.
    pub transport: Transport,
    /// The release of the peer, which is that of this instance.
    pub release: &'static str,
    /// The counters of the urgent way.
    pub urgent: WayCounts,
    /// The counters of the bulk way.
    pub bulk: WayCounts,
    /// Number of questions to it.
    pub asks: u64,
    /// Number of those that have no answer yet.
    pub waiting: usize,
    /// The longest time from a question to its answer.
    pub longest_wait: Duration,
}

/// The counters of one way, since the peer is connected. Answers are messages, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayCounts {
    /// Number of messages that were written to the connection.
    pub sent: u64,
    /// Their bytes, including headers.
    pub sent_bytes: u64,
    /// Number of messages received.
    pub received: u64,
    /// Their bytes, including headers.
    pub received_bytes: u64,
    /// Number of received messages whose time in transit is known: a sample of those from the same
    /// host.
    pub timed: u64,
    /// The mean of their times from sender to handler.
    pub mean_transit: Duration,
    /// The longest of those times.
    pub longest_transit: Duration,
}

/// One of this number of messages contains the time at which it was sent.
const TIMED: u64 = 16;

/// The place at which two instances became peers.
pub(crate) struct Place {
    /// The path or address.
    pub(crate) name: String,
    /// Whether this instance has joined the other one.
    pub(crate) dialed: bool,
}

/// The link to a peer, as long as it is in use.
pub(crate) struct Link {
    pub(crate) id: InstanceId,
    pub(crate) place: String,
    dialed: bool,
    since: Instant,
    pub(crate) transport: Transport,
    pub(crate) tickets: Tickets,
    /// Indexed by [`Way`].
    ways: [Outgoing; 2],
    /// The reason of its loss, once it is lost.
    lost: Mutex<Option<String>>,
    change: Condvar,
    asks: AtomicU64,
    longest_wait: AtomicU64,
}

/// One way to a peer.
pub(crate) struct Outgoing {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) socket: Arc<Socket>,
    pub(crate) counts: Counts,
}

/// The raw [`WayCounts`]; times are in nanoseconds.
#[derive(Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    timed: AtomicU64,
    transit: AtomicU64,
    longest_transit: AtomicU64,
}

impl Link {
    pub(crate) fn new(
        id: InstanceId,
        Place { name, dialed }: Place,
        transport: Transport,
        ways: [Outgoing; 2],
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            place: name,
            dialed,
            since: Instant::now(),
            transport,
            tickets: Tickets::default(),
            ways,
            lost: Mutex::default(),
            change: Condvar::new(),
            asks: AtomicU64::new(0),
            longest_wait: AtomicU64::new(0),
        })
    }

    pub(crate) fn way(&self, way: Way) -> &Outgoing {
        &self.ways[way as usize]
    }

    /// Sends a message. Waits for room, unless this thread is a receiving one.
    pub(crate) fn send(
        &self,
        way: Way,
        header: Header,
        message: &[u8],
        body: &[u8],
    ) -> Result<(), MessageError> {
        let counts = &self.way(way).counts;
        let timed = counts.sent.fetch_add(1, Relaxed).is_multiple_of(TIMED);
        let sent = if timed && self.transport != Transport::Tcp { now() } else { 0 };
        let bytes = frame::assemble(Header { sent, ..header }, message, body)
            .map_err(MessageError::TooLong)?;
        counts.sent_bytes.fetch_add(bytes.len() as u64, Relaxed);
        let put = self.way(way).outbox.put(bytes, !receiving::is_receiving());
        put.map_err(|_| self.error())
    }

    /// Sends a question, and waits for the answer and its body.
    pub(crate) fn ask(
        &self,
        way: Way,
        kind: u16,
        message: &[u8],
        body: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), MessageError> {
        let lost = |why| MessageError::Lost { peer: self.id, why };
        let (number, ticket) = self.tickets.open().map_err(lost)?;
        self.asks.fetch_add(1, Relaxed);
        let began = Instant::now();
        let header = Header { kind, ..Header::bare(Sort::Question, number) };
        if let Err(error) = self.send(way, header, message, body) {
            self.tickets.forget(number);
            return Err(error);
        }
        let outcome = ticket.wait();
        self.longest_wait.fetch_max(nanos(began.elapsed()), Relaxed);
        match outcome {
            Outcome::Answer(message, body) => Ok((message, body)),
            Outcome::Unanswered => Err(MessageError::Unanswered(self.id)),
            Outcome::Lost(why) => Err(lost(why)),
        }
    }

    /// Marks the peer as lost, which ends every wait for it. Only the first reason is kept.
    pub(crate) fn lose(&self, why: &str) {
        let mut lost = self.lost.lock();
        if lost.is_some() {
            return;
        }
        *lost = Some(why.to_owned());
        drop(lost);
        self.change.notify_all();
        self.tickets.close(why);
        for way in &self.ways {
            way.socket.end();
            way.outbox.close();
        }
    }

    /// Returns the reason of its loss, if it is lost.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.lock().clone()
    }

    /// Waits for up to `time`. Returns whether the peer is lost.
    pub(crate) fn lost_within(&self, time: Duration) -> bool {
        let mut lost = self.lost.lock();
        self.change.wait_while_for(&mut lost, |lost| lost.is_none(), time);
        lost.is_some()
    }

    /// Returns the error for operations after its end.
    pub(crate) fn error(&self) -> MessageError {
        let why = self.lost().unwrap_or_else(|| ENDED.to_owned());
        MessageError::Lost { peer: self.id, why }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer {
            id: self.id,
            place: self.place.clone(),
            dialed: self.dialed,
            since: self.since,
            transport: self.transport,
            release: crate::hello::RELEASE,
            urgent: self.way(Way::Urgent).counts.get(),
            bulk: self.way(Way::Bulk).counts.get(),
            asks: self.asks.load(Relaxed),
            waiting: self.tickets.waiting(),
            longest_wait: Duration::from_nanos(self.longest_wait.load(Relaxed)),
        }
    }
}

impl Counts {
    /// Counts a received message.
    pub(crate) fn receive(&self, header: &Header) {
        let bytes = frame::HEADER as u64 + u64::from(header.message) + u64::from(header.body);
        self.received.fetch_add(1, Relaxed);
        self.received_bytes.fetch_add(bytes, Relaxed);
        if header.sent != 0 {
            let transit = now().saturating_sub(header.sent);
            self.timed.fetch_add(1, Relaxed);
            self.transit.fetch_add(transit, Relaxed);
            self.longest_transit.fetch_max(transit, Relaxed);
        }
    }

    fn get(&self) -> WayCounts {
        let timed = self.timed.load(Relaxed);
        let mean = self.transit.load(Relaxed).checked_div(timed).unwrap_or(0);
        WayCounts {
            sent: self.sent.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            received: self.received.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            timed,
            mean_transit: Duration::from_nanos(mean),
            longest_transit: Duration::from_nanos(self.longest_transit.load(Relaxed)),
        }
    }
}

/// Returns the host's monotonic clock, in nanoseconds.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
