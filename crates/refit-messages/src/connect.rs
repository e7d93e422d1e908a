//! Connecting peers: one listens, the other joins.
//!
//! On one host, the joining side creates rings in shared memory, and passes them to the other side
//! over the socket on which the two have connected. The socket stays open and reports the end of
//! either process. Between hosts there are two connections, the urgent one first; a token chosen by
//! the joining side identifies connections that belong together.

use std::hash::BuildHasher;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use refit_sys::ring::Rings;

use crate::hello::{self, Hello};
use crate::layer::{Listener, Reserved, spawn};
use crate::link::Place;
use crate::socket::Socket;
use crate::wire::{RINGS, Wire};
use crate::{InstanceId, Layer, MessageError, Refusal, Transport, Way};

/// The time for which one side waits for each step of the other before they are peers.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of connections in their handshake at a time.
const MAX_HANDSHAKES: usize = 64;

impl Layer {
    /// Lets instances of this host join through a Unix socket, which is created at `path`, from
    /// processes of the same user or of root. A socket on which no process listens any more is
    /// replaced.
    ///
    /// # Errors
    /// [`System`](MessageError::System): the socket cannot be created, or a process listens on it;
    /// [`Closed`](MessageError::Closed).
    pub fn listen_here(self: &Arc<Self>, path: &Path) -> Result<(), MessageError> {
        let what = || format!("listen at {}", path.display());
        let listener = bind(path).map_err(MessageError::system(what()))?;
        let own = listener.try_clone().map_err(MessageError::system(what()))?;
        let socket = Socket::new(own);
        self.keep(Listener { socket, path: Some(path.to_owned()) })?;
        let place = path.display().to_string();
        self.accept(Transport::Shared, move || {
            Ok((Wire::plain(Socket::new(listener.accept()?.0)), place.clone()))
        })
    }

    /// Joins an instance of this host that listens at `path`.
    ///
    /// # Errors
    /// [`System`](MessageError::System): no process listens there;
    /// [`Refused`](MessageError::Refused).
    pub fn join_here(self: &Arc<Self>, path: &Path) -> Result<(), MessageError> {
        let place = path.display().to_string();
        let refused = |why| MessageError::Refused { place: place.clone(), why };
        let system = || MessageError::system(format!("join {}", path.display()));
        let stream = UnixStream::connect(path).map_err(system())?;
        let mut wire = Wire::plain(Socket::new(stream));
        let (reserved, id, _) = self.introduce(&mut wire, &place)?;
        let rings = Rings::new(RINGS).map_err(system())?;
        wire.socket.give(rings.as_fd()).map_err(system())?;
        hello::judge(&mut wire, Ok(()), id, self.own()).map_err(refused)?;
        let wires = Wire::shared(&wire.socket, &rings, true);
        self.prepare(&wires, Transport::Shared).map_err(system())?;
        reserved.fill(Place { name: place, dialed: true }, Transport::Shared, wires)
    }

