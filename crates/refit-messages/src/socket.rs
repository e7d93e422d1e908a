//! A connected socket of either family, read by one thread and written by another.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::outbox::Sink;

/// It ends for both sides once [`end`](Socket::end) is called, by whoever.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn new(fd: impl Into<OwnedFd>) -> Arc<Self> {
        Arc::new(Self(fd.into()))
    }

    /// Reads fail with `WouldBlock` when nothing has come for so long.
    pub(crate) fn patience(&self, limit: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, Timeout::Recv, limit)?;
        Ok(())
    }

    /// Hangs up: reads come to an end and writes fail, here and there.
    pub(crate) fn end(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Of a TCP connection: sends at once, and ends it when the other host has not taken what was sent for so long.
    pub(crate) fn hurry(&self, silence: Duration) -> io::Result<()> {
        sockopt::set_tcp_nodelay(&self.0, true)?;
        let limit = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.0, limit)?;
        Ok(())
    }

    /// The user that the process on the other side of a Unix socket belonged to when it connected or listened.
    pub(crate) fn user(&self) -> io::Result<u32> {
        Ok(sockopt::socket_peercred(&self.0)?.uid.as_raw())
    }
}

/// One thread's view of a socket.
#[derive(Clone, Debug)]
pub(crate) struct Stream(pub(crate) Arc<Socket>);

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.0.0, into, RecvFlags::empty())?.0)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Sink::write(self, bytes, true)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Stream {
    fn write(&mut self, bytes: &[u8], wait: bool) -> io::Result<usize> {
        let how = if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
        Ok(rustix::net::send(&self.0.0, bytes, how | SendFlags::NOSIGNAL)?)
    }
}
