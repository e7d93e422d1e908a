//! One connection to a peer, of any kind.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use refit_sys::ring::{Rings, Writer};

use crate::link::Outgoing;
use crate::outbox::Outbox;
use crate::sink::Sink;
use crate::socket::{Socket, Stream};

/// The size of the read-ahead buffer; long bodies bypass it.
const AHEAD: usize = 32 << 10;

/// The number of rings that two instances of a host share: one for each way and direction.
pub(crate) const RINGS: usize = 4;

/// Both directions of a connection.
pub(crate) struct Wire {
    /// The socket that ends it.
    pub(crate) socket: Arc<Socket>,
    /// The rings that end with the socket.
    pub(crate) rings: Option<Arc<Rings>>,
    from: Box<dyn Read + Send>,
    to: Box<dyn Sink>,
}

impl Wire {
    /// Wraps a plain socket.
    pub(crate) fn plain(socket: Arc<Socket>) -> Self {
        let (from, to) = (Stream(Arc::clone(&socket)), Stream(Arc::clone(&socket)));
        Self::over(socket, Box::new(from), Box::new(to))
    }

    /// Wraps a reader and a writer over a socket.
    pub(crate) fn over(socket: Arc<Socket>, from: Box<dyn Read + Send>, to: Box<dyn Sink>) -> Self {
        Self { socket, rings: None, from, to }
    }

    /// Returns both connections to a peer of this host: rings, and a socket that ends with either
    /// process. The joining side has created the rings.
    pub(crate) fn shared(socket: &Arc<Socket>, rings: &Arc<Rings>, joins: bool) -> [Self; 2] {
        [0, 1].map(|way| {
            let (from, to) = (2 * way + usize::from(joins), 2 * way + usize::from(!joins));
            Self {
                socket: Arc::clone(socket),
                rings: Some(Arc::clone(rings)),
                from: Box::new(rings.reader(from)),
                to: Box::new(rings.writer(to)),
            }
        })
    }

    /// Splits it into the receiving and the sending direction.
    pub(crate) fn split(self) -> (BufReader<Box<dyn Read + Send>>, Outgoing) {
        let outgoing = Outgoing {
            outbox: Outbox::new(self.to, Arc::clone(&self.socket)),
            socket: self.socket,
            counts: Default::default(),
        };
        (BufReader::with_capacity(AHEAD, self.from), outgoing)
    }
}

impl Sink for Writer {
    fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        Writer::write(self, bytes, wait)
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.from.read(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes, true)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
