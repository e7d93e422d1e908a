//! A session: the memory that instruments write to and recorders read, shared by any number of
//! processes.
//!
//! The recorder creates it as a memfd and passes its path on in the environment variable
//! [`VARIABLE`]. Programs map it with [`attach_environment`], or with [`Session::open`] and
//! [`attach`](crate::instrument::attach) if they learn of it later. Its layout is described in
//! [`layout`]. It stays mapped until the process ends.
//!
//! Each of the programs that share the memory can write to all of it. Errors in it must therefore
//! cause no more than wrong or lost records: numbers are checked against the geometry, which is
//! read once.

mod area;
mod definitions;
mod error;
mod known;
pub mod layout;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

pub(crate) use area::Area;
pub use definitions::{Described, Kind, Switch};
pub use error::SessionError;
pub use known::SessionInstrument;
pub use layout::Geometry;

pub use crate::instrument::attach_environment;

/// The environment variable that contains the path of the session, such as `/proc/PID/fd/N`.
pub const VARIABLE: &str = "REFIT_SESSION";

/// A mapped session.
#[derive(Debug)]
pub struct Session {
    area: &'static Area,
    links: Box<[Link]>,
}

/// The link from an instrument to a session, which contains all that is needed to record.
#[derive(Debug)]
pub(crate) struct Link {
    /// The switch; the instrument records while it is 0.
    pub(crate) switch: &'static AtomicU64,
    /// The instrument's ID in the session.
    pub(crate) id: u32,
    /// The memory; `None` if there is no session or there are several.
    pub(crate) area: Option<&'static Area>,
    /// The links to each of several sessions. Such a link is always on, and the links to the
    /// sessions contain their own switches; an instrument of one session therefore pays nothing for
    /// the possibility of more.
    pub(crate) several: &'static [&'static Link],
}

impl Session {
    /// Creates a session. Its memory is never freed, so processes should create few.
    ///
    /// # Errors
    ///
    /// There is no memory, or the geometry is invalid.
    pub fn create(geometry: Geometry) -> Result<&'static Session, SessionError> {
        Area::create(geometry).map(Self::of)
    }

    /// Maps a session that this or another process has created.
    ///
    /// # Errors
    ///
    /// The path cannot be opened or mapped, or is not a session.
    pub fn open(path: &Path) -> Result<&'static Session, SessionError> {
        Area::open(path).map(Self::of)
    }

    /// Links point to the memory, so it must have its final address before they are created.
    fn of(area: Area) -> &'static Session {
        let area: &'static Area = Box::leak(Box::new(area));
        let link = |index: usize| Link {
            switch: &area.definition(index)[layout::definition::SWITCH],
            id: index as u32 + 1,
            area: Some(area),
            several: &[],
        };
        let links = (0..area.geometry().definitions).map(link).collect();
        Box::leak(Box::new(Session { area, links }))
    }

    /// Returns the path at which other processes find the session for as long as this process
    /// exists.
    pub fn path(&self) -> PathBuf {
        self.area.path()
    }

    /// Returns its size.
    pub fn geometry(&self) -> Geometry {
        self.area.geometry()
    }

    /// Returns the current time, in ticks of its records.
    pub fn now(&self) -> u64 {
        self.area.now()
    }

    /// Returns whether its pages are locked in memory. They are not if `RLIMIT_MEMLOCK` is too low;
    /// the kernel may then evict them when memory is short, and a writer may wait for a page.
    pub fn locked(&self) -> bool {
        self.area.locked()
    }

    /// Returns whether it has ended, so that nothing is recorded any more.
    pub fn ended(&self) -> bool {
        self.area.ended()
    }

    /// Frees the memory of the session as far as it belongs to this process: its address range
    /// stays reserved and becomes empty. For a process that has
    /// [detached](crate::instrument::detach) and will not attach to the session again. A thread
    /// that is recording at the same time writes to memory that nobody reads.
    ///
    /// # Errors
    ///
    /// Returns the error of the kernel. The memory is unchanged then.
    pub fn withdraw(&self) -> io::Result<()> {
        self.area.withdraw()
    }

    /// Requests the recorder to write the recorded data (flight recorder) or to write all buffers
    /// while all processors wait (dump mode).
    pub fn ask_for_dump(&self) {
        self.area.ask_for_dump();
    }

    pub(crate) fn area(&self) -> &'static Area {
        self.area
    }

    /// Returns the link of the instrument with the ID that [`Session::define`] returned.
    pub(crate) fn link(&'static self, id: u32) -> Option<&'static Link> {
        self.links.get((id as usize).checked_sub(1)?)
    }
}