    /// Accepts connections until the layer is closed.
    pub(crate) fn accept(
        self: &Arc<Self>,
        transport: Transport,
        mut accept: impl FnMut() -> io::Result<(Wire, String)> + Send + 'static,
    ) -> Result<(), MessageError> {
        let layer = Arc::clone(self);
        let greeted = Arc::new(AtomicUsize::new(0));
        let body = move || {
            loop {
                let accepted = accept();
                if layer.closed() {
                    return;
                }
                let Ok((wire, place)) = accepted else {
                    // Most likely there are no free descriptors; there may be some later.
                    thread::sleep(Duration::from_millis(50));
                    continue;
                };
                if greeted.fetch_add(1, Ordering::Relaxed) >= MAX_HANDSHAKES {
                    greeted.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (layer, counted) = (Arc::clone(&layer), Arc::clone(&greeted));
                let welcome = move || {
                    let welcomed = layer.welcome(wire, &place, transport);
                    counted.fetch_sub(1, Ordering::Relaxed);
                    if let Err(MessageError::Refused { why, .. }) = welcomed {
                        layer.made.refuse(&place, &why);
                    }
                };
                if spawn("refit-welcome", welcome).is_err() {
                    greeted.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        spawn("refit-listen", body).map_err(MessageError::system("make a thread"))
    }

    /// Makes a peer of an instance that has connected.
    fn welcome(
        self: &Arc<Self>,
        mut wire: Wire,
        place: &str,
        transport: Transport,
    ) -> Result<(), MessageError> {
        let refused = |why| MessageError::Refused { place: place.to_owned(), why };
        let system = || MessageError::system(format!("be joined at {place}"));
        let place = || Place { name: place.to_owned(), dialed: false };
        wire.socket.set_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(system())?;
        let user = match transport {
            Transport::Shared => wire.socket.user().map_err(system()).map(known_user)?,
            Transport::Tcp => Ok(()),
        };
        let own = self.own();
        let hello = hello::greet(&mut wire, &Hello::new(own, Way::Urgent, 0)).map_err(refused)?;
        if transport == Transport::Shared {
            let first = if hello.way == Way::Urgent { user } else { Err(Refusal::Half) };
            let reserved = first.and_then(|()| self.reserve(hello.id));
            let reserved = hello::judge(&mut wire, reserved, hello.id, own).map_err(refused)?;
            let rings = wire.socket.take().and_then(|fd| Rings::open(fd, RINGS));
            let rings = rings.map_err(|_| Refusal::Rings);
            let rings = hello::judge(&mut wire, rings, hello.id, own).map_err(refused)?;
            let wires = Wire::shared(&wire.socket, &rings, false);
            self.prepare(&wires, transport).map_err(system())?;
            return reserved.fill(place(), transport, wires);
        }
        if hello.way == Way::Bulk {
            let expected = self.expected(hello.id, hello.token).ok_or(Refusal::Half);
            let first = hello::judge(&mut wire, expected, hello.id, own).map_err(refused)?;
            // The receiver may have given up just now; then this connection ends, too.
            let _ = first.send(wire);
            return Ok(());
        }
        let (first, second) = mpsc::sync_channel(1);
        let reserved = user.and_then(|()| self.reserve(hello.id));
        if reserved.is_ok() {
            self.expect(hello.id, hello.token, first);
        }
        let joined = hello::judge(&mut wire, reserved, hello.id, own).and_then(|reserved| {
            Ok((reserved, second.recv_timeout(HANDSHAKE_TIMEOUT).map_err(|_| Refusal::Silent)?))
        });
        // In case no second connection has arrived.
        self.expected(hello.id, hello.token);
        let (reserved, bulk) = joined.map_err(refused)?;
        let wires = [wire, bulk];
        self.prepare(&wires, transport).map_err(system())?;
        reserved.fill(place(), transport, wires)
    }

    /// Joins the instance at the other end of the connections that `dial` makes.
    pub(crate) fn join_by(
        self: &Arc<Self>,
        place: String,
        transport: Transport,
        dial: impl Fn() -> Result<Wire, MessageError>,
    ) -> Result<(), MessageError> {
        let refused = |why| MessageError::Refused { place: place.clone(), why };
        let system = || MessageError::system(format!("join {place}"));
        let own = self.own();
        let mut urgent = dial()?;
        let (reserved, id, token) = self.introduce(&mut urgent, &place)?;
        let mut bulk = dial()?;
        bulk.socket.set_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(system())?;
        let again = hello::greet(&mut bulk, &Hello::new(own, Way::Bulk, token)).map_err(refused)?;
        let same = if again.id == id { Ok(()) } else { Err(Refusal::Half) };
        hello::judge(&mut bulk, same, again.id, own).map_err(refused)?;
        let wires = [urgent, bulk];
        self.prepare(&wires, transport).map_err(system())?;
        reserved.fill(Place { name: place.clone(), dialed: true }, transport, wires)
    }

    /// Introduces this instance to one that it joins. Returns the reservation of the other one's
    /// number, the number, and the token of this joining.
    fn introduce(
        self: &Arc<Self>,
        wire: &mut Wire,
        place: &str,
    ) -> Result<(Reserved, InstanceId, u64), MessageError> {
        let refused = |why| MessageError::Refused { place: place.to_owned(), why };
        let own = self.own();
        let outcome = wire.socket.set_timeout(Some(HANDSHAKE_TIMEOUT));
        outcome.map_err(MessageError::system(format!("join {place}")))?;
        // No other process can guess the token: the system seeds its hasher.
        let token = std::hash::RandomState::new().hash_one(own.0);
        let hello = hello::greet(wire, &Hello::new(own, Way::Urgent, token)).map_err(refused)?;
        let reserved = self.reserve(hello.id);
        let reserved = hello::judge(wire, reserved, hello.id, own).map_err(refused)?;
        Ok((reserved, hello.id, token))
    }

    /// Sets the timeouts of established connections, on which messages or heartbeats arrive from
    /// here on.
    fn prepare(&self, [urgent, bulk]: &[Wire; 2], transport: Transport) -> io::Result<()> {
        bulk.socket.set_timeout(None)?;
        match transport {
            Transport::Shared => Ok(()),
            Transport::Tcp => {
                urgent.socket.hurry(self.made.silence)?;
                bulk.socket.hurry(self.made.silence)?;
                urgent.socket.set_timeout(Some(self.made.silence))
            }
        }
    }
}

/// Binds to a path, at which there may be a dead socket.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match UnixStream::connect(path) {
            Err(dead) if dead.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            _ => Err(error),
        },
        bound => bound,
    }
}

/// Checks whether processes of this user may join this one on the same host.
fn known_user(user: u32) -> Result<(), Refusal> {
    match user {
        0 => Ok(()),
        user if user == rustix::process::geteuid().as_raw() => Ok(()),
        user => Err(Refusal::User(user)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_heartbeats_are_expected_within_a_time_after_the_handshake() {
        let silence = Duration::from_secs(77);
        let layer = Layer::builder(InstanceId(1)).silence(silence).start().expect("a layer");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let wires = [(); 2].map(|()| {
            let socket = Socket::new(TcpStream::connect(address).expect("connected"));
            socket.set_timeout(Some(HANDSHAKE_TIMEOUT)).expect("set");
            Wire::plain(socket)
        });
        layer.prepare(&wires, Transport::Tcp).expect("prepared");
        assert_eq!(wires.each_ref().map(|wire| wire.socket.timeout()), [Some(silence), None]);
        layer.close();
    }

    #[test]
    fn processes_of_the_same_user_and_of_root_may_join() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((known_user(0), known_user(own)), (Ok(()), Ok(())));
        assert_eq!(known_user(own + 1), Err(Refusal::User(own + 1)));
    }
}
