//! The negotiation with the kernel (`FUSE_INIT`), which the FUSE library does when a session is
//! created.
//!
//! The kernel negotiates once per connection. A server that continues a mount has to agree to what
//! was negotiated before, but the library insists on negotiating. The library therefore negotiates
//! over a socket in the place of the connection, at whose other end this module gives it the
//! kernel's request. The first server passes the library's reply on to the kernel; the servers
//! after it compare theirs with that one. Then `workers` puts the connection in the place of the
//! socket.

use crate::answer::Fuse;
use crate::image::header::Negotiation;
use fuser::{Config, Session, SessionACL};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::OwnedFd;

/// The minimum size of a buffer for requests (`FUSE_MIN_READ_BUFFER`).
const READ_BUFFER: usize = 8192;
/// Offsets in the kernel's request: its flags, and those of the extension.
const REQUEST_FLAGS: [usize; 2] = [52, 56];
/// Offsets in the reply.
const REPLY_FLAGS: [usize; 2] = [28, 48];
/// `FUSE_INIT_EXT`: the request and the reply have flags of the extension.
const INIT_EXT: u32 = 1 << 30;
/// The notification by which the kernel is made to send the requests again that were not answered
/// (`FUSE_NOTIFY_RESEND`, Linux 6.9).
const NOTIFY_RESEND: u32 = 7;

/// Negotiates with the kernel over a new connection.
pub(crate) fn begin(
    fuse: Fuse,
    device: &OwnedFd,
    acl: SessionACL,
) -> io::Result<(Session<Fuse>, Negotiation)> {
    let mut request = vec![0; READ_BUFFER];
    let length = loop {
        match rustix::io::read(device, &mut request) {
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            outcome => break outcome?,
        }
    };
    request.truncate(length);
    let (session, reply) = session(fuse, &request, acl)?;
    rustix::io::write(device, &reply)?;
    Ok((session, Negotiation { request, reply }))
}

/// Creates another session of a connection, in this server or in one that continues the mount.
pub(crate) fn resume(
    fuse: Fuse,
    acl: SessionACL,
    agreed: &Negotiation,
) -> io::Result<Session<Fuse>> {
    let mut request = agreed.request.clone();
    // The kernel offers what was agreed, so that this server asks for no more.
    for (request_flags, reply_flags) in REQUEST_FLAGS.into_iter().zip(REPLY_FLAGS) {
        let offered = flags(&request, request_flags);
        let kept = offered & (flags(&agreed.reply, reply_flags) | INIT_EXT);
        if let Some(bytes) = request.get_mut(request_flags..request_flags + 4) {
            bytes.copy_from_slice(&kept.to_le_bytes());
        }
    }
    let (session, reply) = session(fuse, &request, acl)?;
    let asked = REPLY_FLAGS.map(|at| flags(&reply, at) & !INIT_EXT);
    let had = REPLY_FLAGS.map(|at| flags(&agreed.reply, at) & !INIT_EXT);
    if asked != had {
        let what = format!(
            "this refit does not support what was negotiated with the kernel (flags {had:x?}, \
             and it asks for {asked:x?})"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    Ok(session)
}

/// Returns whether the kernel can send requests again (`FUSE_HAS_RESEND`, Linux 6.9), by the flags
/// of the extension in its request.
pub(crate) fn offers_resend(agreed: &Negotiation) -> bool {
    const HAS_RESEND: u32 = 1 << (39 - 32);
    flags(&agreed.request, REQUEST_FLAGS[1]) & HAS_RESEND != 0
}

/// Returns whether files can be passed through (`FUSE_PASSTHROUGH`, Linux 6.9), by the flags of the
/// extension in the reply.
pub(crate) fn passes_through(agreed: &Negotiation) -> bool {
    const PASSTHROUGH: u32 = 1 << (37 - 32);
    flags(&agreed.reply, REPLY_FLAGS[1]) & PASSTHROUGH != 0
}

/// Makes the kernel send the requests again that were not answered. No server of the connection
/// may execute any of them.
pub(crate) fn resend(device: &OwnedFd) -> io::Result<()> {
    let mut message = [0; 16];
    message[..4].copy_from_slice(&16_u32.to_le_bytes());
    message[4..8].copy_from_slice(&NOTIFY_RESEND.to_le_bytes());
    rustix::io::write(device, &message).map(drop).map_err(io::Error::from)
}

/// Returns the flags at an offset of a message; 0 if it is shorter.
fn flags(message: &[u8], at: usize) -> u32 {
    let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// Creates a session to which the kernel sends `request`, and returns it with its reply. Its
/// descriptor is a socket that nothing else is connected to.
fn session(fuse: Fuse, request: &[u8], acl: SessionACL) -> io::Result<(Session<Fuse>, Vec<u8>)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::send(&ours, request, SendFlags::empty())?;
    let session = Session::from_fd(fuse, theirs, acl, Config::default())?;
    let mut reply = vec![0; READ_BUFFER];
    let (length, _) = rustix::net::recv(&ours, reply.as_mut_slice(), RecvFlags::empty())?;
    reply.truncate(length);
    Ok((session, reply))
}
