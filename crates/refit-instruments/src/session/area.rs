//! The mapped memory of a session, and the writing of records into it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use refit_sys::thread::Busy;
use refit_sys::words::Words;
use refit_sys::{clock, futex, process, processor};

use super::error::SessionError;
use super::layout::header::{ENDED, WAITS};
use super::layout::{self, Geometry, header, ring};
use crate::block::ClockSource;
use crate::record::{Phase, What};
use crate::ring::{ReserveError, Ring};

/// The interval at which a writer that waits for a dump checks whether the recorder still
/// exists.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The memory of a session.
#[derive(Debug)]
pub(crate) struct Area {
    words: Words,
    geometry: Geometry,
    cycles: bool,
    rings: Box<[Ring<'static>]>,
}

impl Area {
    /// Creates the memory of an empty session.
    pub(super) fn create(geometry: Geometry) -> Result<Self, SessionError> {
        let geometry = geometry.checked().map_err(SessionError::Geometry)?;
        let failed = |source| SessionError::Map { path: "of this process".into(), source };
        let words = Words::new(c"refit-session", geometry.words()).map_err(failed)?;
        let set = |index: usize, value: u64| words.get()[index].store(value, Ordering::Relaxed);
        set(header::VERSION, layout::VERSION);
        set(header::CLOCK, if clock::even() { 1 } else { 2 });
        set(header::PROCESSORS, geometry.processors as u64);
        set(header::RECORDS, geometry.records as u64);
        set(header::DEFINITIONS, geometry.definitions as u64);
        for processor in 0..geometry.processors {
            let head = geometry.rings_at() + processor * layout::RING;
            set(head + ring::LIMIT, geometry.records as u64);
        }
        // Pairs with the Acquire in `map`.
        words.get()[header::MAGIC].store(layout::MAGIC, Ordering::Release);
        Self::map(words, "of this process")
    }

    /// Maps the memory of an existing session.
    pub(super) fn open(path: &Path) -> Result<Self, SessionError> {
        let name = path.display().to_string();
        let file = File::options().read(true).write(true).open(path);
        match file.and_then(Words::open) {
            Ok(words) => Self::map(words, &name),
            Err(source) => Err(SessionError::Map { path: name, source }),
        }
    }

    fn map(words: Words, path: &str) -> Result<Self, SessionError> {
        let foreign = |what| SessionError::Foreign { path: path.to_owned(), what };
        let all = words.get();
        let word = |index: usize| all[index].load(Ordering::Relaxed) as usize;
        if all.len() < layout::HEADER {
            return Err(foreign("it is too short"));
        }
        // Pairs with the Release in `create`.
        if all[header::MAGIC].load(Ordering::Acquire) != layout::MAGIC {
            return Err(foreign("its magic number is missing"));
        }
        if word(header::VERSION) as u64 != layout::VERSION {
            return Err(foreign("its version differs"));
        }
        let geometry = Geometry {
            processors: word(header::PROCESSORS),
            records: word(header::RECORDS),
            definitions: word(header::DEFINITIONS),
        };
        let geometry = geometry.checked().map_err(|_| foreign("its sizes are invalid"))?;
        if all.len() < geometry.words() {
            return Err(foreign("it is shorter than its header says"));
        }
        processor::prepare();
        refit_sys::thread::prepare_fork();
        let rings = (0..geometry.processors).map(|p| ring_of(all, &geometry, p)).collect();
        let cycles = word(header::CLOCK) == 1;
        Ok(Self { words, geometry, cycles, rings })
    }

    /// Returns the path at which other processes find it for as long as this process exists.
    pub(super) fn path(&self) -> PathBuf {
        let fd = self.words.as_fd().as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id()).into()
    }

    /// Returns whether its pages are locked in memory. Otherwise the kernel may evict them, and
    /// writers may wait for them.
    pub(super) fn locked(&self) -> bool {
        self.words.locked()
    }

    /// Implements [`Session::withdraw`](super::Session::withdraw).
    pub(super) fn withdraw(&self) -> std::io::Result<()> {
        self.words.withdraw()
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn rings(&self) -> &[Ring<'static>] {
        &self.rings
    }

    /// Returns a word of the header.
    pub(crate) fn header(&self, index: usize) -> &'static AtomicU64 {
        &self.words.get()[index]
    }

