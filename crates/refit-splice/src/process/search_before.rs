//! Begins a search of a program before a stop ([`Searched`]): the program opens a userfaultfd for
//! its memory, which refit takes over.
//!
//! If refit is killed between the two calls that the program makes for this, it keeps a descriptor
//! that serves nothing. `remains::repair` closes it.

use std::ops::Range;
use std::sync::Arc;

use refit_sys::pidfd::Pidfd;
use refit_sys::userfault::{Features, USER_MODE_ONLY, Userfault};
use tracing::debug;

use super::call::Call;
use super::contexts;
use super::hold::STOP_TIMEOUT;
use super::own_memory;
use super::program::Program;
use super::refusal::Refusal;
use super::searched::Searched;
use super::still::Still;

/// Least amount of memory that is searched before a stop, in bytes: less takes less time than the
/// stop in which the program opens the descriptor.
const LEAST: u64 = 4 << 20;

/// Searches a program for words whose values are in what `within` returns. `None` if this is not
/// worth while, or if the kernel or the program does not permit to notice writes: all memory has to
/// be searched in the stop then.
pub(crate) fn search_before(
    program: &Program,
    within: impl FnOnce() -> Vec<Range<u64>>,
) -> Option<Arc<Searched>> {
    if own_memory::size(program.face())? < LEAST {
        return None;
    }
    let within = within();
    if within.is_empty() {
        return None;
    }
    Searched::new(program, open(program)?, within).map(Arc::new)
}

/// Lets the program open a userfaultfd for its memory, and takes it over.
fn open(program: &Program) -> Option<Userfault> {
    let opened = contexts::stand_still(program, STOP_TIMEOUT, None, take);
    match opened {
        Ok((userfault, _)) => userfault.filter(|one| one.agree(Features::WP_ASYNC).is_ok()),
        Err(refusal) => {
            debug!(process = program.id(), %refusal, "not searched before the stop");
            None
        }
    }
}

fn take(still: &mut Still<'_>) -> Result<Option<Userfault>, Refusal> {
    let call = Call::new(still)?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let flags = flags.cast_unsigned() | USER_MODE_ONLY.bits();
    let arguments = [flags.into(), 0, 0, 0, 0, 0];
    let number = call.make(still, "userfaultfd", libc::SYS_userfaultfd, arguments)?;
    let face = still.program().face();
    let taken = u32::try_from(number).ok().and_then(|number| {
        let process = Pidfd::open(face).or_else(|_| Pidfd::open_thread(face)).ok()?;
        process.get_fd(number).ok()
    });
    call.make(still, "close", libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    Ok(taken.map(Userfault::from))
}
