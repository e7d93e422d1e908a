//! Sets a program up to be served: opens its userfaultfd, and makes an agent in it that can evict
//! pages.
//!
//! A thread of the program makes the calls for this, once, while it is stopped: it maps some pages
//! that are refit's, opens the userfaultfd, and makes the agent. Nothing of it stays among the
//! program's descriptors.
//!
//! ```text
//!   area:  agent's buffer and code │ staging area │ marks
//!                  not for children ──────┘ └── for children: a mark shows to which
//!                                               of them a userfaultfd belongs
//! ```

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use refit_memory::program::{STAGING_AREA, StagingArea};
use refit_sys::agent::{AREA, Agent, Ground};
use refit_sys::foreign::Memory;
use refit_sys::memory::PAGE_SIZE_U64;
use refit_sys::pidfd::Pidfd;
use refit_sys::seccomp::{Install, OwnFilter, managed};
use refit_sys::status::Status;
use refit_sys::trace::{CallError, Tracee, find_syscall};
use refit_sys::userfault::{Features, Flags, Userfault};
use refit_tracer::{Supervisor, TRACE_OPTIONS, placement};

/// The number of pages for marks.
const MARKS: u64 = 64;
const STAGING_AREA_LENGTH: u64 = STAGING_AREA as u64 * PAGE_SIZE_U64;
const LENGTH: u64 = AREA + STAGING_AREA_LENGTH + MARKS * PAGE_SIZE_U64;

/// The time within which the program's thread stops. A thread that waits for a page does not stop,
/// and meanwhile the event loop serves nobody else.
const STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// The userfaultfd features that the kernel must have.
pub(crate) const FEATURES: Features = Features::EVENT_FORK
    .union(Features::EVENT_REMAP)
    .union(Features::EVENT_REMOVE)
    .union(Features::EVENT_UNMAP)
    .union(Features::THREAD_ID)
    .union(Features::MOVE);

/// A program that is set up.
pub(crate) struct LimitSetup {
    pub(crate) userfault: Arc<Userfault>,
    pub(crate) staging_area: StagingArea,
    /// All addresses in its memory that are refit's.
    pub(crate) area: Range<u64>,
    pub(crate) marks: Range<u64>,
}

/// Sets a program up. `known` is the userfaultfd of a child, which its parent's has delivered.
///
/// # Errors
/// The reason why the program cannot be set up.
pub(crate) fn set_up(
    supervisor: &Supervisor,
    process: u32,
    known: Option<Arc<Userfault>>,
) -> io::Result<LimitSetup> {
    let filters = supervisor.filter_count(process);
    let installed = supervisor.ask(process, STOP_TIMEOUT, move |tracee| {
        let installed = install(tracee, process, known, filters);
        // Other errors of a program that was killed meanwhile are consequences of that.
        installed.map_err(|error| tracee.registers().err().unwrap_or(error))
    })?;
    if installed.is_ok() {
        supervisor.add_managed(process);
    }
    installed
}

fn install(
    tracee: &mut Tracee,
    process: u32,
    known: Option<Arc<Userfault>>,
    filters: u32,
) -> io::Result<LimitSetup> {
    let memory = Memory::of(process)?;
    let program = Pidfd::open(process)?;
    let mappings = refit_sys::maps::of(process)?;
    let instruction = find_syscall(&memory, &mappings)?;
    let status = Status::of(process)?;
    if filtered(&status, filters) {
        return Err(OwnFilter.into());
    }
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let kind = (kind | libc::MAP_FIXED_NOREPLACE) as u64;
    let place = placement::place(&mappings, LENGTH);
    let start =
        tracee.call(instruction, libc::SYS_mmap, [place, LENGTH, access, kind, u64::MAX, 0])?;
    let manage = if filters > 0 { Ok(()) } else { manage(tracee, instruction, start, &memory) };
    let made =
        manage.and_then(|()| make_agent(tracee, instruction, start, known, &memory, &program));
    let (agent, task, userfault, number) = match made {
        Ok(made) => made,
        Err(error) => {
            // The first error says more.
            let _ = tracee.call(instruction, libc::SYS_munmap, [start, LENGTH, 0, 0, 0, 0]);
            return Err(error);
        }
    };
    let place = start + AREA..start + AREA + STAGING_AREA_LENGTH;
    let marks = place.end..start + LENGTH;
    let staging_area = StagingArea { agent, task, userfault: number, memory, place };
    Ok(LimitSetup { userfault, staging_area, area: start..start + LENGTH, marks })
}

