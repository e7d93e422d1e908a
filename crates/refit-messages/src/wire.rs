//! One connection to a peer, whatever it is made of.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use crate::link::Outgoing;
use crate::outbox::{Outbox, Sink};
use crate::socket::{Socket, Stream};

/// Bytes that are read ahead: a long body passes them by.
const AHEAD: usize = 32 << 10;

/// Both directions of it.
pub(crate) struct Wire {
    /// Ends it.
    pub(crate) socket: Arc<Socket>,
    from: Box<dyn Read + Send>,
    to: Box<dyn Sink>,
}

impl Wire {
    /// A socket as it is.
    pub(crate) fn plain(socket: Arc<Socket>) -> Self {
        let (from, to) = (Stream(Arc::clone(&socket)), Stream(Arc::clone(&socket)));
        Self { socket, from: Box::new(from), to: Box::new(to) }
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
