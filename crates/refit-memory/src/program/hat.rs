//! The interface of hardware address translation: which pages a program has, and at which addresses (Hui 2000, §3.2: HAT).
//!
//! Pages are put into the program and woken for with its userfaultfd. Nobody outside of a program can take a page away from it; a task
//! of ours that shares its memory does: it *moves* pages, without a copy, to a place that is ours, the staging area, where they are read,
//! and thrown away. `UFFDIO_MOVE` fails as long as the program changes its mappings and has not been heard, so that what has left is always
//! what stood there when its mapping was last known.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refit_objects::{Choices, Name, State, TransferError};
use refit_sys::agent::{Agent, Call};
use refit_sys::foreign::{Memory, Refused};
use refit_sys::pidfd::Pidfd;
use refit_sys::userfault::{Cause, CopyModes, MOVE_LENGTH, MoveModes, Userfault, Wake, move_call};

use crate::PAGE_SIZE;

const PAGE: u64 = PAGE_SIZE as u64;

/// Pages that can be taken at once: what their calls take fits into the agent's buffer.
pub const STAGING_AREA: usize = 64;

/// Why a page could not be put into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallError {
    /// The program has it already; who waits for it goes on.
    Present,
    /// The program changes its mappings: hear what it says first.
    Changing,
    /// Nothing is mapped there any more, or nothing of ours.
    Unmapped,
    /// The program has ended.
    Gone,
    /// Anything else, as an `errno`.
    Host(i32),
}

/// Not all pages could be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// How many, from the first on, are there.
    pub done: usize,
    /// Why the next is not.
    pub why: InstallError,
}

/// So that the wrapper `fault` can let calls fail.
impl refit_objects::FromErrno for Stopped {
    fn from_errno(errno: i32) -> Self {
        Stopped { done: 0, why: InstallError::Host(errno) }
    }
}

/// The pages of one program.
#[refit_objects::interface(name = "hat", state = ())]
pub trait Translation {
    /// Puts whole pages to where the program has none, from `address` on. Who waits goes on.
    fn install(&self, address: u64, pages: &[u8]) -> Result<(), Stopped>;
    /// Who waits for a page looks again.
    fn wake(&self, address: u64);
    /// Whoever touches this page from now on is told that it is lost (`SIGBUS`).
    /// `false`: not yet, the program changes its mappings, be it only that the staging area is emptied.
    fn poison(&self, address: u64) -> bool;
    /// Moves pages, sorted by address and at most [`STAGING_AREA`], out to the staging area, which is empty; what the kernel says of each. While it
    /// moves pages for itself (compaction), it can have moved one more than it says.
    fn take(&self, pages: &[u64]) -> Vec<Taken>;
    /// Reads what stands in the staging area for the pages that `take` was asked for; for each whether there is one. `None`: the program
    /// has ended.
    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>>;
    /// The program gets copies of its own of pages that it has shared with a child. Its faults must be heard meanwhile.
    fn own(&self, pages: &[u64]);
    /// Empties the staging area. Its faults must be heard meanwhile: this is one of its changes.
    fn clear(&self);
}

/// What has become of a page that was to be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the staging area.
    Gone,
    /// It stays: it is shared with a child, or with a device.
    Shared,
    /// It stays: the program changes its mappings, or has no such page.
    Stays,
}

/// Name of the implementation.
const USERFAULT: &str = "userfault";

/// What moves pages out of a program.
#[derive(Debug)]
pub struct StagingArea {
    /// The task that does it.
    pub agent: Agent,
    /// The same, to be ended: it may be in a call of which the program's pager would have to hear.
    pub task: Pidfd,
    /// The number that the program's userfaultfd has there.
    pub userfault: u32,
    /// The program's memory.
    pub memory: Memory,
    /// Where pages are moved to: [`STAGING_AREA`] pages, registered with the userfaultfd.
    pub place: Range<u64>,
}

/// A program's userfaultfd and, once it is there, its staging area.
#[derive(Debug)]
pub struct Pages {
    userfault: Arc<Userfault>,
    staging_area: Mutex<Option<Arc<StagingArea>>>,
}

impl Pages {
    /// Pages that can be put in, but not taken out yet.
    pub fn new(userfault: Arc<Userfault>) -> Arc<Self> {
        Arc::new(Self { userfault, staging_area: Mutex::new(None) })
    }

    /// Makes the object.
    pub fn create(self: &Arc<Self>, name: impl Into<Name>) -> TranslationRef {
        let pages = Arc::clone(self);
        let make = move || Server(Arc::clone(&pages));
        let choices = Choices::new().with(USERFAULT, TranslationInterface::rep, make);
        choices.create(name, USERFAULT).expect("it is the one choice")
    }

