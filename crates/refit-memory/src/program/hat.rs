//! The interface of hardware address translation: the pages of a program, and their addresses (Hui
//! 2000, §3.2: HAT).
//!
//! The program's userfaultfd puts pages into the program and wakes the threads that wait for them.
//! Another process cannot remove a page, so the *agent* does, a task of refit's that shares the
//! program's memory: it *moves* pages, without a copy, to the *staging area*, where refit reads and
//! discards them. `UFFDIO_MOVE` fails from the beginning of a change of the program's mappings
//! until the message about the change has been read. So the contents of a page that has left always
//! belong to the mappings that refit knows.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use refit_objects::{Choices, Name, State, TransferError};
use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::{AccessError, Memory};
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pidfd::Pidfd;
use refit_sys::userfault::{Cause, CopyModes, MOVE_LENGTH, MoveModes, Userfault, Wake, move_call};

use crate::PAGE_SIZE;

/// The number of pages that can be taken at once: their calls fit into the agent's buffer.
pub const STAGING_AREA: usize = 64;

/// The reason that a page could not be put into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallError {
    /// The program has it already; the threads that wait for it continue.
    Present,
    /// The program is changing its mappings; its messages have to be read first.
    Changing,
    /// Nothing is mapped there any more, or nothing that refit serves.
    Unmapped,
    /// The program has ended.
    Gone,
    /// Any other error, as an `errno`.
    Host(i32),
}

/// The error that not all pages could be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The number of pages, from the first on, that are in.
    pub done: usize,
    /// The reason that the next one is not.
    pub why: InstallError,
}

/// Lets the wrapper `fault` make calls fail.
impl refit_objects::FromErrno for Stopped {
    fn from_errno(errno: i32) -> Self {
        Stopped { done: 0, why: InstallError::Host(errno) }
    }
}

/// The pages of one program.
#[refit_objects::interface(name = "hat", state = ())]
pub trait Translation {
    /// Puts whole pages where the program has none, from `address` on, and wakes the threads that
    /// wait for them.
    fn install(&self, address: u64, pages: &[u8]) -> Result<(), Stopped>;
    /// Makes threads that wait for a page look again.
    fn wake(&self, address: u64);
    /// Poisons a page that is lost, so that an access raises `SIGBUS`. Returns false if that is not
    /// possible yet, because the program is changing its mappings; emptying the staging area counts
    /// as such a change.
    fn poison(&self, address: u64) -> bool;
    /// Moves pages, sorted by address and at most [`STAGING_AREA`], to the staging area, which has
    /// to be empty. Returns the kernel's result for each. While the kernel moves pages for itself
    /// (compaction), it can have moved one more than it reports.
    fn take(&self, pages: &[u64]) -> Vec<TakeOutcome>;
    /// Reads the pages in the staging area that `take` was asked for. Returns for each whether it
    /// is there; `None` if the program has ended.
    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>>;
    /// Gives the program its own copies of pages that it has shared with a child. Its faults must
    /// be served in the meantime.
    fn own(&self, pages: &[u64]);
    /// Empties the staging area. The program's messages must be read in the meantime, since this is
    /// one of its changes.
    fn clear(&self);
}

/// The outcome of taking a page out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The page is in the staging area.
    Moved,
    /// The page stays, because it is shared with a child, or with a device.
    Shared,
    /// The page stays, because the program is changing its mappings, or has no such page.
    Stays,
}

/// The name of the implementation.
const USERFAULT: &str = "userfault";

/// The means to move pages out of a program.
#[derive(Debug)]
pub struct StagingArea {
    /// The task that moves them.
    pub agent: Agent,
    /// The same task, to kill it: it may be in a call that waits for the program's pager.
    pub task: Pidfd,
    /// The number of the program's userfaultfd in that task.
    pub userfault: u32,
    /// The program's memory.
    pub memory: Memory,
    /// The destination: [`STAGING_AREA`] pages, registered with the userfaultfd.
    pub place: Range<u64>,
}

