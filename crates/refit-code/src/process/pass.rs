//! Files that go from the program to us, and from us to the program.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{Call, Program, Refusal, Still};

impl Program {
    /// The program's file descriptor, as one of ours.
    ///
    /// # Errors
    /// [`Refusal`]: it has none of this number, or has ended.
    pub fn fetch(&self, descriptor: u64) -> Result<File, Refusal> {
        let id = self.id;
        let failed = |error: rustix::io::Errno| Refusal::System {
            id,
            what: "fetch a file of it",
            source: error.into(),
        };
        let process = Pid::from_raw(id.cast_signed()).ok_or(Refusal::NoSuch { id })?;
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(failed)?;
        let fetched: OwnedFd =
            pidfd_getfd(process, descriptor as i32, PidfdGetfdFlags::empty()).map_err(failed)?;
        Ok(fetched.into())
    }
}

/// What `recvmsg` is told, in one piece below the stack: the message, where its byte goes, the byte, what comes with it
/// (`struct msghdr`, `struct iovec`, `struct cmsghdr` of x86-64).
mod message {
    pub(super) const IOVEC: usize = 56;
    pub(super) const BYTE: usize = IOVEC + 16;
    pub(super) const CONTROL: usize = BYTE + 8;
    pub(super) const DESCRIPTOR: usize = CONTROL + 16;
    pub(super) const BYTES: usize = CONTROL + 24;
    /// What `cmsg_len` is when one descriptor came.
    pub(super) const WITH_ONE: u64 = 20;
}

impl Call {
    /// Gives the program a file of ours: its number there, which the caller closes. The program needs no right to open it.
    ///
    /// # Errors
    /// [`Refusal`]: it has no place for more files, or was killed.
    pub fn pass(&self, still: &mut Still<'_>, file: &File) -> Result<u64, Refusal> {
        let mut pair = [0; 8];
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
        let make = libc::SYS_socketpair;
        self.make_with(
            still,
            "socketpair",
            make,
            |_| {},
            &mut pair,
            |place| [libc::AF_UNIX as u64, kind, 0, place, 0, 0],
        )?;
        let (ours, its) = (half(&pair, 0), half(&pair, 4));
        let passed = send(still.program, ours, file).and_then(|()| self.receive(still, its));
        for end in [ours, its] {
            self.make(still, "close", libc::SYS_close, [end, 0, 0, 0, 0, 0])?;
        }
        passed
    }

    fn receive(&self, still: &mut Still<'_>, end: u64) -> Result<u64, Refusal> {
        let id = still.program.id();
        let mut bytes = [0; message::BYTES];
        let fill = |(place, bytes): (u64, &mut [u8])| {
            let mut word = |at: usize, value: u64| {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            };
            word(16, place + message::IOVEC as u64);
            word(24, 1);
            word(32, place + message::CONTROL as u64);
            word(40, (message::BYTES - message::CONTROL) as u64);
            word(message::IOVEC, place + message::BYTE as u64);
            word(message::IOVEC + 8, 1);
        };
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        self.make_with(still, "recvmsg", libc::SYS_recvmsg, fill, &mut bytes, |place| {
            [end, place, flags, 0, 0, 0]
        })?;
        // Its length tells whether a file came: the program may have no place for more.
        if half(&bytes, message::CONTROL) < message::WITH_ONE {
            let source = io::Error::from_raw_os_error(libc::EMFILE);
            return Err(Refusal::Call { id, call: "recvmsg", source });
        }
        Ok(half(&bytes, message::DESCRIPTOR))
    }
}

/// 32 bits of what a call has told.
fn half(bytes: &[u8], at: usize) -> u64 {
    let half = bytes.get(at..at + 4).and_then(|half| half.try_into().ok());
    u64::from(u32::from_le_bytes(half.unwrap_or_default()))
}

fn send(program: &Program, descriptor: u64, file: &File) -> Result<(), Refusal> {
    let end = program.fetch(descriptor)?;
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(&end, &[IoSlice::new(b"f")], &mut control, SendFlags::empty()).map(drop).map_err(
        |error| Refusal::System {
            id: program.id(),
            what: "pass a file to it",
            source: error.into(),
        },
    )
}
