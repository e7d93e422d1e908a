//! Getting hold of a program's memory: its userfaultfd, and a task of ours in it that can take pages out.
//!
//! A thread of the program makes the calls for it, once, while it is stopped: it maps some pages that are ours, opens the userfaultfd, and makes
//! the agent. Nothing of it stays among the program's descriptors.
//!
//! ```text
//!   area:  agent's buffer and code │ staging area │ marks
//!                  not for children ──────┘ └── for children: which of them a userfaultfd belongs to is told by a mark
//! ```

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use refit_memory::PAGE_SIZE;
use refit_memory::program::{STAGING_AREA, StagingArea};
use refit_sys::agent::{AREA, Agent, Ground};
use refit_sys::foreign::Memory;
use refit_sys::pidfd::Pidfd;
use refit_sys::seccomp::{Install, managed};
use refit_sys::status::Status;
use refit_sys::trace::{CallError, Tracee, find_syscall};
use refit_sys::userfault::{Features, Flags, Userfault};
use refit_tracer::{Supervisor, TRACE_OPTIONS, placement};

const PAGE: u64 = PAGE_SIZE as u64;
/// Pages for marks.
const MARKS: u64 = 64;
const STAGING_AREA_LENGTH: u64 = STAGING_AREA as u64 * PAGE;
const WHOLE: u64 = AREA + STAGING_AREA_LENGTH + MARKS * PAGE;

/// How long the program's thread may take to stop. One that waits for a page does not, and everybody else waits for us.
const STOP_TIMEOUT: Duration = Duration::from_millis(100);

/// What is needed of the kernel.
pub(crate) const FEATURES: Features = Features::EVENT_FORK
    .union(Features::EVENT_REMAP)
    .union(Features::EVENT_REMOVE)
    .union(Features::EVENT_UNMAP)
    .union(Features::THREAD_ID)
    .union(Features::MOVE);

/// What was planted into a program.
pub(crate) struct LimitSetup {
    pub(crate) userfault: Arc<Userfault>,
    pub(crate) staging_area: StagingArea,
    /// All of what is ours in its memory.
    pub(crate) area: Range<u64>,
    pub(crate) marks: Range<u64>,
}

/// Plants it. `known`: the userfaultfd of a child, which was told by its parent's.
///
/// # Errors
/// What stands in the way.
pub(crate) fn set_up(
    supervisor: &Supervisor,
    process: u32,
    known: Option<Arc<Userfault>>,
) -> io::Result<LimitSetup> {
    let filters = supervisor.filters(process);
    let installed = supervisor.ask(process, STOP_TIMEOUT, move |held| {
        let installed = plant_by(held, process, known, filters);
        // Whatever else is told of one that was killed meanwhile is because of that.
        installed.map_err(|error| held.registers().err().unwrap_or(error))
    })?;
    if installed.is_ok() {
        supervisor.add_managed(process);
    }
    installed
}

fn plant_by(
    held: &mut Tracee,
    process: u32,
    known: Option<Arc<Userfault>>,
    filters: u32,
) -> io::Result<LimitSetup> {
    let memory = Memory::of(process)?;
    let program = Pidfd::open(process)?;
    let mappings = refit_sys::maps::of(process)?;
    let instruction = find_syscall(&memory, &mappings)
        .ok_or_else(|| io::Error::other("its code has no system call"))?;
    let status = Status::of(process)?;
    if filtered(&status, filters) {
        return Err(io::Error::other(OWN_FILTER));
    }
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let kind = (kind | libc::MAP_FIXED_NOREPLACE) as u64;
    let place = placement::place(&mappings, WHOLE);
    let start =
        held.call(instruction, libc::SYS_mmap, [place, WHOLE, access, kind, u64::MAX, 0])?;
    let manage = if filters > 0 { Ok(()) } else { manage(held, instruction, start, &memory) };
    let made = manage.and_then(|()| ours(held, instruction, start, known, &memory, &program));
    let (agent, task, userfault, number) = match made {
        Ok(made) => made,
        Err(error) => {
            // The first error tells more.
            let _ = held.call(instruction, libc::SYS_munmap, [start, WHOLE, 0, 0, 0, 0]);
            return Err(error);
        }
    };
    let place = start + AREA..start + AREA + STAGING_AREA_LENGTH;
    let marks = place.end..start + WHOLE;
    let staging_area = StagingArea { agent, task, userfault: number, memory, place };
    Ok(LimitSetup { userfault, staging_area, area: start..start + WHOLE, marks })
}