/// A program's userfaultfd and, once attached, its staging area.
#[derive(Debug)]
pub struct Pages {
    userfault: Arc<Userfault>,
    staging_area: Mutex<Option<Arc<StagingArea>>>,
}

impl Pages {
    /// Creates the pages of a program, which can be put in, but not taken out yet.
    pub fn new(userfault: Arc<Userfault>) -> Arc<Self> {
        Arc::new(Self { userfault, staging_area: Mutex::new(None) })
    }

    /// Creates the object.
    pub fn create(self: &Arc<Self>, name: impl Into<Name>) -> TranslationRef {
        let pages = Arc::clone(self);
        let make = move || Server(Arc::clone(&pages));
        let choices = Choices::new().with(USERFAULT, TranslationInterface::rep, make);
        choices.create(name, USERFAULT).expect("it is the one choice")
    }

    /// Attaches the staging area, so that pages can be taken out from now on.
    pub fn attach_staging_area(&self, staging_area: StagingArea) {
        *self.staging_area.lock() = Some(Arc::new(staging_area));
    }

    /// Returns whether pages can be taken out.
    pub fn can_evict(&self) -> bool {
        self.staging_area().is_some()
    }

    /// Detaches the staging area, because the program has ended, or has executed another one.
    /// Threads that wait for the agent return.
    pub fn detach_staging_area(&self) {
        let staging_area = self.staging_area.lock().take();
        if let Some(staging_area) = staging_area {
            staging_area.end();
        }
    }

    /// Cloned, so that the lock is not held while a caller waits for the agent.
    fn staging_area(&self) -> Option<Arc<StagingArea>> {
        self.staging_area.lock().clone()
    }
}

struct Server(Arc<Pages>);

impl Translation for Server {
    fn install(&self, address: u64, pages: &[u8]) -> Result<(), Stopped> {
        let (mut done, mut end) = (0, pages.len());
        while done < end {
            let at = address + done as u64;
            let Err(short) = self.0.userfault.copy(at, &pages[done..end], CopyModes::empty())
            else {
                done = end;
                break;
            };
            done += short.done as usize;
            let why = match short.cause() {
                Cause::Present => {
                    self.wake(address + done as u64);
                    InstallError::Present
                }
                // The next attempt begins at the page that stopped this one, and returns the
                // reason.
                Cause::Again if short.done > 0 => continue,
                Cause::Again => InstallError::Changing,
                // The mapping ends among them: the kernel copies none unless all are in one
                // mapping.
                Cause::Unregistered if end - done > PAGE_SIZE => {
                    end = done + ((end - done) / 2).next_multiple_of(PAGE_SIZE);
                    continue;
                }
                Cause::Unregistered => InstallError::Unmapped,
                Cause::Gone => InstallError::Gone,
                Cause::Other => InstallError::Host(short.error.raw_os_error().unwrap_or(libc::EIO)),
            };
            return Err(Stopped { done: done / PAGE_SIZE, why });
        }
        match done / PAGE_SIZE {
            all if all * PAGE_SIZE == pages.len() => Ok(()),
            done => Err(Stopped { done, why: InstallError::Unmapped }),
        }
    }

    fn wake(&self, address: u64) {
        let page = address / PAGE_SIZE_U64 * PAGE_SIZE_U64;
        // The kernel refuses only addresses that are not of a page.
        let _ = self.0.userfault.wake(page..page + PAGE_SIZE_U64);
    }

    fn poison(&self, address: u64) -> bool {
        let page = address / PAGE_SIZE_U64 * PAGE_SIZE_U64;
        let poisoned = self.0.userfault.poison(page..page + PAGE_SIZE_U64, Wake::Now);
        match poisoned.map_err(|short| short.cause()) {
            Err(Cause::Again) => return false,
            Err(Cause::Present) => self.wake(address),
            // If the kernel cannot poison it, the thread waits on: better than with a wrong page.
            Ok(()) | Err(_) => {}
        }
        true
    }

