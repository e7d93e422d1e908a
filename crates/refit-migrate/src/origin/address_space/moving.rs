//! Frames whose pages move between nodes: served by a page home, and gathered here where the origin
//! needs them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use refit_sys::pidfd::Pidfd;
use refit_sys::userfault::Userfault;

use crate::dsm::{self, PageHomeHandle};
use crate::frames::within;
use crate::origin::address_space::{AddressSpace, STOP_ALL_TIMEOUT};
use crate::page::PAGE_SIZE;

impl AddressSpace {
    /// Has all frames served from now on, by the page home that `begin` makes of the program's
    /// userfaultfd. No other node may have any of them mapped.
    pub(crate) fn begin_moving(
        &mut self,
        begin: impl FnOnce(Arc<File>, Userfault) -> io::Result<PageHomeHandle>,
    ) -> io::Result<()> {
        let (process, agent) = (self.process, self.agent_task);
        // Not by a thread of the program: it may be in a call.
        let number = self.call(libc::SYS_userfaultfd, dsm::OPEN)?;
        let number =
            u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(-(number as i32)))?;
        let userfault = Pidfd::open(self.agent_task).and_then(|task| task.get_fd(number));
        self.call(libc::SYS_close, [number.into(), 0, 0, 0, 0, 0])?;
        let userfault = dsm::agree(userfault?)?;
        let page_home = begin(Arc::clone(&self.frames), userfault)?;
        let server = page_home.clone();
        let watch = move || {
            let all = within(agent, &(0..u64::MAX))?;
            all.iter().try_for_each(|mapping| server.watch(&mapping.range))
        };
        let watched = self.supervisor.while_stopped(process, STOP_ALL_TIMEOUT, watch).flatten();
        match watched {
            Ok(()) => self.page_home = Some(page_home),
            Err(error) => {
                page_home.close();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Does `work` while all threads of the process are stopped, and all pages of a range are here.
    pub(super) fn with_all_here<R: Send + 'static>(
        &self,
        range: Range<u64>,
        work: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let page_home = self.page_home.clone();
        let work = move || match page_home {
            Some(page_home) => page_home.gather(range, work).flatten(),
            None => work(),
        };
        self.supervisor.while_stopped(self.process, STOP_ALL_TIMEOUT, work).flatten()
    }

    /// Frees the frames in a range, which are not needed any more or must become zeros.
    pub(crate) fn drop_frames(&self, range: &Range<u64>) -> io::Result<()> {
        let whole =
            range.start / PAGE_SIZE * PAGE_SIZE..range.end.min(refit_tracer::placement::TOP);
        if whole.is_empty() {
            return Ok(());
        }
        if let Some(page_home) = &self.page_home {
            page_home.discard(vec![whole.clone()])?;
        }
        refit_sys::memfd::punch(self.frames.as_fd(), whole)
    }

    /// Clears a word at the end of a thread, and wakes the threads that wait for that, as the
    /// kernel does unless the word's page is at another node.
    pub(crate) fn clear(&self, word: u64, thread: u32) -> io::Result<()> {
        let Some(page_home) = &self.page_home else { return Ok(()) };
        let frames = Arc::clone(&self.frames);
        let page = word / PAGE_SIZE * PAGE_SIZE;
        let still_there = page_home.gather(page..page + PAGE_SIZE, move || {
            let mut value = [0; 4];
            frames.read_exact_at(&mut value, word)?;
            let there = u32::from_ne_bytes(value) == thread;
            if there {
                frames.write_all_at(&[0; 4], word)?;
            }
            io::Result::Ok(there)
        })??;
        if still_there {
            let wake = libc::FUTEX_WAKE.cast_unsigned().into();
            self.call(libc::SYS_futex, [word, wake, i32::MAX as u64, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Makes frames in a range show what they would show if the private memory that they stand for
    /// was dropped.
    pub(crate) fn show_again(&self, range: &Range<u64>) -> io::Result<()> {
        let parts = within(self.agent_task, range)?;
        parts.iter().try_for_each(|part| match &self.page_home {
            None => self.former.show_again(&self.frames, &part.range),
            Some(page_home) => {
                page_home.discard(vec![part.range.clone()])?;
                let show = || self.former.show_again(&self.frames, &part.range);
                page_home.gather(part.range.clone(), show).flatten()
            }
        })
    }
}
