//! Writes to the standard error of a program that is about to end.
//!
//! The program may have replaced its standard error, and the reader may have stopped reading. So
//! refit writes only to the file that was there when the program began, and only as much as that
//! file accepts without blocking.

use std::io;

use refit_sys::pidfd::Pidfd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Stat};
use rustix::io::{Errno, ReadWriteFlags};

/// Its number.
const NUMBER: u32 = 2;
/// A pipe takes this number of bytes at once or none (`PIPE_BUF`).
const MOST: usize = 4096;

/// The file that is a program's standard error.
pub(super) struct StandardError {
    process: u32,
    file: Stat,
}

impl StandardError {
    /// That of a process now; `None`: it has none.
    pub(super) fn of(process: u32) -> Option<Self> {
        let file = rustix::fs::stat(format!("/proc/{process}/fd/{NUMBER}")).ok()?;
        Some(Self { process, file })
    }

    /// The process that has it.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Writes there, unless it is another file by now, or takes nothing now.
    ///
    /// # Errors
    /// It is closed, or cannot be reached; what the system says.
    pub(super) fn say(&self, text: &str) -> io::Result<()> {
        let file = Pidfd::open(self.process)?.get_fd(NUMBER)?;
        let now = rustix::fs::fstat(&file)?;
        let same = |of: fn(&Stat) -> u64| of(&now) == of(&self.file);
        if !(same(|file| file.st_dev) && same(|file| file.st_ino) && same(|file| file.st_rdev)) {
            return Ok(());
        }
        let mut polled = [PollFd::new(&file, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if polled[0].revents() != PollFlags::OUT {
            return Ok(());
        }
        let bytes = &text.as_bytes()[..text.len().min(MOST)];
        // Others may write to the same pipe just now: then not even this waits.
        let at_once = || {
            let (here, how) = (u64::MAX, ReadWriteFlags::NOWAIT);
            rustix::io::pwritev2(&file, &[io::IoSlice::new(bytes)], here, how)
        };
        // A file on a disk does not wait for a reader.
        let is_file = FileType::from_raw_mode(now.st_mode).is_file();
        match if is_file { Err(Errno::OPNOTSUPP) } else { at_once() } {
            Err(Errno::OPNOTSUPP) => rustix::io::write(&file, bytes)?,
            written => written?,
        };
        Ok(())
    }
}
