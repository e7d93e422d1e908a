//! Pages that a program pages itself, in the manner of UMap (Peng et al. 2019): a buffer of a fixed
//! number of pages with first-in, first-out replacement; a userfaultfd that reports missing pages
//! and, by write protection, pages that are written to; dirty pages go to a file.
//!
//! One thread of the program does all of it, as fast as it can, because here a fault waits for no
//! other thread.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::thread;

use refit_sys::memory::PAGE_SIZE;
use refit_sys::userfault::{CopyModes, Message, Modes, Userfault, Wake};
use rustix::event::{PollFd, PollFlags, poll};

use crate::area::Area;

/// The place of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Out,
    Clean,
    Dirty,
}

/// A buffer for a page that is aligned for reads past the page cache.
#[repr(align(4096))]
struct Hand([u8; PAGE_SIZE]);

struct Pager {
    area: Arc<Area>,
    userfault: Userfault,
    file: File,
    hand: Box<Hand>,
    places: Vec<Place>,
    /// The pages in memory, in the order of their arrival.
    queue: VecDeque<usize>,
    room: usize,
}

/// Serves the faults of `pages` pages, of which `room` are in memory, until the program ends.
/// `direct`: past the page cache.
pub(crate) fn serve(
    area: &Arc<Area>,
    pages: usize,
    room: usize,
    direct: bool,
) -> Result<(), String> {
    let userfault = area.tell(Modes::MISSING | Modes::WRITE_PROTECT)?;
    let flags = libc::O_TMPFILE | if direct { libc::O_DIRECT } else { 0 };
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/var/tmp");
    let file = opened.map_err(|e| format!("a file in /var/tmp: {e}"))?;
    file.set_len((pages * PAGE_SIZE) as u64).map_err(|e| format!("a file in /var/tmp: {e}"))?;
    let mut pager = Pager {
        area: Arc::clone(area),
        userfault,
        file,
        hand: Box::new(Hand([0; PAGE_SIZE])),
        places: vec![Place::Out; pages],
        queue: VecDeque::with_capacity(room),
        room,
    };
    thread::spawn(move || pager.run().expect("its pages are lost with it"));
    Ok(())
}

impl Pager {
    fn run(&mut self) -> std::io::Result<()> {
        let mut messages = Vec::new();
        loop {
            let _ =
                poll(&mut [PollFd::from_borrowed_fd(self.userfault.as_fd(), PollFlags::IN)], None);
            self.userfault.read(&mut messages)?;
            for message in messages.drain(..) {
                if let Message::Pagefault { address, access, .. } = message {
                    self.fault(self.area.page(address), access.write)?;
                }
            }
        }
    }

    fn fault(&mut self, page: usize, write: bool) -> std::io::Result<()> {
        let addresses = self.area.addresses(page..page + 1);
        match (self.places[page], write) {
            (Place::Out, _) => self.bring(page, write),
            (_, true) => {
                self.places[page] = Place::Dirty;
                self.userfault.unprotect(addresses, Wake::Now)
            }
            // Another thread has faulted on it before.
            (_, false) => self.userfault.wake(addresses),
        }
    }

    fn bring(&mut self, page: usize, write: bool) -> std::io::Result<()> {
        while self.queue.len() >= self.room {
            self.evict()?;
        }
        self.file.read_exact_at(&mut self.hand.0, (page * PAGE_SIZE) as u64)?;
        let modes = if write { CopyModes::empty() } else { CopyModes::WRITE_PROTECT };
        let at = self.area.addresses(page..page + 1).start;
        self.userfault.copy(at, &self.hand.0, modes).map_err(|short| short.error)?;
        self.places[page] = if write { Place::Dirty } else { Place::Clean };
        self.queue.push_back(page);
        Ok(())
    }

    fn evict(&mut self) -> std::io::Result<()> {
        let Some(page) = self.queue.pop_front() else { return Ok(()) };
        if self.places[page] == Place::Dirty {
            self.userfault.protect(self.area.addresses(page..page + 1))?;
            // SAFETY: the page is write-protected, and only this thread removes the protection.
            self.file.write_all_at(unsafe { self.area.bytes(page) }, (page * PAGE_SIZE) as u64)?;
        }
        self.area.discard(page..page + 1);
        self.places[page] = Place::Out;
        Ok(())
    }
}
