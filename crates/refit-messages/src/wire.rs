//! One connection to a peer, whatever it is made of.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use refit_sys::ring::{Rings, Writer};

use crate::link::Outgoing;
use crate::outbox::{Outbox, Sink};
use crate::socket::{Socket, Stream};

/// Bytes that are read ahead: a long body passes them by.
const AHEAD: usize = 32 << 10;

/// Rings that two instances of a host share: one for each way and direction.
pub(crate) const RINGS: usize = 4;

/// Both directions of it.
pub(crate) struct Wire {
    /// Ends it.
    pub(crate) socket: Arc<Socket>,
    /// What ends with the socket.
    pub(crate) rings: Option<Arc<Rings>>,
    from: Box<dyn Read + Send>,
    to: Box<dyn Sink>,
}

impl Wire {
    /// A socket as it is.
    pub(crate) fn plain(socket: Arc<Socket>) -> Self {
        let (from, to) = (Stream(Arc::clone(&socket)), Stream(Arc::clone(&socket)));
        Self::over(socket, Box::new(from), Box::new(to))
    }

    /// What is made of a socket.
    pub(crate) fn over(socket: Arc<Socket>, from: Box<dyn Read + Send>, to: Box<dyn Sink>) -> Self {
        Self { socket, rings: None, from, to }
    }

    /// Both connections to a peer of this host: rings, and a socket that ends with either process. Who joins has made the rings.
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

    /// What is received, and what is sent.
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
