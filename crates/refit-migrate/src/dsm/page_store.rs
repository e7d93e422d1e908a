//! The pages of a group that one holder has: a file, in which a page's offset is its address, and
//! the threads that wait for pages that are not in it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use refit_sys::memfd;
use refit_sys::userfault::{Cause, CopyModes, Modes, Userfault, Wake};

use crate::dsm::Access;
use crate::page::PAGE_SIZE;

/// The content of a page that no thread has written to.
const ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];

/// A holder's pages.
#[derive(Debug)]
pub(crate) struct Store {
    frames: Arc<File>,
    userfault: Userfault,
    /// Pages that are held for reading only. Locked while mappings and pages change.
    protected: Mutex<BTreeSet<u64>>,
}

impl Store {
    /// Returns the store of a process with this userfaultfd, whose features are agreed.
    pub(crate) fn new(frames: Arc<File>, userfault: Userfault) -> Arc<Self> {
        Arc::new(Self { frames, userfault, protected: Mutex::default() })
    }

    /// Returns the file that holds the pages.
    pub(crate) fn frames(&self) -> &Arc<File> {
        &self.frames
    }

    /// Returns the descriptor that reports threads which wait.
    pub(crate) fn userfault(&self) -> &Userfault {
        &self.userfault
    }

    /// Has `make` make a mapping of frames without any access, serves it, and then has `open` give
    /// access to it.
    ///
    /// # Errors
    /// Those of both; the mapping cannot be served.
    pub(crate) fn map<E: From<io::Error>>(
        &self,
        range: &Range<u64>,
        make: impl FnOnce() -> Result<(), E>,
        open: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let protected = self.lock();
        make()?;
        self.serve(range, &protected)?;
        open()
    }

    /// Serves a mapping of frames that no thread can touch yet.
    ///
    /// # Errors
    /// It cannot be served.
    pub(crate) fn watch(&self, range: &Range<u64>) -> io::Result<()> {
        self.serve(range, &self.lock())
    }

    fn serve(&self, range: &Range<u64>, protected: &BTreeSet<u64>) -> io::Result<()> {
        self.userfault.register(range.clone(), Modes::MISSING | Modes::WRITE_PROTECT)?;
        let mut pages = protected.range(range.clone()).copied().peekable();
        while let Some(start) = pages.next() {
            let mut end = start + PAGE_SIZE;
            while pages.next_if_eq(&end).is_some() {
                end += PAGE_SIZE;
            }
            self.protect(start..end)?;
        }
        Ok(())
    }

    /// Gives the holder pages with these bytes, and wakes the threads that wait for them.
    ///
    /// # Errors
    /// The pages cannot be put there.
    pub(crate) fn grant(&self, page: u64, bytes: &[u8], access: Access) -> io::Result<()> {
        let mut protected = self.lock();
        let range = page..page + bytes.len() as u64;
        let protect = access == Access::Read;
        if protect {
            protected.extend(range.clone().step_by(PAGE_SIZE as usize));
        } else {
            protected.extract_if(range.clone(), |_| true).for_each(|_| ());
        }
        let mut rest = bytes;
        let mut at = page;
        while !rest.is_empty() {
            let done = match self.put(at, rest, protect) {
                Ok(()) => rest.len(),
                Err((0, Cause::Gone)) => return Ok(()),
                Err((0, cause)) => {
                    self.put_aside(at, &rest[..PAGE_SIZE as usize], protect, cause)?;
                    PAGE_SIZE as usize
                }
                Err((done, _)) => done,
            };
            rest = &rest[done..];
            at += done as u64;
        }
        Ok(())
    }

    /// Puts a page into the file that cannot be mapped.
    fn put_aside(&self, page: u64, bytes: &[u8], protect: bool, cause: Cause) -> io::Result<()> {
        let whole = page..page + PAGE_SIZE;
        match cause {
            // The page exists; or nothing is mapped there now, and the next mapping finds it.
            Cause::Present | Cause::Unregistered => self.frames.write_all_at(bytes, page)?,
            _ => return Err(io::Error::other(Unmappable { page })),
        }
        match (cause, protect) {
            (Cause::Unregistered, _) => {}
            (_, true) => self.protect(whole.clone())?,
            (_, false) => ignore_unmapped(self.userfault.unprotect(whole.clone(), Wake::Later))?,
        }
        self.userfault.wake(whole)
    }

