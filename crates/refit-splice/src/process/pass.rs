//! Passes files from the program to refit, and from refit to the program.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use refit_sys::pidfd::Pidfd;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::call::Call;
use super::program::Program;
use super::refusal::Refusal;
use super::still::Still;

impl Call {
    /// Duplicates a file descriptor of the program into this process.
    ///
    /// # Errors
    /// [`Refusal`]: the program has no such descriptor, or has ended.
    pub fn fetch(&self, program: &Program, descriptor: u64) -> Result<File, Refusal> {
        let (id, thread) = (program.id(), self.thread());
        let number = u32::try_from(descriptor).unwrap_or(u32::MAX);
        // The first thread may have ended, and has no files then; kernels before 6.9 accept no
        // other thread.
        let opened = Pidfd::open_thread(thread).or_else(|_| Pidfd::open(id));
        let fetched = opened.and_then(|opened| opened.get_fd(number));
        fetched.map(File::from).map_err(|source| Refusal::System {
            id,
            what: "duplicate a file of it",
            source,
        })
    }
}

/// Offsets of the argument of `recvmsg`, in one piece: the message, the descriptor of its buffer,
/// the buffer of one byte, the control message (`struct msghdr`, `struct iovec`, `struct cmsghdr`
/// of x86-64).
mod message {
    pub(super) const IOVEC: usize = 56;
    pub(super) const BYTE: usize = IOVEC + 16;
    pub(super) const CONTROL: usize = BYTE + 8;
    pub(super) const DESCRIPTOR: usize = CONTROL + 16;
    /// Value of `cmsg_len` if one descriptor was received.
    pub(super) const WITH_ONE: u64 = 20;
}

/// Bytes of the program's memory that passing a file takes.
const PASSING: usize = message::CONTROL + 24;

impl Call {
    /// Passes a file to the program and returns its descriptor there, which the caller closes. The
    /// program needs no permission to open it. `place` is unused writable memory of the program, of
    /// `PASSING` bytes.
    ///
    /// # Errors
    /// [`Refusal`]: the program cannot have more open files, or was killed.
    pub fn pass(&self, still: &mut Still<'_>, file: &File, place: u64) -> Result<u64, Refusal> {
        let program = still.program();
        let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64;
        let arguments = [libc::AF_UNIX as u64, kind, 0, place, 0, 0];
        self.make(still, "socketpair", libc::SYS_socketpair, arguments)?;
        let mut pair = [0; 8];
        read(program, place, &mut pair)?;
        let (ours, its) = (half(&pair, 0), half(&pair, 4));
        let passed = self.send(program, ours, file).and_then(|()| self.receive(still, its, place));
        for end in [ours, its] {
            self.make(still, "close", libc::SYS_close, [end, 0, 0, 0, 0, 0])?;
        }
        passed
    }

    fn receive(&self, still: &mut Still<'_>, end: u64, place: u64) -> Result<u64, Refusal> {
        let program = still.program();
        let id = program.id();
        let mut bytes = [0; PASSING];
        let mut word = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        word(16, place + message::IOVEC as u64);
        word(24, 1);
        word(32, place + message::CONTROL as u64);
        word(40, (PASSING - message::CONTROL) as u64);
        word(message::IOVEC, place + message::BYTE as u64);
        word(message::IOVEC + 8, 1);
        let failed = |source| Refusal::System { id, what: "pass a file to it", source };
        program.write(place, &bytes).map_err(failed)?;
        let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u64;
        self.make(still, "recvmsg", libc::SYS_recvmsg, [end, place, flags, 0, 0, 0])?;
        read(program, place, &mut bytes)?;
        program.write(place, &[0; PASSING]).map_err(failed)?;
        // The length shows whether a descriptor was received: the program may have reached its
        // limit.
        if half(&bytes, message::CONTROL) < message::WITH_ONE {
            let source = io::Error::from_raw_os_error(libc::EMFILE);
            return Err(Refusal::Call { id, call: "recvmsg", source });
        }
        Ok(half(&bytes, message::DESCRIPTOR))
    }

    fn send(&self, program: &Program, descriptor: u64, file: &File) -> Result<(), Refusal> {
        let end = self.fetch(program, descriptor)?;
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
}

fn read(program: &Program, place: u64, into: &mut [u8]) -> Result<(), Refusal> {
    program.read(place, into).map_err(|source| Refusal::System {
        id: program.id(),
        what: "read the result of a call in it",
        source,
    })
}

/// Returns 32 bits of what a call has written.
fn half(bytes: &[u8], at: usize) -> u64 {
    let half = bytes.get(at..at + 4).and_then(|half| half.try_into().ok());
    u64::from(u32::from_le_bytes(half.unwrap_or_default()))
}