/// Gives all threads of a program the filter of those that refit manages. The area holds the
/// filter's program for a moment.
fn manage(tracee: &mut Tracee, instruction: u64, area: u64, memory: &Memory) -> io::Result<()> {
    memory.write(area, &managed::filter().assemble()?.image(area))?;
    let (number, arguments) = (Install::ALL_THREADS | Install::SPECULATION).call(area);
    let installed = match tracee.call(instruction, number, arguments) {
        Err(CallError::Call(error)) if error.raw_os_error() == Some(libc::EACCES) => {
            let alone = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0];
            tracee.call(instruction, libc::SYS_prctl, alone)?;
            tracee.call(instruction, number, arguments)
        }
        installed => installed,
    };
    match installed {
        Ok(0) => Ok(()),
        // A thread has other filters than this one.
        Ok(_) => Err(OwnFilter.into()),
        Err(error) if error_is(&error, libc::ESRCH) => Err(OwnFilter.into()),
        Err(error) => Err(error.into()),
    }
}

fn error_is(error: &CallError, errno: i32) -> bool {
    matches!(error, CallError::Call(error) if error.raw_os_error() == Some(errno))
}

/// Returns whether a process has more filters than refit's, which permit all that is called here.
fn filtered(status: &Status, ours: u32) -> bool {
    status.filters().is_none_or(|filters| filters > ours)
}

/// Makes the agent in its area. Returns the agent, its task, the userfaultfd, and the agent's
/// descriptor of that.
fn make_agent(
    tracee: &mut Tracee,
    instruction: u64,
    area: u64,
    known: Option<Arc<Userfault>>,
    memory: &Memory,
    program: &Pidfd,
) -> io::Result<(Agent, Pidfd, Arc<Userfault>, u32)> {
    let mut advise = |from: u64, length: u64, advice: i32| {
        let arguments = [from, length, u64::from(advice.cast_unsigned()), 0, 0, 0];
        tracee.call(instruction, libc::SYS_madvise, arguments)
    };
    advise(area, AREA + STAGING_AREA_LENGTH, libc::MADV_DONTFORK)?;
    // A kernel without huge pages refuses.
    let _ = advise(area, LENGTH, libc::MADV_NOHUGEPAGE);
    let userfault = match known {
        Some(known) => known,
        None => Arc::new(open(tracee, instruction, program)?),
    };
    let ground = Ground { program, memory, instruction, area, options: TRACE_OPTIONS, keep: &[] };
    let (agent, task) = Agent::set_up(tracee, &ground)?;
    let own = Pidfd::open(task.thread());
    // Threads that wait for a frame wait for the agent.
    refit_sys::thread::let_go_before_others(task.thread());
    // The event loop receives its end, as that of any task.
    task.leave();
    let own = own?;
    match agent.give(userfault.as_fd()) {
        Ok(number) => Ok((agent, own, userfault, number)),
        Err(error) => {
            // Otherwise it would keep what it shares with the program forever.
            let _ = own.signal(libc::SIGKILL);
            Err(error)
        }
    }
}

fn open(tracee: &mut Tracee, instruction: u64, program: &Pidfd) -> io::Result<Userfault> {
    let flags = u64::from((Flags::CLOEXEC | Flags::NONBLOCK).bits());
    let number = tracee.call(instruction, libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
    let fetched = program.get_fd(number as u32);
    tracee.call(instruction, libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
    let userfault = Userfault::from(fetched?);
    userfault.agree(FEATURES)?;
    Ok(userfault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_of_others_are_in_the_way() {
        for (status, without, with_one) in [
            ("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n", false, false),
            ("Seccomp:\t2\nSeccomp_filters:\t1\n", true, false),
            ("Seccomp:\t2\nSeccomp_filters:\t2\n", true, true),
            // Before Linux 5.9; strict mode.
            ("Seccomp:\t2\n", true, true),
            ("Seccomp:\t1\nSeccomp_filters:\t0\n", true, true),
            ("Name:\tx\n", false, false),
        ] {
            let parsed = Status::from(status);
            assert_eq!(
                (filtered(&parsed, 0), filtered(&parsed, 1)),
                (without, with_one),
                "{status}"
            );
        }
    }
}
