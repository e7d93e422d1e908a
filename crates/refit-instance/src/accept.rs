//! Accepting callers when the process is out of descriptors.
//!
//! A file server holds a descriptor per inode that the kernel knows, and may well use up all there are. That is when
//! its owner wants to see and to unmount, so the control API keeps some descriptors in reserve: when `accept`
//! fails for want of one, a reserved one is closed and it is tried again. When such a caller leaves, its
//! descriptor does not become free, where the file server would take it: `dup3` puts a placeholder in its place
//! in one step, and it is in reserve again.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use rustix::net::SocketFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixListener;

/// Callers who can be served at the same time when nothing else is left. A command is one or two; the rest is
/// for descriptors that somebody else takes between closing the reserved one and accepting.
const RESERVED: usize = 16;

/// How often it is tried to bring the reserve back to its size, and to accept if even that is used up.
const RETRY: Duration = Duration::from_millis(20);

/// A listener with a reserve.
pub(crate) struct Reserving {
    listener: UnixListener,
    reserve: Arc<Reserve>,
}

/// A caller; the descriptor goes into the reserve if one is missing there.
pub(crate) struct Caller {
    /// `None` only while it is dropped.
    stream: Option<tokio::net::UnixStream>,
    reserve: Arc<Reserve>,
}

/// Descriptors that stand for nothing but their places in the table.
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
        // Pushing and popping leave it whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Accepts a caller in the place of a descriptor; `None` if there is none, or nobody to accept.
    fn accept(&self, listener: &UnixListener) -> Option<tokio::net::UnixStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        drop(self.held().pop()?);
        // At once, and not through the runtime: whoever else waits for a descriptor must not get it.
        let stream = rustix::net::accept_with(listener, flags).ok()?;
        tokio::net::UnixStream::from_std(stream.into()).ok()
    }

    /// Takes the descriptor of a caller who leaves; the connection ends.
    fn take(&self, mut descriptor: OwnedFd) {
        let mut held = self.held();
        if held.len() >= RESERVED {
            return;
        }
        // Replaces it in one step; in between, nobody else could get it.
        let replaced = rustix::io::dup3(&self.placeholder, &mut descriptor, DupFlags::CLOEXEC);
        if replaced.is_ok() {
            held.push(descriptor);
        }
    }
}

impl Reserving {
    pub(crate) fn new(listener: UnixListener) -> io::Result<Self> {
        Ok(Reserving { listener, reserve: Arc::new(Reserve::new()?) })
    }
}

impl Listener for Reserving {
    type Io = Caller;
    // Callers have none that means anything; see `Caller::credentials`.
    type Addr = ();

    async fn accept(&mut self) -> (Caller, ()) {
        loop {
            let accepted = if self.reserve.full() {
                self.listener.accept().await
            } else {
                tokio::select! {
                    accepted = self.listener.accept() => accepted,
                    () = tokio::time::sleep(RETRY) => {
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
                // Nothing in reserve, or the caller has gone already, or the host is short of memory.
                tokio::time::sleep(RETRY).await;
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

/// Of the process or of the host.
fn out_of_descriptors(e: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

impl Caller {
    /// Who it is, as the kernel says.
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