/// Why a program is not served that has one.
const OWN_FILTER: &str = "a filter of its own decides which calls it may make";

/// Gives all threads of a program the filter of those that refit manages; what is to be installed is put into the area for a moment.
fn manage(held: &mut Tracee, instruction: u64, area: u64, memory: &Memory) -> io::Result<()> {
    memory.write(area, &managed::filter().assemble()?.image(area))?;
    let (number, arguments) = (Install::ALL_THREADS | Install::SPECULATION).call(area);
    let installed = match held.call(instruction, number, arguments) {
        Err(CallError::Call(error)) if error.raw_os_error() == Some(libc::EACCES) => {
            let alone = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0];
            held.call(instruction, libc::SYS_prctl, alone)?;
            held.call(instruction, number, arguments)
        }
        installed => installed,
    };
    match installed {
        Ok(0) => Ok(()),
        // A thread has other filters than this one.
        Ok(_) => Err(io::Error::other(OWN_FILTER)),
        Err(error) if error_is(&error, libc::ESRCH) => Err(io::Error::other(OWN_FILTER)),
        Err(error) => Err(error.into()),
    }
}

fn error_is(error: &CallError, errno: i32) -> bool {
    matches!(error, CallError::Call(error) if error.raw_os_error() == Some(errno))
}

/// Whether others than so many filters of refit's, which let through all that is called here, decide which calls a process may make.
fn filtered(status: &Status, ours: u32) -> bool {
    status.filters().is_none_or(|filters| filters > ours)
}

/// The agent in its area, its task, the userfaultfd, and the number that it has there.
fn ours(
    held: &mut Tracee,
    instruction: u64,
    area: u64,
    known: Option<Arc<Userfault>>,
    memory: &Memory,
    program: &Pidfd,
) -> io::Result<(Agent, Pidfd, Arc<Userfault>, u32)> {
    let mut advise = |from: u64, length: u64, advice: i32| {
        let arguments = [from, length, u64::from(advice.cast_unsigned()), 0, 0, 0];
        held.call(instruction, libc::SYS_madvise, arguments)
    };
    advise(area, AREA + STAGING_AREA_LENGTH, libc::MADV_DONTFORK)?;
    // A kernel without huge pages says no.
    let _ = advise(area, WHOLE, libc::MADV_NOHUGEPAGE);
    let userfault = match known {
        Some(known) => known,
        None => Arc::new(open(held, instruction, program)?),
    };
    let ground = Ground { program, memory, instruction, area, options: TRACE_OPTIONS, keep: &[] };
    let (agent, task) = Agent::set_up(held, &ground)?;
    let own = Pidfd::open(task.thread());
    // Who waits for a frame waits for it.
    refit_sys::thread::let_go_before_others(task.thread());
    // Its end is told to whoever follows the tree, as that of any task.
    task.leave();
    let own = own?;
    match agent.give(userfault.as_fd()) {
        Ok(number) => Ok((agent, own, userfault, number)),
        Err(error) => {
            // Or it would keep what it shares with the program for ever.
            let _ = own.signal(libc::SIGKILL);
            Err(error)
        }
    }
}

fn open(held: &mut Tracee, instruction: u64, program: &Pidfd) -> io::Result<Userfault> {
    let flags = u64::from((Flags::CLOEXEC | Flags::NONBLOCK).bits());
    let number = held.call(instruction, libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
    let fetched = program.get_fd(number as u32);
    held.call(instruction, libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
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
            // Before Linux 5.9; `read`, `write` and the end only.
            ("Seccomp:\t2\n", true, true),
            ("Seccomp:\t1\nSeccomp_filters:\t0\n", true, true),
            ("Name:\tx\n", false, false),
        ] {
            let told = Status::from(status);
            assert_eq!((filtered(&told, 0), filtered(&told, 1)), (without, with_one), "{status}");
        }
    }
}
