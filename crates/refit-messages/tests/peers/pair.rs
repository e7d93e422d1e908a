//! Two instances in one process, and the messages of these tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use refit_messages::{Builder, InstanceId, LIMIT, Layer, Message, Request, Security, Way};
use serde::{Deserialize, Serialize};

/// A timeout that no operation reaches even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Any port of the loopback interface.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A message that is counted.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Note(pub(crate) u64);

impl Message for Note {
    const KIND: u16 = 1;
    const WAY: Way = Way::Urgent;
}

/// A request to double a number and to reverse the body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Double(pub(crate) u64);

impl Message for Double {
    const KIND: u16 = 2;
    const WAY: Way = Way::Urgent;
}

impl Request for Double {
    type Answer = u64;
}

/// A request to send the body back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Echo;

impl Message for Echo {
    const KIND: u16 = 3;
    const WAY: Way = Way::Bulk;
}

impl Request for Echo {
    type Answer = ();
}

/// A request that is not answered: 0 never, 1 dropped at once, 2 by a panic, 3 by an answer that is
/// too long.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Nothing(pub(crate) u8);

impl Message for Nothing {
    const KIND: u16 = 4;
    const WAY: Way = Way::Urgent;
}

impl Request for Nothing {
    type Answer = ();
}

/// A message that only one side handles.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unknown;

impl Message for Unknown {
    const KIND: u16 = 99;
    const WAY: Way = Way::Bulk;
}

/// The messages and events that one instance has received.
pub(crate) struct Heard {
    pub(crate) notes: Receiver<(InstanceId, u64, Vec<u8>)>,
    pub(crate) lost: Receiver<(InstanceId, String)>,
    pub(crate) refused: Receiver<String>,
}

/// Returns the builder of an instance that handles all of these messages.
pub(crate) fn builder(id: u16) -> (Builder, Heard) {
    let (note, notes) = mpsc::channel();
    let (loss, lost) = mpsc::channel();
    let (refusal, refused) = mpsc::channel();
    let kept = std::sync::Mutex::new(Vec::new());
    let builder = Layer::builder(InstanceId(id))
        .on(move |from, Note(count), body: &[u8]| {
            let _ = note.send((from, count, body.to_vec()));
        })
        .answer(|_, Double(number), body, reply| {
            let turned: Vec<u8> = body.iter().rev().copied().collect();
            reply.say(&(2 * number), &turned);
        })
        .answer(|_, Echo, body, reply| reply.say(&(), body))
        .answer(move |_, Nothing(how), _, reply| match how {
            0 => kept.lock().unwrap().push(reply),
            1 => drop(reply),
            3 => reply.say(&(), &vec![0; LIMIT + 1]),
            _ => panic!("as it was asked to"),
        })
        .lost(move |peer, why| {
            let _ = loss.send((peer, why.to_owned()));
        })
        .refused(move |_, why| {
            let _ = refusal.send(why.to_string());
        });
    (builder, Heard { notes, lost, refused })
}

/// Two peers on this host: 1 listens, 2 has joined. Both close when this is dropped.
pub(crate) struct Pair {
    pub(crate) one: Arc<Layer>,
    pub(crate) two: Arc<Layer>,
    pub(crate) by_one: Heard,
    pub(crate) by_two: Heard,
    pub(crate) path: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Pair {
    pub(crate) fn here() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one");
        let (one, by_one) = builder(1);
        let (two, by_two) = builder(2);
        let (one, two) = (one.start().unwrap(), two.start().unwrap());
        one.listen_here(&path).unwrap();
        two.join_here(&path).unwrap();
        Self { one, two, by_one, by_two, path, _directory: Some(directory) }.settled()
    }

    /// Connects two peers by TCP.
    pub(crate) fn by_tcp(security: [&Security; 2]) -> Self {
        let (one, by_one) = builder(1);
        let (two, by_two) = builder(2);
        // These tests are not about silent peers.
        let one = one.silence(LONG).start().unwrap();
        let two = two.silence(LONG).start().unwrap();
        let address = one.listen(LOOPBACK, security[0]).unwrap();
        two.join(&format!("localhost:{}", address.port()), security[1]).unwrap();
        Self { one, two, by_one, by_two, path: PathBuf::new(), _directory: None }.settled()
    }

    /// Waits until both sides know each other; the listening side learns it last.
    pub(crate) fn settled(self) -> Self {
        until(|| self.one.peers().len() == 1 && self.two.peers().len() == 1);
        self
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.one.close();
        self.two.close();
    }
}

pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG, "it does not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn next<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(LONG) {
        Ok(next) => next,
        Err(RecvTimeoutError::Timeout) => panic!("nothing comes"),
        Err(RecvTimeoutError::Disconnected) => panic!("nothing can come"),
    }
}
