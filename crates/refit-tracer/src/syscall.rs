//! The system call that a tracee is in, as its registers show it.

use std::io;

use refit_sys::restart::{self, RESTARTS};
use refit_sys::trace::Tracee;

/// Returns the number and the arguments of the call that a tracee is about to make.
///
/// # Errors
/// `ESRCH`: it was killed meanwhile.
pub fn about_to_call(tracee: &Tracee) -> io::Result<(u64, [u64; 6])> {
    let registers = tracee.registers()?;
    Ok((registers.orig_rax, restart::arguments(&registers)))
}

/// Returns whether this result is one by which the kernel interrupts a call and restarts it
/// (`ERESTARTSYS` and the like). A program never sees it.
pub fn is_interrupted(rax: u64) -> bool {
    RESTARTS.contains(&rax.cast_signed())
}

/// Reads what a tracee passes to the call that it is in, where the page of its first argument can
/// be at another node. Fetches the page and reads again, as often as another node takes the page
/// back in between, if `elsewhere` returns that there are such pages.
///
/// # Errors
/// That of `read`.
pub fn with_page<R>(
    tracee: &Tracee,
    elsewhere: impl Fn() -> bool,
    read: impl Fn(&Tracee) -> io::Result<R>,
) -> io::Result<R> {
    /// A page that is taken away more often is in greater demand than any that was seen.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        match read(tracee) {
            Err(_) if elsewhere() => {
                refit_sys::foreign::bring(tracee.thread(), tracee.registers()?.rdi)?;
            }
            read => return read,
        }
    }
    read(tracee)
}
