//! The state that a server leaves for the next one of its instance, on the board of its
//! [holder](refit_sys::holder).
//!
//! A word of the board names a memfd with a document ([`LeftState`]), which in turn names the
//! socket and the images of the mounts. When something changes the server writes another document
//! and then replaces the word, so that one of both is complete at every instant.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use parking_lot::{Mutex, MutexGuard};
use refit_change::Report;
use refit_sys::descriptors::Descriptors;
use refit_sys::holder::Board;
use refit_sys::holder::handover::Handover;
use refit_sys::memfd::{self, Pages};
use serde::{Deserialize, Serialize};

use crate::file_server::AdoptedMount;
use crate::kept::Kept;
use crate::recording::{self, RecordRequest};
use crate::refusal::{Kind, Refusal};
use crate::system::System;

/// The word of the board with the memfd of the document, as a descriptor plus 1; 0 before the first
/// server has mounted everything.
const DOCUMENT: usize = 0;
/// The name of the memfd.
const NAME: &CStr = c"refit-instance";
/// The version of the document that this version of refit writes, and the only one that it reads.
const VERSION: u32 = 1;
/// The maximum length of a document, in bytes.
const MAX_LENGTH: u64 = 256 << 20;

/// The holder of a server, as the instance of that server sees it.
#[derive(Debug)]
pub struct HeldServer {
    board: Board,
    pub(crate) handover: Handover,
    /// Whether the instance ends together with its standard input.
    until_eof: bool,
    listener: AtomicI32,
    /// The memfd that the board names, and what it contains.
    written: Mutex<Option<(OwnedFd, Vec<u8>)>>,
    /// Locked by the request that hands over.
    hands_over: Mutex<()>,
}

/// The state that a server has left.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeftState {
    version: u32,
    /// The descriptor of the socket.
    listener: RawFd,
    /// The descriptors of the images of the mounts.
    pub images: Vec<RawFd>,
    /// Whether the instance ends together with its standard input.
    pub until_eof: bool,
    /// The changes of objects.
    #[serde(default)]
    pub(crate) kept: Kept,
    /// The sessions of recorders in which the instance takes part.
    #[serde(default)]
    sessions: Vec<PathBuf>,
    /// The journal by the positions of its entries, only if the server has handed over.
    #[serde(default)]
    pub(crate) journal: Vec<(u64, Report)>,
}

impl LeftState {
    /// Reads what the servers with this board have left, of whose process `from` has the
    /// descriptors. Returns the memfd as well; it must stay open until another document has been
    /// [recorded](HeldServer::record_adopted). `None`: the first server has not mounted everything
    /// yet.
    ///
    /// # Errors
    ///
    /// There is no document that this version can read.
    pub fn read(board: &Board, from: &dyn Descriptors) -> Result<Option<(Self, OwnedFd)>, Refusal> {
        let word = board.words()[DOCUMENT].load(Acquire);
        let Some(number) = word.checked_sub(1) else { return Ok(None) };
        let refused = |error: &dyn std::fmt::Display| {
            let remedy = "mount again; `umount -l` removes what is left of the mounts";
            Refusal::new(Kind::Failed, "continue an instance", error.to_string(), remedy)
        };
        let memfd = from.take(number as RawFd).map_err(|error| refused(&error))?;
        let text = contents(&memfd).map_err(|error| refused(&error))?;
        let left = Self::parse(&text).map_err(|error| refused(&error))?;
        Ok(Some((left, memfd)))
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let Versioned { version } = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if version != VERSION {
            return Err(format!(
                "the server has left version {version} of its state, and this refit reads version \
                 {VERSION}"
            ));
        }
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// Loads the plugins that the server before had loaded.
    ///
    /// # Errors
    ///
    /// One of them cannot be loaded.
    pub fn load(&self, system: &dyn System) -> Result<(), Refusal> {
        self.kept.load(system)
    }

    /// Makes the changes again that were made to the objects of the server before.
    ///
    /// # Errors
    ///
    /// One of them cannot be made, for example because there is no such implementation.
    pub fn restore(&self, system: &dyn System, mounts: &[AdoptedMount]) -> Result<(), Refusal> {
        for mount in mounts {
            mount.open_data(&self.kept.files(&mount.name()));
        }
        self.kept.restore(system)
    }

    /// Joins the sessions of the recorders again. One that has ended meanwhile is omitted.
    pub(crate) fn join_sessions(&self) {
        for session in self.sessions.clone() {
            let _ = recording::attach(&RecordRequest { session });
        }
    }

    /// Takes over the socket.
    ///
    /// # Errors
    ///
    /// The process has no such descriptor.
    pub fn listener(&self, from: &dyn Descriptors) -> io::Result<UnixListener> {
        from.take(self.listener).map(UnixListener::from)
    }
}

/// The part of the document that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl HeldServer {
    /// Creates what the instance of a server needs to know of its holder.
    pub fn new(board: Board, handover: Handover, until_eof: bool) -> Self {
        let (written, hands_over) = (Mutex::default(), Mutex::default());
        Self { board, handover, until_eof, listener: AtomicI32::new(-1), written, hands_over }
    }

