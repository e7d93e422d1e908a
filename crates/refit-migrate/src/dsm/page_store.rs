//! The pages of a group that one holder has: a file, in which a page's place is its address, and those who wait for what is not in it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use refit_sys::memfd;
use refit_sys::userfault::{Cause, CopyModes, Modes, Userfault, Wake};

use crate::dsm::Access;
use crate::page::PAGE_SIZE;

/// What a page has that nobody has written to.
const ZEROS: [u8; PAGE_SIZE as usize] = [0; PAGE_SIZE as usize];

/// A holder's pages.
#[derive(Debug)]
pub(crate) struct Store {
    frames: Arc<File>,
    userfault: Userfault,
    /// Pages that are held to be read only. Held while mappings and pages change.
    protected: Mutex<BTreeSet<u64>>,
}

impl Store {
    /// That of a process whose userfaultfd this is, agreed on.
    pub(crate) fn new(frames: Arc<File>, userfault: Userfault) -> Arc<Self> {
        Arc::new(Self { frames, userfault, protected: Mutex::default() })
    }

    /// What holds them.
    pub(crate) fn frames(&self) -> &Arc<File> {
        &self.frames
    }

    /// Who waits is told there.
    pub(crate) fn userfault(&self) -> &Userfault {
        &self.userfault
    }

    /// A mapping of frames is made by `make`, without any access, and then opened by `open`.
    ///
    /// # Errors
    /// What they say; that it cannot be served.
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

    /// Serves a mapping of frames that nobody can touch yet.
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

    /// The holder has pages now: with these bytes, whole pages of them. Who waits for them goes on.
    ///
    /// # Errors
    /// They cannot be put there.
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

    /// Puts the page where it cannot be mapped.
    fn put_aside(&self, page: u64, bytes: &[u8], protect: bool, cause: Cause) -> io::Result<()> {
        let whole = page..page + PAGE_SIZE;
        match cause {
            // It is there; or nothing is mapped there now, and whoever maps it finds it.
            Cause::Present | Cause::Unregistered => self.frames.write_all_at(bytes, page)?,
            _ => return Err(io::Error::other(format!("no page can be put at {page:#x}"))),
        }
        match (cause, protect) {
            (Cause::Unregistered, _) => {}
            (_, true) => self.protect(whole.clone())?,
            (_, false) => mapped(self.userfault.unprotect(whole.clone(), Wake::Later))?,
        }
        self.userfault.wake(whole)
    }

    /// The holder, which has a page already, may have it in this way. Who waits for it goes on.
    ///
    /// # Errors
    /// It cannot be put there.
    pub(crate) fn permit(&self, page: u64, access: Access) -> io::Result<()> {
        let mut protected = self.lock();
        let whole = page..page + PAGE_SIZE;
        if access == Access::Write {
            protected.remove(&page);
        }
        let protect = protected.contains(&page);
        // It may be one that nobody has touched yet.
        match self.put(page, &ZEROS, protect) {
            Err((_, Cause::Present)) if !protect => {
                mapped(self.userfault.unprotect(whole.clone(), Wake::Later))?;
            }
            Err((_, Cause::Other)) => {
                return Err(io::Error::other(format!("no page can be put at {page:#x}")));
            }
            _ => {}
        }
        self.userfault.wake(whole)
    }

    /// Puts an empty page where the holder has none but might; whether that was so.
    pub(crate) fn fresh(&self, page: u64) -> bool {
        let protected = self.lock();
        !protected.contains(&page) && self.userfault.copy(page, &ZEROS, CopyModes::empty()).is_ok()
    }

    /// Puts pages where none are; how many bytes of them, and what stood in the way, if not all.
    fn put(&self, page: u64, bytes: &[u8], protect: bool) -> Result<(), (usize, Cause)> {
        let modes = if protect { CopyModes::WRITE_PROTECT } else { CopyModes::empty() };
        loop {
            match self.userfault.copy(page, bytes, modes) {
                Ok(()) => return Ok(()),
                // The process changes its memory.
                Err(short) if short.done == 0 && short.cause() == Cause::Again => {
                    thread::yield_now();
                }
                Err(short) => return Err((short.done as usize, short.cause())),
            }
        }
    }

    /// The holder has these pages no more, or `keeps` them to be read; what is on them.
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

    /// What the holder has of these ranges is not needed any more.
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

    /// Has those wait who write to pages of a range, as far as anything is mapped there.
    fn protect(&self, range: Range<u64>) -> io::Result<()> {
        match self.userfault.protect(range.clone()) {
            // Something of it is not.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                let mut pages = range.step_by(PAGE_SIZE as usize);
                pages.try_for_each(|page| mapped(self.protect_now(page..page + PAGE_SIZE)))
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                mapped(self.protect_now(range))
            }
            done => mapped(done),
        }
    }

    fn protect_now(&self, range: Range<u64>) -> io::Result<()> {
        loop {
            match self.userfault.protect(range.clone()) {
                // The process changes its memory.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => thread::yield_now(),
                done => return done,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.protected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was done to pages, of which it does not matter if nobody has them mapped.
fn mapped(done: io::Result<()>) -> io::Result<()> {
    match done {
        // The process has ended, or the range is not served.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(()),
        done => done,
    }
}