    /// Returns the words of a definition; `index` must be below the number in the geometry.
    pub(super) fn definition(&self, index: usize) -> &'static [AtomicU64] {
        let at = self.geometry.definitions_at() + index * layout::DEFINITION;
        &self.words.get()[at..at + layout::DEFINITION]
    }

    /// Returns an instrument's count and sum on a processor; `None` if there is no such instrument
    /// or processor.
    pub(crate) fn cell(&self, processor: usize, id: u32) -> Option<&'static [AtomicU64; 2]> {
        let index = (id as usize).checked_sub(1)?;
        let inside = index < self.geometry.definitions && processor < self.geometry.processors;
        let row = self.geometry.cells_at() + processor * self.geometry.definitions * layout::CELL;
        let at = row + index * layout::CELL;
        if inside { self.words.get()[at..].first_chunk() } else { None }
    }

    /// Resets an instrument's totals to zero.
    pub(crate) fn reset(&self, id: u32) {
        for processor in 0..self.geometry.processors {
            let cell = self.cell(processor, id).into_iter().flatten();
            cell.for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// Returns the current time by the clock of the records.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        if self.cycles { clock::counter() } else { clock::raw() }
    }

    pub(crate) fn clock(&self) -> ClockSource {
        if self.cycles { ClockSource::Cycles } else { ClockSource::MonotonicRaw }
    }

    /// Writes a record into the ring of the current processor.
    #[inline(always)]
    pub(crate) fn record(&self, id: u32, phase: Phase, payload: [u64; 2]) {
        let busy = Busy::begin();
        let head = u64::from(What::new(id, phase).word()) | u64::from(busy.id()) << 32;
        // A processor that did not exist when the session was created has no ring; this does not
        // occur on the same host.
        if let Some(ring) = self.rings.get(processor::current())
            && ring.write(|| self.now(), head, payload).is_err()
        {
            self.refused(ring, head, payload, busy.nested());
        }
        busy.end();
    }

    /// Handles a record for which there is no slot. In dump mode it waits for a dump as long as the
    /// recorder exists, but not in a signal handler that interrupted a writer, since the recorder
    /// may be waiting for that writer.
    #[cold]
    #[inline(never)]
    fn refused(&self, ring: &Ring, head: u64, payload: [u64; 2], nested: bool) {
        let dumps = self.header(header::DUMPS);
        let mut stood = None;
        loop {
            // Loaded before the next attempt: a dump that ends after the attempt has then changed
            // the word, and the wait returns at once. Pairs with the Release in `Area::dumped`.
            let dump = dumps.load(Ordering::Acquire);
            let refused = match ring.write(|| self.now(), head, payload) {
                Ok(()) => return self.stands_no_more(stood),
                Err(refused) => refused,
            };
            let state = self.header(header::STATE).load(Ordering::Acquire);
            if state & ENDED != 0 {
                return;
            }
            if state & WAITS == 0 || nested {
                ring.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            stood = stood.or_else(|| self.stand());
            if refused == ReserveError::Full {
                self.ask_for_dump();
            }
            futex::wait(dumps, dump as u32, POLL_INTERVAL);
            if !self.recorder_lives() {
                self.end();
            }
        }
    }

    /// Records the time from which a thread waits, if none waited before. Returns that time then.
    fn stand(&self) -> Option<u64> {
        let (stood, now) = (self.header(header::STOOD), self.now());
        // Pairs with the swap in `dumped`.
        stood.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(now)
    }

    /// Removes the time that [`Area::stand`] recorded if the dump ended before that; otherwise the
    /// next dump would seem to begin at it.
    fn stands_no_more(&self, since: Option<u64>) {
        if let Some(since) = since {
            let stood = self.header(header::STOOD);
            // Fails if `dumped` has taken it, as it should.
            let _ = stood.compare_exchange(since, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Requests a dump from the recorder.
    pub(super) fn ask_for_dump(&self) {
        let requests = self.header(header::ASKED);
        // Pairs with the Acquire of the recorder.
        requests.fetch_add(1, Ordering::AcqRel);
        futex::wake(requests);
    }

    /// Notifies all waiting threads that a dump has ended and the rings are open. Returns the first
    /// tick at which a thread waited.
    pub(crate) fn dumped(&self) -> u64 {
        // Pairs with the exchange in `stand`.
        let stood = self.header(header::STOOD).swap(0, Ordering::AcqRel);
        let dumps = self.header(header::DUMPS);
        // Pairs with the Acquire in `refused`.
        dumps.fetch_add(1, Ordering::AcqRel);
        futex::wake(dumps);
        stood
    }

    /// Returns whether the recording process exists. Without one there is nothing to wait for.
    fn recorder_lives(&self) -> bool {
        let id = self.header(header::RECORDER).load(Ordering::Acquire);
        let began = self.header(header::RECORDER_BEGAN).load(Ordering::Acquire);
        let Some(id) = u32::try_from(id).ok().filter(|id| *id != 0) else { return false };
        match process::life(id) {
            Some(life) => !life.ended() && life.began == began,
            // A process that cannot be examined, for example for lack of a descriptor, may be
            // alive.
            None => process::exists(id),
        }
    }

    /// Registers this process as the recorder; `waits` says whether writers that find no slot wait
    /// for it.
    pub(crate) fn begin(&self, waits: bool) {
        let me = std::process::id();
        let began = process::life(me).map_or(0, |life| life.began);
        self.header(header::RECORDER_BEGAN).store(began, Ordering::Release);
        self.header(header::RECORDER).store(u64::from(me), Ordering::Release);
        self.header(header::STATE).store(if waits { WAITS } else { 0 }, Ordering::Release);
    }

    /// Ends the session: nothing is recorded and no thread waits any more.
    pub(crate) fn end(&self) {
        // Pairs with the load in `refused`.
        self.header(header::STATE).fetch_or(ENDED, Ordering::AcqRel);
        let dumps = self.header(header::DUMPS);
        dumps.fetch_add(1, Ordering::AcqRel);
        futex::wake(dumps);
    }

    /// Returns whether the session has ended.
    pub(crate) fn ended(&self) -> bool {
        self.header(header::STATE).load(Ordering::Acquire) & ENDED != 0
    }
}

fn ring_of(all: &'static [AtomicU64], geometry: &Geometry, processor: usize) -> Ring<'static> {
    let head = geometry.rings_at() + processor * layout::RING;
    let first = geometry.slots_at() + processor * geometry.records * layout::SLOT;
    let slots = &all[first..first + geometry.records * layout::SLOT];
    Ring {
        reserved: &all[head + ring::RESERVED],
        limit: &all[head + ring::LIMIT],
        lost: &all[head + ring::LOST],
        slots: slots.as_chunks().0,
    }
}
