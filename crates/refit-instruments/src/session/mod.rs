//! A session: the memory that instruments write to and recorders read, shared by any number of processes.
//!
//! Whoever records makes it (a memfd) and hands its path on in the environment variable [`VARIABLE`]; programs map it
//! with [`attach_environment`], or with [`Session::open`] and [`attach`](crate::instrument::attach) when they are told
//! of it later. Where things are in it stands in [`layout`]. It stays mapped until the process ends.
//!
//! Memory that programs share can be written by each of them at will. So nothing in it is trusted further than a wrong
//! record or a lost one: numbers are checked against the geometry, which is read once.

mod area;
mod definitions;
mod known;
pub mod layout;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

pub(crate) use area::Area;
pub use definitions::{Described, Kind, Switch};
pub use known::Known;
pub use layout::Geometry;

/// Environment variable that tells programs where the session is: a path such as `/proc/PID/fd/N`.
pub const VARIABLE: &str = "REFIT_SESSION";

/// Bit of [`layout::header::STATE`]: writers that find no place wait for a dump.
const WAITS: u64 = 1;
/// Bit of [`layout::header::STATE`]: the session has ended.
const ENDED: u64 = 2;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No memory, or the path cannot be opened.
    #[error("cannot map the session {path}: {source}")]
    Map {
        /// What was to be mapped.
        path: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// What is there is something else, or of another version.
    #[error("{path} is no session of version {}: {what}", layout::VERSION)]
    Foreign {
        /// What was mapped.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Sizes that nobody means.
    #[error("a session cannot have {0:?}: records and definitions are powers of two")]
    Geometry(Geometry),
}

/// A mapped session.
#[derive(Debug)]
pub struct Session {
    area: &'static Area,
    links: Box<[Link]>,
}

/// What an instrument needs to know to record.
#[derive(Debug)]
pub(crate) struct Link {
    /// 0: record.
    pub(crate) switch: &'static AtomicU64,
    /// The instrument's id in the session.
    pub(crate) id: u32,
    /// `None`: there is no session, or there are several.
    pub(crate) area: Option<&'static Area>,
    /// The links to each of several sessions. Such a link is always on, and these say what is
    /// suspended; so an instrument of one session pays nothing for the possibility of more.
    pub(crate) several: &'static [&'static Link],
}

impl Session {
    /// Makes a session. Its memory is never given back, so make few.
    ///
    /// # Errors
    /// No memory, or a geometry that makes no sense.
    pub fn create(geometry: Geometry) -> Result<&'static Session, SessionError> {
        Area::create(geometry).map(Self::of)
    }

    /// Maps a session that another process, or this one, has made.
    ///
    /// # Errors
    /// It cannot be opened or mapped, or is no session.
    pub fn open(path: &Path) -> Result<&'static Session, SessionError> {
        Area::open(path).map(Self::of)
    }

    /// Links point to the memory, so it has its place before them.
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

    /// Where other processes find the session, as long as this one lives.
    pub fn path(&self) -> PathBuf {
        self.area.path()
    }

    /// Its sizes.
    pub fn geometry(&self) -> Geometry {
        self.area.geometry()
    }

    /// The time now, in ticks of its records.
    pub fn now(&self) -> u64 {
        self.area.now()
    }

    /// Whether its pages are locked in memory. They are not where `RLIMIT_MEMLOCK` is too low; then the kernel may
    /// take them away when memory is short, and a writer may wait for a page.
    pub fn locked(&self) -> bool {
        self.area.locked()
    }

    /// Whether it has ended: nothing is recorded any more.
    pub fn ended(&self) -> bool {
        self.area.ended()
    }

    /// Gives the memory of the session back as far as it is this process's: its address space stays, with nothing in it. For a process that has
    /// [detached](crate::instrument::detach) and will not attach to it again; a thread that is recording just then writes where nobody reads.
    ///
    /// # Errors
    /// The kernel refuses; the memory stays as it is then.
    pub fn withdraw(&self) -> io::Result<()> {
        self.area.withdraw()
    }

    /// Asks the recorder to write what is there (flight recorder) or to let all processors write (dump mode).
    pub fn ask_for_dump(&self) {
        self.area.ask_for_dump();
    }

    pub(crate) fn area(&self) -> &'static Area {
        self.area
    }

    /// The link of an instrument that [`Session::define`] gave this id.
    pub(crate) fn link(&'static self, id: u32) -> Option<&'static Link> {
        self.links.get((id as usize).checked_sub(1)?)
    }
}

/// Attaches this process to the session that [`VARIABLE`] names; `None`: it names none. To be called at the begin of
/// `main`.
///
/// # Errors
/// There is no session where it says.
pub fn attach_environment() -> Result<Option<&'static Session>, SessionError> {
    let Some(path) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let session = Session::open(Path::new(&path))?;
    crate::instrument::attach(session);
    Ok(Some(session))
}
