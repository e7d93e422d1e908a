//! The memory that a holder shares with its servers, and with the servers that take over from them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::word_table::WordTable;

/// The words of the board.
const WORDS: usize = 2048;
/// The number of the server for which the holder is ready.
pub(super) const READY: usize = 0;
/// Whether the server has finished: when it ends, the holder ends as well.
const FINISHED: usize = 1;
/// The descriptor by which the holder watches the server.
pub(super) const WATCH: usize = 2;
/// Whether the server has begun to serve.
pub(super) const SERVES: usize = 3;
/// The first of the words that belong to the server.
const OF_SERVER: usize = 16;
/// The first of the words of the hand-over; see [`super::handover`].
const OF_HANDOVER: usize = 512;

/// The memory that a holder and all of its servers share.
#[derive(Clone, Debug)]
pub struct Board(Arc<WordTable>);

impl Board {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(WordTable::new(c"refit-board", WORDS)?)))
    }

    /// Opens the board of another holder.
    ///
    /// # Errors
    /// The errors of [`WordTable::open`]; `InvalidData` if it is shorter than a board.
    pub fn open(memfd: OwnedFd) -> io::Result<Self> {
        let table = WordTable::open(memfd)?;
        if table.words().len() < WORDS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no board of a holder"));
        }
        Ok(Self(Arc::new(table)))
    }

    /// Returns the words that belong to the servers, which are zero in the beginning.
    pub fn words(&self) -> &[AtomicU64] {
        &self.0.words()[OF_SERVER..OF_HANDOVER]
    }

    pub(super) fn handover(&self) -> &[AtomicU64] {
        &self.0.words()[OF_HANDOVER..WORDS]
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.0.words()[word].load(Acquire)
    }

    pub(super) fn put(&self, word: usize, value: u64) {
        self.0.words()[word].store(value, Release);
    }

    /// Records that the server has finished, and that no other one is to continue its work.
    pub fn finish(&self) {
        self.put(FINISHED, 1);
    }

    /// Records that the server serves: if it is killed from now on, the fault is not its own.
    pub fn serves(&self) {
        self.put(SERVES, 1);
    }

    pub(super) fn finished(&self) -> bool {
        self.get(FINISHED) != 0
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