    /// Gives the holder this access to a page that it has already, and wakes the threads that wait
    /// for it.
    ///
    /// # Errors
    /// The page cannot be put there.
    pub(crate) fn permit(&self, page: u64, access: Access) -> io::Result<()> {
        let mut protected = self.lock();
        let whole = page..page + PAGE_SIZE;
        if access == Access::Write {
            protected.remove(&page);
        }
        let protect = protected.contains(&page);
        // The page may be one that no thread has touched yet.
        match self.put(page, &ZEROS, protect) {
            Err((_, Cause::Present)) if !protect => {
                ignore_unmapped(self.userfault.unprotect(whole.clone(), Wake::Later))?;
            }
            Err((_, Cause::Other)) => {
                return Err(io::Error::other(Unmappable { page }));
            }
            _ => {}
        }
        self.userfault.wake(whole)
    }

    /// Makes each access to a page that will not come fail, and wakes the threads that wait for it,
    /// which may be threads of refit: a tracer that reads the memory of its program. No thread runs
    /// the program's code here any more: it has been killed, or the replica ends.
    pub(crate) fn poison(&self, page: u64) {
        let mut protected = self.lock();
        protected.remove(&page);
        let whole = page..page + PAGE_SIZE;
        loop {
            // A mark of protection would count as a page. None is there if this fails.
            let _ = self.userfault.unprotect(whole.clone(), Wake::Later);
            let poisoned = self.userfault.poison(whole.clone(), Wake::Later);
            match poisoned.map_err(|short| short.cause()) {
                // The process is changing its memory.
                Err(Cause::Again) => thread::yield_now(),
                // Kernels before 6.6 cannot do this. No thread of the program sees the zeros.
                Err(Cause::Other) => {
                    let _ = self.put(page, &ZEROS, false);
                    break;
                }
                Ok(()) | Err(_) => break,
            }
        }
        // This fails only if nothing is served there any more.
        let _ = self.userfault.wake(whole);
    }

    /// Maps an empty page that the holder may write to and has not touched. Returns whether it did.
    pub(crate) fn fresh(&self, page: u64) -> bool {
        let protected = self.lock();
        !protected.contains(&page) && self.userfault.copy(page, &ZEROS, CopyModes::empty()).is_ok()
    }

    /// Maps pages where none are. The error is the number of bytes that were mapped, and what stood
    /// in the way of the rest.
    fn put(&self, page: u64, bytes: &[u8], protect: bool) -> Result<(), (usize, Cause)> {
        let modes = if protect { CopyModes::WRITE_PROTECT } else { CopyModes::empty() };
        loop {
            match self.userfault.copy(page, bytes, modes) {
                Ok(()) => return Ok(()),
                // The process is changing its memory.
                Err(short) if short.done == 0 && short.cause() == Cause::Again => {
                    thread::yield_now();
                }
                Err(short) => return Err((short.done as usize, short.cause())),
            }
        }
    }

    /// Takes pages from the holder, which keeps them for reading if `keeps`. Returns their content.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn surrender(&self, range: Range<u64>, keeps: bool) -> io::Result<Vec<u8>> {
        let mut protected = self.lock();
        self.protect(range.clone())?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.frames.read_exact_at(&mut bytes, range.start)?;
        if keeps {
            protected.extend(range.step_by(PAGE_SIZE as usize));
        } else {
            protected.extract_if(range.clone(), |_| true).for_each(|_| ());
            memfd::punch(self.frames.as_fd(), range)?;
        }
        Ok(bytes)
    }

    /// Discards the holder's pages of these ranges.
    ///
    /// # Errors
    /// They are not within the file.
    pub(crate) fn discard(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut protected = self.lock();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            protected.extract_if(range.clone(), |_| true).for_each(|_| ());
            memfd::punch(self.frames.as_fd(), range.clone())?;
        }
        Ok(())
    }

    /// Makes writes to pages of a range wait, as far as anything is mapped there.
    fn protect(&self, range: Range<u64>) -> io::Result<()> {
        match self.userfault.protect(range.clone()) {
            // A part of the range is not mapped.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                let mut pages = range.step_by(PAGE_SIZE as usize);
                pages.try_for_each(|page| ignore_unmapped(self.protect_now(page..page + PAGE_SIZE)))
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                ignore_unmapped(self.protect_now(range))
            }
            done => ignore_unmapped(done),
        }
    }

    fn protect_now(&self, range: Range<u64>) -> io::Result<()> {
        loop {
            match self.userfault.protect(range.clone()) {
                // The process is changing its memory.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => thread::yield_now(),
                done => return done,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.protected.lock()
    }
}

/// The error that no page can be mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no page can be put at {page:#x}")]
struct Unmappable {
    page: u64,
}

/// Ignores the error of an operation on pages that nobody has mapped.
fn ignore_unmapped(done: io::Result<()>) -> io::Result<()> {
    match done {
        // The process has ended, or the range is not served.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(()),
        done => done,
    }
}
