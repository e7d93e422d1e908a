//! Sets a program up before its first thread can leave: addresses that are refit's at every node,
//! code in which shadows wait, an agent that changes the program's memory, and a filter that
//! reports changes which the program makes itself.
//!
//! ```text
//!   window:  code │ slots (shared with the nodes that run the threads) │ the agent's own
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use refit_sys::agent::{AREA, Agent, Call, Ground};
use refit_sys::foreign::Memory;
use refit_sys::memfd::{self, Pages};
use refit_sys::pidfd::Pidfd;
use refit_sys::seccomp::{Action, Condition, Filter, Install, OwnFilter};
use refit_sys::trace::{Tracee, find_syscall};
use refit_sys::words::Words;
use refit_sys::{maps, shadow_stub};
use refit_tracer::placement::{self, TOP};
use refit_tracer::{NotMovable, TRACE_OPTIONS};

use crate::fault_injection::{self, Step};
use crate::frames;
use crate::origin::address_space::AddressSpace;
use crate::origin::fork_flags::{FORKS, SETS_NUMBER};
use crate::origin::futex_ops::{PASSES, WORDS};
use crate::origin::program_tree::ProgramTree;
use crate::origin::thread_table::MAPS;
use crate::origin::tracer_event::{CoordinatorId, TracerEvent};
use crate::page::PAGE_SIZE;
use crate::quota::Quota;
use crate::remote::stub;
use crate::syscalls::{ADVICE, CHANGES, MAPPED, OURS, REGISTERS, ours};

/// The number of threads of a program that can be away at once.
pub(crate) const SLOTS: usize = 512;
const SLOTS_LENGTH: u64 = (SLOTS * shadow_stub::SLOT) as u64;
const WINDOW_LENGTH: u64 = PAGE_SIZE + SLOTS_LENGTH + AREA;

const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The error that the first thread of a process has ended, so the process cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its first thread has ended")]
struct FirstThreadEnded;

impl From<FirstThreadEnded> for io::Error {
    fn from(error: FirstThreadEnded) -> Self {
        io::Error::other(error)
    }
}

/// A program that is set up.
pub(crate) struct MoveSetup {
    pub(crate) space: AddressSpace,
    pub(crate) slots: Words,
    /// Identifies its coordinator from then on.
    pub(crate) coordinator_id: CoordinatorId,
    /// Its threads. All events of these, and of the program, from now on are sent to the
    /// coordinator.
    pub(crate) threads: Vec<u32>,
}

/// Sets a program up, and has `notify` called with its events from that moment on: before the event
/// loop learns of any other event of it, as its end, or that it executes another program.
///
/// # Errors
/// The reason why the program cannot be set up.
pub(crate) fn set_up(
    tree: &Arc<ProgramTree>,
    process: u32,
    quota: &Arc<Quota>,
    notify: impl Fn(TracerEvent) -> bool + Send + 'static,
) -> io::Result<MoveSetup> {
    fault_injection::reach(Step::Plant)?;
    if refit_sys::process::life(process).is_none_or(|life| life.ended()) {
        return Err(FirstThreadEnded.into());
    }
    let frames = File::from(memfd::create(frames::NAME, TOP, Pages::Base)?);
    let slots = Words::new(c"refit-slots", SLOTS * shadow_stub::WORDS)?;
    let (own, quota) = (Arc::clone(tree), Arc::clone(quota));
    let work = move |tracee: &mut Tracee| {
        // Looked at again: the event loop, too, sees here a program that has begun to limit its
        // calls since.
        if own.supervisor.limits_itself(process) {
            return Err(NotMovable::LimitsItself.into());
        }
        let installed = install(tracee, process, &frames, &slots);
        installed.and_then(|(agent, window, number)| {
            let supervisor = Arc::clone(&own.supervisor);
            supervisor.add_watched(process);
            let space =
                AddressSpace::new(process, window, frames, (agent, number), (supervisor, quota))?;
            let (coordinator_id, threads) = own.threads.begin(process, notify);
            Ok(MoveSetup { space, slots, coordinator_id, threads })
        })
    };
    tree.supervisor.ask(process, SETUP_TIMEOUT, work)?
}