    /// Pages can be taken out from now on.
    pub fn attach_staging_area(&self, staging_area: StagingArea) {
        *lock(&self.staging_area) = Some(Arc::new(staging_area));
    }

    /// Whether pages can be taken out.
    pub fn moored(&self) -> bool {
        self.staging_area().is_some()
    }

    /// They cannot any more: the program is gone, or has become another. Who waits for the agent does so no longer.
    pub fn cast_off(&self) {
        let staging_area = lock(&self.staging_area).take();
        if let Some(staging_area) = staging_area {
            staging_area.end();
        }
    }

    /// Not under the lock for longer: its agent may have to be waited for.
    fn staging_area(&self) -> Option<Arc<StagingArea>> {
        lock(&self.staging_area).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // It is whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
                // What has stopped it behind its first page is told by trying again.
                Cause::Again if short.done > 0 => continue,
                Cause::Again => InstallError::Changing,
                // The mapping ends among them: the kernel takes none unless all are in one.
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
        let page = address / PAGE * PAGE;
        // It says no only to what is no page.
        let _ = self.0.userfault.wake(page..page + PAGE);
    }

    fn poison(&self, address: u64) -> bool {
        let page = address / PAGE * PAGE;
        let poisoned = self.0.userfault.poison(page..page + PAGE, Wake::Now);
        match poisoned.map_err(|short| short.cause()) {
            Err(Cause::Again) => return false,
            Err(Cause::Present) => self.wake(address),
            // Where the kernel never can, who waits goes on waiting: better than with a wrong page.
            Ok(()) | Err(_) => {}
        }
        true
    }

    fn take(&self, pages: &[u64]) -> Vec<Taken> {
        let staging_area = self.0.staging_area();
        let taken = staging_area.as_ref().and_then(|staging_area| staging_area.take(pages).ok());
        taken.unwrap_or_else(|| vec![Taken::Stays; pages.len()])
    }

    fn own(&self, pages: &[u64]) {
        if let Some(staging_area) = self.0.staging_area() {
            // What cannot be had so is tried again with the next.
            let _ = staging_area.own(pages);
        }
    }

    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>> {
        let staging_area = self.0.staging_area();
        staging_area.as_ref().and_then(|staging_area| staging_area.fetch(into))
    }

    fn clear(&self) {
        if let Some(staging_area) = self.0.staging_area() {
            // What stands there would be taken for pages that are moved there next.
            if staging_area.clear().is_err() {
                self.0.cast_off();
            }
        }
    }
}

/// Nothing is left of it, whoever has not got to use it.
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

    /// One call for each page: what a longer one has moved when the kernel breaks it off cannot be told from its answer.
    fn take(&self, pages: &[u64]) -> io::Result<Vec<Taken>> {
        let data_at = self.agent.data_address(pages.len());
        let mut data = Vec::with_capacity(pages.len() * MOVE_LENGTH);
        let mut calls = Vec::with_capacity(pages.len());
        for (to, &page) in (self.place.start..).step_by(PAGE_SIZE).zip(pages) {
            let at = data_at + data.len() as u64;
            let modes = MoveModes::DONT_WAKE;
            let (call, request) = move_call(self.userfault, at, to, page, PAGE, modes);
            calls.push(call);
            data.extend(request);
        }
        let answers = self.agent.make(&calls, &mut data)?;
        let taken = |answer: i64| match answer {
            0 => Taken::Gone,
            _ if answer == -i64::from(libc::EBUSY) => Taken::Shared,
            _ => Taken::Stays,
        };
        Ok(answers.into_iter().map(taken).collect())
    }

    fn own(&self, pages: &[u64]) -> io::Result<()> {
        let populate = u64::from(libc::MADV_POPULATE_WRITE.cast_unsigned());
        let call = |&page: &u64| Call {
            number: libc::SYS_madvise,
            arguments: [page, PAGE, populate, 0, 0, 0],
        };
        let calls: Vec<Call> = pages.iter().map(call).collect();
        self.agent.make(&calls, &mut []).map(drop)
    }

    fn fetch(&self, into: &mut [u8]) -> Option<Vec<bool>> {
        let places = (self.place.start..).step_by(PAGE_SIZE);
        let there = places.zip(into.chunks_exact_mut(PAGE_SIZE)).map(|(place, page)| {
            match self.memory.read(place, page) {
                Ok(()) => Some(true),
                Err(Refused::Gone) => None,
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
            _ => Err(io::Error::other("it is not empty")),
        }
    }
}

// What it does is done to the program, and stays.
impl State<()> for Server {
    const PROMPT: bool = true;

    fn export(&self) -> Result<(), TransferError> {
        Ok(())
    }

    fn import(&self, (): ()) -> Result<(), TransferError> {
        Ok(())
    }
}