    pub(crate) fn listens(&self, listener: &UnixListener) {
        self.listener.store(listener.as_raw_fd(), Relaxed);
    }

    /// Records the socket and the images of a server that is about to continue what another one has
    /// left.
    pub fn record_adopted(&self, listener: &UnixListener, images: Vec<RawFd>, left: &LeftState) {
        let kept = left.kept.clone();
        self.listens(listener);
        self.record(images, kept, Vec::new());
    }

    /// Records what the next server needs. Without room for it, the old document stays.
    pub(crate) fn record(&self, images: Vec<RawFd>, kept: Kept, journal: Vec<(u64, Report)>) {
        let (version, listener) = (VERSION, self.listener.load(Relaxed));
        let until_eof = self.until_eof;
        let sessions = recording::attached();
        let left = LeftState { version, listener, images, until_eof, kept, sessions, journal };
        let Ok(text) = serde_json::to_vec(&left) else { return };
        let mut written = self.written.lock();
        if written.as_ref().is_some_and(|(_, last)| *last == text) {
            return;
        }
        let memfd = memfd::create(NAME, text.len() as u64, Pages::Base).and_then(|memfd| {
            let file = File::from(memfd);
            file.write_all_at(&text, 0)?;
            Ok(OwnedFd::from(file))
        });
        match memfd {
            Ok(memfd) => {
                // Pairs with the acquire in `LeftState::read`. The memfd before is closed after it.
                self.board.words()[DOCUMENT].store(memfd.as_raw_fd() as u64 + 1, Release);
                *written = Some((memfd, text));
            }
            Err(error) => tracing::warn!(%error, "cannot record the state of the instance"),
        }
    }

    /// Locks the hand-over of the instance; `None` if it is being made.
    pub(crate) fn begin_handover(&self) -> Option<MutexGuard<'_, ()>> {
        self.hands_over.try_lock()
    }
}

/// Returns what a memfd contains.
fn contents(memfd: &OwnedFd) -> io::Result<Vec<u8>> {
    let length = rustix::fs::fstat(memfd)?.st_size.cast_unsigned();
    if length > MAX_LENGTH {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the document is too long"));
    }
    let mut text = vec![0; length as usize];
    File::from(memfd.try_clone()?).read_exact_at(&mut text, 0)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document of version 1 as it was written then. A later version that can still take over
    /// from such a server reads it, too.
    const FIRST: &str = include_str!("snapshots/instance-1.json");

    #[test]
    fn a_document_of_an_earlier_version_is_read() {
        let left = LeftState::parse(FIRST.as_bytes()).unwrap();
        assert_eq!((left.version, left.listener, &left.images[..]), (1, 7, &[9, 12][..]));
        assert!(left.until_eof);
        assert_eq!(left.sessions, [PathBuf::from("/proc/4711/fd/5")]);
        assert_eq!(left.kept.files("/mnt/data"), [b"/a file".to_vec()]);
        assert_eq!((left.journal.len(), left.journal[0].0), (1, 3));
        let again = serde_json::to_string(&left).unwrap();
        let [again, first] = [again, FIRST.to_owned()]
            .map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
        assert_eq!(again, first, "the format has changed: give it another version");
    }

    #[test]
    fn a_document_of_the_future_is_refused_by_its_version() {
        let error = LeftState::parse(br#"{"version": 7, "unknown": [1]}"#).unwrap_err();
        assert!(error.contains("version 7"), "{error}");
    }
}