fn install(
    tracee: &mut Tracee,
    process: u32,
    frames: &File,
    slots: &Words,
) -> io::Result<((Agent, u32), Range<u64>, u32)> {
    let memory = Memory::of(process)?;
    let mappings = maps::of(process)?;
    let instruction = find_syscall(&memory, &mappings)?;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let kind = (kind | libc::MAP_FIXED_NOREPLACE) as u64;
    let arguments =
        [placement::place(&mappings, WINDOW_LENGTH), WINDOW_LENGTH, access, kind, u64::MAX, 0];
    let start = tracee.call(instruction, libc::SYS_mmap, arguments)?;
    let window = start..start + WINDOW_LENGTH;
    let made = install_in(tracee, instruction, process, &memory, &window, frames, slots);
    if made.is_err() {
        // The first error says more.
        let _ = tracee.call(instruction, libc::SYS_munmap, [start, WINDOW_LENGTH, 0, 0, 0, OURS]);
    }
    made.map(|(agent, number)| (agent, window, number))
}

fn install_in(
    tracee: &mut Tracee,
    instruction: u64,
    process: u32,
    memory: &Memory,
    window: &Range<u64>,
    frames: &File,
    slots: &Words,
) -> io::Result<((Agent, u32), u32)> {
    memory.write(window.start + stub::CODE, shadow_stub::code())?;
    let run = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    tracee.call(instruction, libc::SYS_mprotect, [window.start, PAGE_SIZE, run, 0, 0, OURS])?;
    let at = window.start + PAGE_SIZE;
    let area = at + SLOTS_LENGTH;
    let program = Pidfd::open(process)?;
    let ground =
        Ground { program: &program, memory, instruction, area, options: TRACE_OPTIONS, keep: &[] };
    let (agent, task) = Agent::set_up(tracee, &ground)?;
    let agent_task = task.thread();
    // The event loop receives its end, as that of any task.
    task.leave();
    // Not before the agent is there, whose calls must not be reported.
    watch_changes(tracee, instruction, memory, at)?;
    let number = agent.give(frames.as_fd())?;
    let theirs = u64::from(agent.give(slots.as_fd())?);
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
    let calls = [
        Call {
            number: libc::SYS_mmap,
            arguments: ours(libc::SYS_mmap, [at, SLOTS_LENGTH, access, kind, theirs, 0]),
        },
        Call { number: libc::SYS_close, arguments: [theirs, 0, 0, 0, 0, 0] },
    ];
    let answers = agent.make(&calls, &mut [])?;
    if let Some(&error @ ..0) = answers.first() {
        return Err(io::Error::from_raw_os_error(-(error as i32)));
    }
    Ok(((agent, agent_task), number))
}

/// Has all threads stop before calls that change what is mapped where something was mapped before.
fn watch_changes(
    tracee: &mut Tracee,
    instruction: u64,
    memory: &Memory,
    room: u64,
) -> io::Result<()> {
    let mut filter = Filter::new(Action::Allow).foreign(Action::Allow);
    let is = |argument, mask, value| Condition { argument, mask, value };
    for number in CHANGES {
        if number != libc::SYS_mmap {
            filter = filter.rule_if(number, &[is(5, u64::MAX, OURS)], Action::Allow);
        }
        filter = match number {
            libc::SYS_mmap => MAPPED.into_iter().fold(filter, |filter, (mask, kind)| {
                filter.rule_if(number, &[is(3, OURS | mask, kind)], Action::Trace(MAPS))
            }),
            libc::SYS_madvise => ADVICE.into_iter().fold(filter, |filter, advice| {
                // The kernel, too, reads only the low half.
                let advised = is(2, u32::MAX.into(), u64::from(advice.cast_unsigned()));
                filter.rule_if(number, &[advised], Action::Trace(MAPS))
            }),
            _ => filter.rule(number, Action::Trace(MAPS)),
        };
    }
    let registers = is(1, u32::MAX.into(), REGISTERS);
    filter = filter.rule_if(libc::SYS_ioctl, &[registers], Action::Trace(MAPS));
    let alone = (libc::CLONE_VM | libc::CLONE_CHILD_SETTID) as u64;
    let sets_number = is(0, alone, SETS_NUMBER);
    filter = filter.rule_if(libc::SYS_clone, &[sets_number], Action::Trace(FORKS));
    for operation in PASSES {
        let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
        let passes = is(1, u64::from(!flags.cast_unsigned()), operation as u64);
        filter = filter.rule_if(libc::SYS_futex, &[passes], Action::Trace(WORDS));
    }
    memory.write(room, &filter.assemble()?.image(room))?;
    let how = Install::ALL_THREADS | Install::SPECULATION;
    let (number, arguments) = how.call(room);
    match tracee.call(instruction, number, arguments) {
        Ok(0) => Ok(()),
        Ok(_) => Err(OwnFilter.into()),
        Err(error) => Err(error.into()),
    }
}
