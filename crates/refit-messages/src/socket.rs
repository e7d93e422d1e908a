//! A connected socket of either family, read by one thread and written by another.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};

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

    /// Gives the other side of a Unix socket a descriptor.
    pub(crate) fn give(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        beside.push(SendAncillaryMessage::ScmRights(&fds));
        let byte = [IoSlice::new(&[0])];
        rustix::net::sendmsg(&self.0, &byte, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Takes a descriptor that the other side [gives](Self::give).
    pub(crate) fn take(&self) -> io::Result<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut bytes = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(&self.0, &mut bytes, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        let found = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits until the other side hangs up, or says something where there is nothing to be said.
    pub(crate) fn watch(&self) {
        while let Err(rustix::io::Errno::INTR) =
            rustix::net::recv(&self.0, &mut [0], RecvFlags::empty())
        {}
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
