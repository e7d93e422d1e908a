//! A connected socket of either family, read by one thread and written by another.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use refit_sys::tcp;
use rustix::io::Errno;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};

use crate::sink::Sink;

/// The multiple of the silence limit that applies to a peer whose kernel still acknowledges data.
/// Its process exists, since the kernel would have ended the connection otherwise, but it gets no
/// processor or is stopped.
const BUSY_FACTOR: u32 = 10;

/// A socket that ends for both sides once [`end`](Socket::end) is called by any thread.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// The silence after which a peer on TCP is checked.
    silence: OnceLock<Duration>,
}

impl Socket {
    pub(crate) fn new(fd: impl Into<OwnedFd>) -> Arc<Self> {
        Arc::new(Self { fd: fd.into(), silence: OnceLock::new() })
    }

    /// Sets the time after which reads fail with `WouldBlock`; on a TCP connection that
    /// [hurries](Self::hurry), only if the peer is dead.
    pub(crate) fn set_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.fd, Timeout::Recv, limit)?;
        Ok(())
    }

    /// Returns the time after which reads fail.
    #[cfg(test)]
    pub(crate) fn timeout(&self) -> Option<Duration> {
        sockopt::socket_timeout(&self.fd, Timeout::Recv).expect("it is a socket")
    }

    /// Hangs up: reads end and writes fail, on both sides.
    pub(crate) fn end(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Configures a TCP connection to send at once, and to end if the other host has not taken sent
    /// data for `silence`.
    pub(crate) fn hurry(&self, silence: Duration) -> io::Result<()> {
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        let limit = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.fd, limit)?;
        // The first value counts.
        let _ = self.silence.set(silence);
        Ok(())
    }

    /// Returns whether a peer that has sent nothing for some time is dead. It is dead if its kernel
    /// has not acknowledged sent data for the silence limit, or if it has been silent since `heard`
    /// for [`BUSY_FACTOR`] times the limit.
    fn is_dead(&self, heard: Instant) -> bool {
        let Some(&silence) = self.silence.get() else { return true };
        let progress = tcp::acknowledged(self.fd.as_fd()).ok();
        is_dead(silence, progress.as_ref(), heard.elapsed())
    }

    /// Sends a descriptor to the other side of a Unix socket.
    pub(crate) fn give(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        beside.push(SendAncillaryMessage::ScmRights(&fds));
        let byte = [IoSlice::new(&[0])];
        rustix::net::sendmsg(&self.fd, &byte, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a descriptor that the other side [sends](Self::give).
    pub(crate) fn take(&self) -> io::Result<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut bytes = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(&self.fd, &mut bytes, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        let found = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits until the other side hangs up, or sends something, which it must not.
    pub(crate) fn watch(&self) {
        while let Err(rustix::io::Errno::INTR) =
            rustix::net::recv(&self.fd, &mut [0], RecvFlags::empty())
        {}
    }

    /// Returns the user of the process on the other side of a Unix socket, as of when it connected
    /// or listened.
    pub(crate) fn user(&self) -> io::Result<u32> {
        Ok(sockopt::socket_peercred(&self.fd)?.uid.as_raw())
    }
}

/// Whether a peer is dead that has been silent for `heard`, by what its kernel acknowledged.
fn is_dead(silence: Duration, progress: Option<&tcp::Acknowledged>, heard: Duration) -> bool {
    let answers =
        progress.is_some_and(|progress| progress.outstanding == 0 || progress.since < silence);
    !answers || heard >= silence * BUSY_FACTOR
}

/// One thread's view of a socket.
#[derive(Clone, Debug)]
pub(crate) struct Stream(pub(crate) Arc<Socket>);

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let heard = Instant::now();
        loop {
            match rustix::net::recv(&self.0.fd, &mut *into, RecvFlags::empty()) {
                Err(Errno::AGAIN) if !self.0.is_dead(heard) => {}
                received => return Ok(received?.0),
            }
        }
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
        Ok(rustix::net::send(&self.0.fd, bytes, how | SendFlags::NOSIGNAL)?)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;

    #[test]
    fn a_peer_is_dead_if_its_kernel_is_or_if_it_is_silent_for_long() {
        let silence = Duration::from_secs(2);
        let dead = |outstanding, since, heard| {
            let since = Duration::from_secs(since);
            let progress = tcp::Acknowledged { outstanding, since };
            is_dead(silence, Some(&progress), Duration::from_secs(heard))
        };
        assert!(!dead(0, 9, 3), "everything is acknowledged");
        assert!(!dead(5, 1, 3), "something was a moment ago");
        assert!(dead(5, 2, 3), "nothing was for the limit");
        assert!(!dead(0, 0, 19) && dead(0, 0, 20), "it is silent for ten times the limit");
        assert!(is_dead(silence, None, Duration::ZERO), "nothing is known");
    }

    #[test]
    fn a_connection_ends_if_the_other_host_takes_nothing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let socket = Socket::new(TcpStream::connect(address).expect("connected"));
        socket.hurry(Duration::from_millis(1500)).expect("set");
        assert_eq!(sockopt::tcp_user_timeout(&socket.fd), Ok(1500));
        assert_eq!(sockopt::tcp_nodelay(&socket.fd), Ok(true));
    }

    #[test]
    fn a_descriptor_that_is_taken_is_not_for_programs_that_are_executed() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (giver, taker) = (Socket::new(ours), Socket::new(theirs));
        giver.give(giver.fd.as_fd()).expect("given");
        let taken = taker.take().expect("taken");
        assert!(fcntl_getfd(&taken).expect("its flags").contains(FdFlags::CLOEXEC));
    }
}
