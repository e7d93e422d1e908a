//! Pages that move between nodes which cannot borrow them, since their hosts share no memory (Katz
//! 2014, §5.7; DeX).
//!
//! ```text
//!   replica, or the program itself                     origin
//!     touches a page that is not there                   Directory: who has which page
//!        │ userfaultfd                                       ▲ one thread, the page home
//!      pager ──── Fetch ─────────────────────────────────────┤
//!      Store ◄─── PageGrant: bytes, or the right to write ───┤
//!      Store ──── content ◄───── PageRecall, ────────────────┘
//!                                PageInvalidate                of previous holders
//! ```
//!
//! Each holder, the origin among them, has a file of its own with the group's frames ([`Store`]),
//! in which a page's offset is its address. A page that it does not hold is a hole there, and a
//! thread that touches a hole waits. Of each page, either one holder may write to it, or any number
//! may read it ([`directory`]); a page that was never requested is the origin's.
//!
//! # Why no thread reads an old value
//!
//! 1. The page home handles one request after the other, and grants a page only after its previous
//!    holders have acknowledged that they have released it. So the directory always describes all
//!    stores, except for grants in flight.
//! 2. The messages of the page home to one holder arrive in order, and the holder obeys each at
//!    once, in the thread that receives it: so a grant takes effect before the page is recalled.
//! 3. A page is taken away by protecting it from writes, reading it, and punching it out. A write
//!    either comes before the protection, and is read; or it waits, and is made when the
//!    thread's node may write to the page again.
//! 4. A store gives no access to a mapping before it is served: a mapping begins without any
//!    access, is registered, pages that are held for reading are protected in it, and only then
//!    does it get its access; grants wait for that ([`Store::map`]).
//!
//! The order in which requests are served does not matter: some wait for the end of another
//! holder's [lease].
//!
//! A model in `directory`'s tests goes through 1 to 3: each interleaving of reads, writes and
//! messages of three holders.

use std::io;
use std::os::fd::OwnedFd;

use refit_sys::pidfd::Pidfd;
use refit_sys::trace::Tracee;
use refit_sys::userfault::{Features, Flags, Userfault};

mod directory;
mod home;
#[cfg(test)]
mod home_tests;
mod lease;
mod page_store;
#[cfg(test)]
mod page_store_tests;
#[cfg(test)]
#[expect(unsafe_code, reason = "it maps memory at given addresses, and accesses it there")]
mod test_memory;
mod uffd;

pub(crate) use directory::Access;
pub(crate) use home::{PageHome, PageHomeHandle};
pub(crate) use page_store::Store;
pub use uffd::Window;
pub(crate) use uffd::{PageRequest, Pager};

/// The features that the kernel must have.
const FEATURES: Features =
    Features::MISSING_SHMEM.union(Features::PAGEFAULT_FLAG_WP).union(Features::WP_HUGETLBFS_SHMEM);

/// The arguments of the call that opens a userfaultfd.
pub(crate) const OPEN: [u64; 6] = {
    let flags = Flags::CLOEXEC.bits() | Flags::NONBLOCK.bits();
    [flags as u64, 0, 0, 0, 0, 0]
};

/// Makes a userfaultfd ready that a process has just opened.
///
/// # Errors
/// The kernel lacks a feature.
pub(crate) fn agree(opened: OwnedFd) -> io::Result<Userfault> {
    let userfault = Userfault::from(opened);
    userfault.agree(FEATURES)?;
    Ok(userfault)
}

/// Has a stopped process open a userfaultfd for its memory, and takes it over.
///
/// # Errors
/// The kernel has none, or lacks a feature.
pub(crate) fn open(tracee: &mut Tracee, instruction: u64) -> io::Result<Userfault> {
    let number = tracee.call(instruction, libc::SYS_userfaultfd, OPEN)?;
    let fetched = Pidfd::open_thread(tracee.thread()).and_then(|task| task.get_fd(number as u32));
    tracee.call(instruction, libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    agree(fetched?)
}
