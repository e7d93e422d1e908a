//! What a program needs in it before its first thread can leave: addresses that are refit's at every instance, code for its threads to
//! stay in, an agent that changes its memory, and a filter that tells of changes that the program makes itself.
//!
//! ```text
//!   window:  code │ slots (shared with whoever runs the threads) │ the agent's own
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
use refit_sys::seccomp::{Action, Condition, Filter, Install};
use refit_sys::trace::{Tracee, find_syscall};
use refit_sys::words::Words;
use refit_sys::{maps, shadow_stub};
use refit_tracer::placement::{self, TOP};
use refit_tracer::{LIMITS_ITSELF, TRACE_OPTIONS};

use crate::fault_injection::{self, Step};
use crate::origin::address_space::{AddressSpace, NAME};
use crate::origin::futex_ops::{PASSES, WORDS};
use crate::origin::program_tree::ProgramTree;
use crate::origin::thread_table::{CoordinatorId, FORKS, MAPS, SETS_NUMBER, TracerEvent};
use crate::quota::Quota;
use crate::remote::stub;
use crate::syscalls::{ADVICE, CHANGES, MAPPED, OURS, REGISTERS, ours};

const PAGE: u64 = 4096;
/// How many threads of a program can be elsewhere at once.
pub(crate) const SLOTS: usize = 512;
const SLOTS_LENGTH: u64 = (SLOTS * shadow_stub::SLOT) as u64;
const WINDOW_LENGTH: u64 = PAGE + SLOTS_LENGTH + AREA;

const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// What was planted.
pub(crate) struct MoveSetup {
    pub(crate) space: AddressSpace,
    pub(crate) slots: Words,
    /// Whose it is from then on.
    pub(crate) coordinator_id: CoordinatorId,
    /// Its threads; whatever becomes of them, and of the program, from now on is told.
    pub(crate) threads: Vec<u32>,
}

/// Plants it, and has `tell` be told of the program from that moment on: before whoever follows it learns of anything else, as of its end, or that it is
/// another program by now.
///
/// # Errors
/// What stands in the way.
pub(crate) fn set_up(
    tree: &Arc<ProgramTree>,
    process: u32,
    quota: &Arc<Quota>,
    tell: impl Fn(TracerEvent) -> bool + Send + 'static,
) -> io::Result<MoveSetup> {
    fault_injection::reach(Step::Plant)?;
    if refit_sys::process::life(process).is_none_or(|life| life.ended()) {
        return Err(io::Error::other("its first thread has ended"));
    }
    let frames = File::from(memfd::create(NAME, TOP, Pages::Base)?);
    let slots = Words::new(c"refit-slots", SLOTS * shadow_stub::WORDS)?;
    let (asked, quota) = (Arc::clone(tree), Arc::clone(quota));
    let by = move |held: &mut Tracee| {
        // Since it was last looked at; what limits its calls is seen by this thread, too.
        if asked.supervisor.limits_itself(process) {
            return Err(io::Error::other(LIMITS_ITSELF));
        }
        let installed = plant_by(held, process, &frames, &slots);
        installed.and_then(|(agent, window, number)| {
            let supervisor = Arc::clone(&asked.supervisor);
            let space =
                AddressSpace::new(process, window, frames, (agent, number), (supervisor, quota))?;
            let (coordinator_id, threads) = asked.threads.begin(process, tell);
            Ok(MoveSetup { space, slots, coordinator_id, threads })
        })
    };
    tree.supervisor.ask(process, SETUP_TIMEOUT, by)?
}

fn plant_by(
    held: &mut Tracee,
    process: u32,
    frames: &File,
    slots: &Words,
) -> io::Result<((Agent, u32), Range<u64>, u32)> {
    let memory = Memory::of(process)?;
    let mappings = maps::of(process)?;
    let instruction = find_syscall(&memory, &mappings)
        .ok_or_else(|| io::Error::other("its code has no system call"))?;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let kind = (kind | libc::MAP_FIXED_NOREPLACE) as u64;
    let arguments =
        [placement::place(&mappings, WINDOW_LENGTH), WINDOW_LENGTH, access, kind, u64::MAX, 0];
    let start = held.call(instruction, libc::SYS_mmap, arguments)?;
    let window = start..start + WINDOW_LENGTH;
    let made = fit_out(held, instruction, process, &memory, &window, frames, slots);
    if made.is_err() {
        // The first error tells more.
        let _ = held.call(instruction, libc::SYS_munmap, [start, WINDOW_LENGTH, 0, 0, 0, OURS]);
    }
    made.map(|(agent, number)| (agent, window, number))
}

fn fit_out(
    held: &mut Tracee,
    instruction: u64,
    process: u32,
    memory: &Memory,
    window: &Range<u64>,
    frames: &File,
    slots: &Words,
) -> io::Result<((Agent, u32), u32)> {
    memory.write(window.start + stub::CODE, shadow_stub::code())?;
    let run = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    held.call(instruction, libc::SYS_mprotect, [window.start, PAGE, run, 0, 0, OURS])?;
    let at = window.start + PAGE;
    let area = at + SLOTS_LENGTH;
    let program = Pidfd::open(process)?;
    let ground =
        Ground { program: &program, memory, instruction, area, options: TRACE_OPTIONS, keep: &[] };
    let (agent, task) = Agent::set_up(held, &ground)?;
    let agent_task = task.thread();
    // Its end is told to whoever follows the tree, as that of any task.
    task.leave();
    // Not before the agent is there: what it does is nobody's business.
    watch_changes(held, instruction, memory, at)?;
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
    held: &mut Tracee,
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
                // As the kernel takes it: the low half.
                let advised = is(2, u32::MAX.into(), u64::from(advice.cast_unsigned()));
                filter.rule_if(number, &[advised], Action::Trace(MAPS))
            }),
            _ => filter.rule(number, Action::Trace(MAPS)),
        };
    }
    let registers = is(1, u32::MAX.into(), REGISTERS);
    filter = filter.rule_if(libc::SYS_ioctl, &[registers], Action::Trace(MAPS));
    let alone = (libc::CLONE_VM | libc::CLONE_CHILD_SETTID) as u64;
    let told = is(0, alone, SETS_NUMBER);
    filter = filter.rule_if(libc::SYS_clone, &[told], Action::Trace(FORKS));
    for operation in PASSES {
        let flags = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
        let passes = is(1, u64::from(!flags.cast_unsigned()), operation as u64);
        filter = filter.rule_if(libc::SYS_futex, &[passes], Action::Trace(WORDS));
    }
    memory.write(room, &filter.assemble()?.image(room))?;
    let how = Install::ALL_THREADS | Install::SPECULATION;
    let (number, arguments) = how.call(room);
    match held.call(instruction, number, arguments) {
        Ok(0) => Ok(()),
        Ok(_) => Err(io::Error::other("a filter of its own decides which calls it may make")),
        Err(error) => Err(error.into()),
    }
}
