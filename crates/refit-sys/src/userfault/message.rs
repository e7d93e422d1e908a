//! Messages of a [`Userfault`](super::Userfault): faults, and changes of the memory it serves.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as raw;

use super::Userfault;

/// Bytes of a message.
const LENGTH: usize = size_of::<raw::uffd_msg>();

/// An event in memory that is served.
#[derive(Debug)]
pub enum Message {
    /// A thread waits for a page.
    Pagefault {
        /// The page's address, or the byte's with
        /// [`Features::EXACT_ADDRESS`](super::Features::EXACT_ADDRESS).
        address: u64,
        /// The access that has faulted.
        access: Access,
        /// The number of the thread in its own PID namespace; `None` without
        /// [`Features::THREAD_ID`](super::Features::THREAD_ID).
        thread: Option<u32>,
    },
    /// The process has forked: this one serves the same addresses of the child.
    Fork(Userfault),
    /// `mremap` has moved memory; a separate message reports that its old range is unmapped.
    Remap {
        /// The old address.
        from: u64,
        /// The new address.
        to: u64,
        /// The old length in bytes.
        length: u64,
    },
    /// The contents of a range have been discarded (`MADV_DONTNEED`, `MADV_REMOVE`); it is still
    /// served.
    Remove(Range<u64>),
    /// A range has been unmapped, or replaced by another mapping; it is not served any more.
    Unmap(Range<u64>),
    /// A message of a later kernel, by its number.
    Other(u8),
}

/// The access of a thread that has faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// A write, not a read.
    pub write: bool,
    /// The page is present, but write-protected.
    pub protected: bool,
    /// The page is in its file, but not in the page table.
    pub minor: bool,
}

impl Userfault {
    /// Maximum number of messages that one read returns.
    pub const AT_ONCE: usize = 32;

    /// Appends the pending messages to `into`, up to [`AT_ONCE`](Self::AT_ONCE). Returns their
    /// number. If there is none, it waits, or returns 0 if the userfaultfd was opened with
    /// `NONBLOCK`.
    ///
    /// A thread that forks, or unmaps, removes or remaps memory waits until its message is read;
    /// until then resolving fails with [`Cause::Again`](super::Cause::Again).
    ///
    /// # Errors
    /// `EINVAL`: [`agree`](Self::agree) was not called. `EINTR`: a signal arrived. `EMFILE`: no
    /// descriptor is left for the memory of a child.
    pub fn read(&self, into: &mut Vec<Message>) -> io::Result<usize> {
        self.read_some(into, Self::AT_ONCE)
    }

    /// As [`read`](Self::read), with at most `most` messages, but at least one.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_some(&self, into: &mut Vec<Message>, most: usize) -> io::Result<usize> {
        read(self.as_fd(), into, most.clamp(1, Self::AT_ONCE))
    }
}

fn read(fd: BorrowedFd<'_>, into: &mut Vec<Message>, most: usize) -> io::Result<usize> {
    let mut buffer = [0_u8; Userfault::AT_ONCE * LENGTH];
    let length = match rustix::io::read(fd, &mut buffer[..most * LENGTH]) {
        Ok(length) => length,
        Err(rustix::io::Errno::AGAIN) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let messages = buffer[..length].chunks_exact(LENGTH);
    let count = messages.len();
    into.extend(messages.map(|message| {
        let adopt = |fd: RawFd| {
            // SAFETY: the kernel has created this descriptor for this process with this message,
            // which is read once.
            Userfault::from(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        parse(message, adopt)
    }));
    Ok(count)
}

/// Parses a message of `LENGTH` bytes: the first byte is its type, and three words from the eighth
/// byte on are its contents.
fn parse(message: &[u8], adopt: impl FnOnce(RawFd) -> Userfault) -> Message {
    let word = |at: usize| {
        let bytes = message.get(8 + 8 * at..16 + 8 * at).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let low = |word: u64| word as u32;
    match u32::from(message[0]) {
        raw::UFFD_EVENT_PAGEFAULT => {
            let has = |flag: u32| word(0) & u64::from(flag) != 0;
            Message::Pagefault {
                address: word(1),
                access: Access {
                    write: has(raw::UFFD_PAGEFAULT_FLAG_WRITE),
                    protected: has(raw::UFFD_PAGEFAULT_FLAG_WP),
                    minor: has(raw::UFFD_PAGEFAULT_FLAG_MINOR),
                },
                thread: Some(low(word(2))).filter(|&thread| thread != 0),
            }
        }
        raw::UFFD_EVENT_FORK => Message::Fork(adopt(low(word(0)).cast_signed())),
        raw::UFFD_EVENT_REMAP => Message::Remap { from: word(0), to: word(1), length: word(2) },
        raw::UFFD_EVENT_REMOVE => Message::Remove(word(0)..word(1)),
        raw::UFFD_EVENT_UNMAP => Message::Unmap(word(0)..word(1)),
        _ => Message::Other(message[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    fn message(event: u32, words: [u64; 3]) -> Message {
        let mut bytes = [0; LENGTH];
        bytes[0] = event as u8;
        for (at, word) in words.into_iter().enumerate() {
            bytes[8 + 8 * at..16 + 8 * at].copy_from_slice(&word.to_ne_bytes());
        }
        parse(&bytes, |_| unreachable!("none of a fork"))
    }

    #[test]
    fn a_message_is_laid_out_as_the_kernels_header_says() {
        assert_eq!((LENGTH, offset_of!(raw::uffd_msg, arg)), (32, 8));
    }

    #[test]
    fn messages_are_taken_apart() {
        let fault = message(raw::UFFD_EVENT_PAGEFAULT, [3, 0x7000, 42]);
        let Message::Pagefault { address: 0x7000, access, thread: Some(42) } = fault else {
            panic!("{fault:?}");
        };
        assert_eq!(access, Access { write: true, protected: true, minor: false });
        let moved = message(raw::UFFD_EVENT_REMAP, [1, 2, 3]);
        assert!(matches!(moved, Message::Remap { from: 1, to: 2, length: 3 }), "{moved:?}");
        let unmapped = message(raw::UFFD_EVENT_UNMAP, [0x1000, 0x3000, 0]);
        assert!(
            matches!(&unmapped, Message::Unmap(range) if *range == (0x1000..0x3000)),
            "{unmapped:?}"
        );
        assert!(matches!(message(0xff, [0; 3]), Message::Other(0xff)));
    }
}