    fn take(&self, pages: &[u64]) -> Vec<TakeOutcome> {
        let staging_area = self.0.staging_area();
        let taken = staging_area.as_ref().and_then(|staging_area| staging_area.take(pages).ok());
        taken.unwrap_or_else(|| vec![TakeOutcome::Stays; pages.len()])
    }

    fn own(&self, pages: &[u64]) {
        if let Some(staging_area) = self.0.staging_area() {
            // Pages for which that fails are tried again with the next batch.
            let _ = staging_area.own(pages);
        }
    }

    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>> {
        let staging_area = self.0.staging_area();
        staging_area.as_ref().and_then(|staging_area| staging_area.fetch(into))
    }

    fn clear(&self) {
        if let Some(staging_area) = self.0.staging_area() {
            // Pages left there would be mistaken for those that are moved there next.
            if staging_area.clear().is_err() {
                self.0.detach_staging_area();
            }
        }
    }
}

/// Ends the agent even if the staging area was never attached.
impl Drop for StagingArea {
    fn drop(&mut self) {
        self.end();
    }
}

impl StagingArea {
    fn end(&self) {
        self.agent.end();
        // `ESRCH`: it has ended, with the program or since.
        let _ = self.task.signal(libc::SIGKILL);
    }

    /// Makes one call for each page: if the kernel aborts a longer one, its result does not show
    /// which pages have been moved.
    fn take(&self, pages: &[u64]) -> io::Result<Vec<TakeOutcome>> {
        let data_at = self.agent.data_address(pages.len());
        let mut data = Vec::with_capacity(pages.len() * MOVE_LENGTH);
        let mut calls = Vec::with_capacity(pages.len());
        for (to, &page) in (self.place.start..).step_by(PAGE_SIZE).zip(pages) {
            let at = data_at + data.len() as u64;
            let modes = MoveModes::DONT_WAKE;
            let (call, request) = move_call(self.userfault, at, to, page, PAGE_SIZE_U64, modes);
            calls.push(call);
            data.extend(request);
        }
        let answers = self.agent.make(&calls, &mut data)?;
        let taken = |answer: i64| match answer {
            0 => TakeOutcome::Moved,
            _ if answer == -i64::from(libc::EBUSY) => TakeOutcome::Shared,
            _ => TakeOutcome::Stays,
        };
        Ok(answers.into_iter().map(taken).collect())
    }

    fn own(&self, pages: &[u64]) -> io::Result<()> {
        let populate = u64::from(libc::MADV_POPULATE_WRITE.cast_unsigned());
        let call = |&page: &u64| Call {
            number: libc::SYS_madvise,
            arguments: [page, PAGE_SIZE_U64, populate, 0, 0, 0],
        };
        let calls: Vec<Call> = pages.iter().map(call).collect();
        self.agent.make(&calls, &mut []).map(drop)
    }

    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>> {
        let places = (self.place.start..).step_by(PAGE_SIZE);
        let there = places.zip(into.chunks_exact_mut(PAGE_SIZE)).map(|(place, page)| {
            match self.memory.read(place, page) {
                Ok(()) => Some(true),
                Err(AccessError::Gone) => None,
                Err(_) => Some(false),
            }
        });
        there.collect()
    }

    fn clear(&self) -> io::Result<()> {
        let length = self.place.end - self.place.start;
        let arguments =
            [self.place.start, length, libc::MADV_DONTNEED.cast_unsigned().into(), 0, 0, 0];
        let answers = self.agent.make(&[Call { number: libc::SYS_madvise, arguments }], &mut [])?;
        match answers[..] {
            [0] => Ok(()),
            // The kernel's answer is the negated number of the error.
            [answer] => Err(io::Error::from_raw_os_error(answer.unsigned_abs() as i32)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

// Its effects are on the program, and stay there.
impl State<()> for Server {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}
