//! Pages that move between instances, where they cannot be borrowed: hosts that share no memory (Katz 2014, §5.7; DeX).
//!
//! ```text
//!   replica, or the program itself                     origin
//!     touches a page that is not there                   Directory: who has which page
//!        │ userfaultfd                                       ▲ one thread, the page home
//!      pager ──── Fetch ─────────────────────────────────────┤
//!      Store ◄─── PageGrant: bytes, or the right to write ───┤
//!      Store ──── what was on it ◄── PageRecall, ────────────┘
//!                                    PageInvalidate            of those who had it
//! ```
//!
//! Each holder, the origin among them, has a file of its own with the group's frames ([`Store`]), in which a page's place is its
//! address. A page that it does not hold is a hole there, and whoever touches a hole waits. Of each page either one holder may write to it,
//! or any number may read it ([`directory`]); a page that nobody has asked for is the origin's.
//!
//! # Why nobody reads what is not so any more
//!
//! 1. The page home does one thing after the other, and the next page is given only when those who had it have said that they have it no more:
//!    so at each moment the directory's word holds of all stores, but for grants that are on their way.
//! 2. What the page home says to one holder arrives in order, and the holder does it at once, in the thread that receives: so a grant is there
//!    before the page is taken again.
//! 3. A page is taken away by protecting it from writes, reading it, and punching it out. A write is either before the protection, and is
//!    read, or waits, and is made where the page is then.
//! 4. A store maps nothing that is open before it is served: a mapping begins without any access, is registered, what is held for reading only is protected
//!    in it, and only then is it opened; grants wait for that ([`Store::map`]).
//!
//! In which order questions are answered does not matter: some wait for the end of another holder's [turn](lease).
//!
//! 1 to 3 are gone through by a model in `directory`'s tests: each interleaving of reads, writes and messages of three holders.

use std::io;
use std::os::fd::OwnedFd;

use refit_sys::pidfd::Pidfd;
use refit_sys::trace::Tracee;
use refit_sys::userfault::{Features, Flags, Userfault};

mod directory;
mod home;
mod lease;
mod page_store;
mod uffd;

pub(crate) use directory::Access;
pub(crate) use home::{PageHome, PageHomeHandle};
pub(crate) use page_store::Store;
pub use uffd::Window;
pub(crate) use uffd::{PageRequest, Pager};

/// What is needed of the kernel.
const FEATURES: Features =
    Features::MISSING_SHMEM.union(Features::PAGEFAULT_FLAG_WP).union(Features::WP_HUGETLBFS_SHMEM);

/// What a userfaultfd is opened with, as arguments of the call.
pub(crate) const OPEN: [u64; 6] = {
    let flags = Flags::CLOEXEC.bits() | Flags::NONBLOCK.bits();
    [flags as u64, 0, 0, 0, 0, 0]
};

/// Makes one that a process has just opened ready.
///
/// # Errors
/// The kernel has not such a one.
pub(crate) fn agree(opened: OwnedFd) -> io::Result<Userfault> {
    let userfault = Userfault::from(opened);
    userfault.agree(FEATURES)?;
    Ok(userfault)
}

/// Has a process that stands open a userfaultfd for its memory, which stays here only.
///
/// # Errors
/// The kernel has none, or not such a one.
pub(crate) fn open(tracee: &mut Tracee, instruction: u64) -> io::Result<Userfault> {
    let number = tracee.call(instruction, libc::SYS_userfaultfd, OPEN)?;
    let fetched = Pidfd::open_thread(tracee.thread()).and_then(|task| task.get_fd(number as u32));
    tracee.call(instruction, libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    agree(fetched?)
}
