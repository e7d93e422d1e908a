//! Accepting connections when the process has run out of descriptors.
//!
//! A file server holds a descriptor per inode that the kernel knows, and may use up all
//! descriptors. This is exactly when its owner wants to inspect and unmount it. The control API
//! therefore keeps some descriptors in reserve: when `accept` fails for lack of a descriptor, a
//! reserved one is closed and `accept` is repeated. When such a connection ends, its descriptor
//! does not become free, because the file server would take it: `dup3` atomically replaces it with
//! a placeholder, which is part of the reserve again.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use rustix::net::SocketFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;

/// The number of connections that can be served at the same time when no other descriptor is left.
/// A command uses one or two; the rest allows for descriptors that another thread takes between the
/// closing of the reserved one and `accept`.
const RESERVED: usize = 16;

/// The interval at which the reserve is refilled, and at which `accept` is retried if the reserve
/// is used up.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A listener with a reserve of descriptors.
pub(crate) struct ReservingListener {
    listener: UnixListener,
    reserve: Arc<Reserve>,
}

/// A connection, whose descriptor goes into the reserve at the end if one is missing there.
pub(crate) struct Caller {
    /// `None` only during the drop.
    stream: Option<tokio::net::UnixStream>,
    reserve: Arc<Reserve>,
}

/// Descriptors that only occupy their places in the descriptor table.
struct Reserve {
    placeholder: OwnedFd,
    held: Mutex<Vec<OwnedFd>>,
}

impl Reserve {
    fn new() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let placeholder = rustix::fs::open("/", flags, Mode::empty())?;
        let reserve = Reserve { placeholder, held: Mutex::default() };
        reserve.fill();
        Ok(reserve)
    }

    fn held(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        // The list is valid after a panic: pushing and popping leave no intermediate state.
        self.held.lock()
    }

    fn full(&self) -> bool {
        self.held().len() >= RESERVED
    }

    fn fill(&self) {
        let mut held = self.held();
        while held.len() < RESERVED {
            let Ok(another) = self.placeholder.try_clone() else { return };
            held.push(another);
        }
    }

    /// Accepts a connection in the place of a reserved descriptor. Returns `None` if there is no
    /// such descriptor or no connection.
    fn accept(&self, listener: &UnixListener) -> Option<tokio::net::UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        drop(self.held().pop()?);
        // Called directly and not through the runtime, so that no other thread takes the descriptor
        // first.
        let stream = rustix::net::accept_with(listener, flags).ok()?;
        tokio::net::UnixStream::from_std(stream.into()).ok()
    }

    /// Takes the descriptor of a connection that ends.
    fn take(&self, mut descriptor: OwnedFd) {
        let mut held = self.held();
        if held.len() >= RESERVED {
            return;
        }
        // Replaces it atomically, so that no other thread can get it in between.
        let replaced = rustix::io::dup3(&self.placeholder, &mut descriptor, DupFlags::CLOEXEC);
        if replaced.is_ok() {
            held.push(descriptor);
        }
    }
}

impl ReservingListener {
    pub(crate) fn new(listener: UnixListener) -> io::Result<Self> {
        Ok(ReservingListener { listener, reserve: Arc::new(Reserve::new()?) })
    }
}

impl Listener for ReservingListener {
    type Io = Caller;
    // Unix sockets of clients have no useful address; see `Caller::credentials`.
    type Addr = ();

    async fn accept(&mut self) -> (Caller, ()) {
        loop {
            let accepted = if self.reserve.full() {
                self.listener.accept().await
            } else {
                tokio::select! {
                    accepted = self.listener.accept() => accepted,
                    () = tokio::time::sleep(RETRY_INTERVAL) => {
                        self.reserve.fill();
                        continue;
                    }
                }
            };
            let stream = match accepted {
                Ok((stream, _)) => Some(stream),
                Err(e) if out_of_descriptors(&e) => self.reserve.accept(&self.listener),
                Err(_) => None,
            };
            let Some(stream) = stream else {
                // The reserve is empty, the caller has gone already, or the host is short of
                // memory.
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            };
            let caller = Caller { stream: Some(stream), reserve: Arc::clone(&self.reserve) };
            return (caller, ());
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the error means that the process or the host has run out of descriptors.
fn out_of_descriptors(e: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

impl Caller {
    /// Returns the credentials of the peer from the kernel.
    pub(crate) fn credentials(&self) -> Option<tokio::net::unix::UCred> {
        self.stream.as_ref().and_then(|stream| stream.peer_cred().ok())
    }

    fn stream(&mut self) -> io::Result<Pin<&mut tokio::net::UnixStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.stream.take().map(tokio::net::UnixStream::into_std) {
            self.reserve.take(stream.into());
        }
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(cx, to)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}
