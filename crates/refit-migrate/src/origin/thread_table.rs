//! Threads that are followed here, but whose instructions run elsewhere: what their events mean, and who is told.
//!
//! Of such a process one thread of ours decides everything (its *coordinator*, `migration::coordinator`): it is told here, and answers by
//! [`Supervisor::order`](refit_tracer::Supervisor::order). Whatever it has to decide about stands until then. Nothing here waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use refit_sys::foreign::Memory;
use refit_sys::seccomp::managed::LIMITS;
use refit_sys::trace::{Event, Tracee};
use refit_tracer::signals::{caught, stops};
use refit_tracer::syscall::{is_interrupted, with_page};
use refit_tracer::{Resume, ThreadMoveRequest, TracerHook, process};

use crate::origin::futex_ops::{FutexOps, WORDS};
use crate::syscalls::is_watched;

/// What a filter says of a call that changes a memory which several instances have ([`crate::migration`]).
pub(crate) const MAPS: u16 = 0x6d70;

/// What a filter says of a call that makes a process which is told its number by the kernel, in its memory: until refit has copied that, it is
/// its parent's too.
pub(crate) const FORKS: u16 = 0x666b;

/// Has the kernel tell a new process its number in its memory (`linux/sched.h`).
pub(crate) const SETS_NUMBER: u64 = libc::CLONE_CHILD_SETTID as u64;

/// What a coordinator is told. The task that is named stands, unless it is said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TracerEvent {
    /// A thread that runs elsewhere is to be given a signal that it has a handler for.
    Signal(u32),
    /// A thread is about to be given a signal that stops all of the process.
    Stopping(u32),
    /// A thread has been given such a signal: whether they are stopped is decided.
    StopGiven(u32),
    /// A thread that runs elsewhere is stopped, with its process.
    Stopped(u32),
    /// A thread that was stopped with its process goes on.
    Continued(u32),
    /// A thread is about to change the memory.
    Maps(u32),
    /// A thread is about to limit its own calls.
    Limits(u32),
    /// It has changed it; it runs.
    Changed(u32),
    /// A thread that came for a call is back from it.
    Returned(u32),
    /// A thread is back from a call that has done nothing, since pages of its words may be elsewhere.
    Lacks(u32),
    /// A thread asks to run elsewhere.
    Asks(ThreadMoveRequest),
    /// There is a new thread, or a process that a thread of this one has made.
    Born(u32),
    /// A process was made, with a memory of its own, or not. The parent stands, where the memory is the child's own.
    Made {
        /// Who made it.
        parent: u32,
        /// It.
        child: u32,
        /// Whether it has a copy of the memory.
        copy: bool,
        /// Where it is to be told its number by us.
        word: Option<u64>,
    },
    /// A thread of a program whose pages move is about to end: its memory is still its own.
    Ends(u32),
    /// A thread has ended, and the kernel was to clear this word.
    Cleared {
        /// Which thread.
        thread: u32,
        /// The word's address.
        word: u64,
    },
    /// A thread has ended.
    Ended(u32),
    /// The process is another program now; what is told after that is not of this one.
    Another,
}

/// Where a thread of such a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Here.
    Home,
    /// Here, for one system call.
    Visiting,
    /// Here, in a call that changes the memory.
    Changing,
    /// Elsewhere.
    Away,
}

/// Which coordinator: a process that becomes another program (`execve`) gets another one, and the
/// first may still be at something then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoordinatorId {
    /// The process.
    pub(crate) process: u32,
    /// No two coordinators of a [`ThreadTable`] have the same.
    number: u64,
}

/// Processes of which threads run elsewhere, or have.
#[derive(Default)]
pub(crate) struct ThreadTable {
    /// Whether there are any.
    any: AtomicBool,
    /// How many coordinators have begun.
    begun: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    coordinators: BTreeMap<u32, CoordinatorHandle>,
    threads: BTreeMap<u32, (u32, Standing)>,
    /// Threads in a call that makes a process which we tell its number, and where.
    forking: BTreeMap<u32, u64>,
    /// Threads in a call that passes words on.
    passing: FutexOps,
    /// Threads that are stopped with their processes.
    stopped: BTreeSet<u32>,
    /// Threads that are being given a signal that stops all.
    given_stop: BTreeSet<u32>,
    /// Tasks of which whoever has made them has told before there was a coordinator, and that have not been seen: their memory is their own.
    early: BTreeSet<u32>,
    /// Tasks that have been told of, and not been seen: by whose coordinator they are waited for.
    awaited: BTreeMap<u32, u32>,
    /// Tasks that were seen before there was a coordinator, and that whoever has made them has not told of; and their parents.
    seen: BTreeMap<u32, u32>,
    /// Processes that have not begun: their memory is not their own yet.
    unborn: BTreeSet<u32>,
}

/// How a coordinator is told; whether it is still there.
type Tell = Box<dyn Fn(TracerEvent) -> bool + Send>;

struct CoordinatorHandle {
    number: u64,
    tell: Tell,
    /// Whether any other instance has some of the memory.
    shared: bool,
    /// Whether pages of it can be elsewhere only.
    pages_move: bool,
}

impl ThreadTable {
    /// A coordinator begins, in the thread that follows; the threads of its process. They are known at the same moment: of whatever they make
    /// it is told both halves ([`TracerEvent::Made`], [`TracerEvent::Born`]), or none; and of their ends.
    pub(crate) fn begin(
        &self,
        process: u32,
        tell: impl Fn(TracerEvent) -> bool + Send + 'static,
    ) -> (CoordinatorId, Vec<u32>) {
        // Relaxed: it only has to be another one.
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let tell = Box::new(tell);
        let coordinator = CoordinatorHandle { number, tell, shared: false, pages_move: false };
        let mut state = self.state();
        state.coordinators.insert(process, coordinator);
        let threads = refit_sys::process::threads(process);
        state.threads.extend(threads.iter().map(|&thread| (thread, (process, Standing::Home))));
        drop(state);
        // Pairs with the load in `none`.
        self.any.store(true, Ordering::Release);
        (CoordinatorId { process, number }, threads)
    }

    /// A coordinator has ended.
    pub(crate) fn end(&self, coordinator_id: CoordinatorId) {
        let mut state = self.state();
        if state.coordinator(coordinator_id).is_some() {
            state.coordinators.remove(&coordinator_id.process);
            state.threads.retain(|_, (of, _)| *of != coordinator_id.process);
        }
    }

    /// Whether a thread is one of a coordinator's. While who follows does what that wants of a
    /// thread, it stays so.
    pub(crate) fn is_of(&self, task: u32, coordinator_id: CoordinatorId) -> bool {
        let mut state = self.state();
        let process = state.threads.get(&task).map(|(process, _)| *process);
        process == Some(coordinator_id.process) && state.coordinator(coordinator_id).is_some()
    }

    /// Whether a process has a coordinator.
    pub(crate) fn has(&self, process: u32) -> bool {
        !self.none() && self.state().coordinators.contains_key(&process)
    }

    /// From now on another instance has some of a process's memory: changes of it are told.
    pub(crate) fn share(&self, coordinator_id: CoordinatorId) {
        if let Some(coordinator) = self.state().coordinator(coordinator_id) {
            coordinator.shared = true;
        }
    }

    /// From now on pages of a process can be elsewhere only: ends of its threads are told before, too.
    pub(crate) fn pages_move(&self, coordinator_id: CoordinatorId) {
        if let Some(coordinator) = self.state().coordinator(coordinator_id) {
            coordinator.pages_move = true;
        }
    }

    /// Where a thread of a coordinator's is from now on, if it is still one.
    pub(crate) fn place(&self, coordinator_id: CoordinatorId, thread: u32, standing: Standing) {
        let mut state = self.state();
        if state.coordinator(coordinator_id).is_some()
            && let Some((of, was)) = state.threads.get_mut(&thread)
            && *of == coordinator_id.process
        {
            *was = standing;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one operation on a collection.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn none(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// A thread has made a task. Whether a coordinator is to know.
    fn is_made(&self, by: u32, child: u32) -> bool {
        let mut state = self.state();
        // One that was seen before there was a coordinator has a memory of its own.
        if state.seen.remove(&child).is_some() {
            return false;
        }
        let Some(&(process, _)) = state.threads.get(&by) else {
            state.early.insert(child);
            return false;
        };
        if !state.unborn.contains(&child) && !state.threads.contains_key(&child) {
            state.awaited.insert(child, process);
        }
        true
    }

    /// Whether a thread that has just made a task shares its memory with it.
    fn shares_memory(&self, held: &Tracee, child: u32) -> bool {
        refit_sys::process::same_memory(held.thread(), child)
            // A kernel that does not tell.
            .or_else(|_| with_page(held, || !self.none(), flags_of_clone))
            .map_or(true, |flags| flags)
    }

    /// How a thread goes on about which there is nothing to say.
    pub(crate) fn plainly(&self, task: u32) -> Resume {
        if self.none() {
            return Resume::GoOn;
        }
        let state = self.state();
        match state.threads.get(&task) {
            _ if state.forking.contains_key(&task) => Resume::ToSystemCall(0),
            Some((_, Standing::Visiting | Standing::Changing)) => Resume::ToSystemCall(0),
            _ => Resume::GoOn,
        }
    }

    fn stands(&self, task: u32, early: bool) -> bool {
        if self.none() {
            return false;
        }
        let Some(process) = process::process_of(task) else { return false };
        let mut state = self.state();
        let of = if state.coordinators.contains_key(&process) {
            state.threads.insert(task, (process, Standing::Home));
            process
        } else {
            let Some(parent) = process::parent_of(task).filter(|_| !early) else { return false };
            parent
        };
        let coordinator = state.coordinators.get(&of);
        let stands =
            coordinator.is_some_and(|coordinator| (coordinator.tell)(TracerEvent::Born(task)));
        if stands && of != process {
            state.unborn.insert(process);
        }
        stands
    }

    /// Whether a thread is one of a program with a coordinator: not, once the program has become another one.
    pub(crate) fn knows(&self, thread: u32) -> bool {
        self.state().threads.contains_key(&thread)
    }

    /// Whether a thread waits for its coordinator to [decide](Self::decides) whether a call is made again.
    pub(crate) fn waits_for_pages(&self, thread: u32) -> bool {
        self.state().passing.waits(thread)
    }

    /// Its coordinator does.
    pub(crate) fn decides(&self, thread: u32) {
        self.state().passing.decide(thread);
    }

    /// A thread is being given a signal that stops all.
    pub(crate) fn gives_stop(&self, thread: u32) {
        self.state().given_stop.insert(thread);
    }

    /// A process begins that a thread of such a process has made.
    pub(crate) fn begins(&self, process: u32) {
        self.state().unborn.remove(&process);
    }
}

impl TracerHook for ThreadTable {
    fn on_event(&self, held: &Tracee, event: Event) -> Option<Resume> {
        let task = held.thread();
        if event.child().is_some_and(|child| !self.is_made(task, child)) || self.none() {
            return None;
        }
        let mut state = self.state();
        let word = state.forking.get(&task).copied();
        let over = word.is_some() && event == Event::SystemCall && state.fork_returns(held);
        let lacks = event == Event::SystemCall && state.passing.lacks(held);
        let by_job_control = state.stop_of(task, event);
        let &(process, standing) = state.threads.get(&task)?;
        let stops_all = state.stops_all(task, process, event);
        let State { coordinators, threads, forking, passing, given_stop, .. } = &mut *state;
        // It ends with its process only.
        let coordinator = coordinators.get(&process);
        let tell = |event| coordinator.is_some_and(|coordinator| (coordinator.tell)(event));
        let shared = coordinator.is_some_and(|coordinator| coordinator.shared);
        let moving = coordinator.is_some_and(|coordinator| coordinator.pages_move);
        // Without anybody who decides it means what it does to any.
        let keep = |event| tell(event).then_some(Resume::Stay);
        let given = given_stop.remove(&task).then_some(TracerEvent::StopGiven(task));
        for told in given.into_iter().chain(by_job_control) {
            tell(told);
        }
        match (event, standing) {
            _ if stops_all => keep(TracerEvent::Stopping(task)),
            (Event::Seccomp { message: FORKS }, _) if shared => {
                let word = withhold_word(held).ok()?;
                forking.insert(task, word);
                Some(Resume::ToSystemCall(0))
            }
            (Event::SystemCall, Standing::Home | Standing::Away) if word.is_some() => {
                Some(if over { Resume::GoOn } else { Resume::ToSystemCall(0) })
            }
            (Event::Seccomp { message: WORDS }, Standing::Home | Standing::Visiting) if moving => {
                passing.begins(task);
                Some(Resume::ToSystemCall(0))
            }
            (Event::SystemCall, Standing::Home | Standing::Visiting) if lacks => {
                keep(TracerEvent::Lacks(task))
            }
            (Event::Signal(signal), Standing::Away) if caught(task, signal) => {
                keep(TracerEvent::Signal(task))
            }
            (Event::Signal(signal), Standing::Visiting | Standing::Changing) => {
                Some(Resume::ToSystemCall(signal))
            }
            (Event::Seccomp { message: MAPS }, Standing::Home | Standing::Visiting) if shared => {
                keep(TracerEvent::Maps(task))
            }
            (Event::Seccomp { message: LIMITS }, _) => keep(TracerEvent::Limits(task)),
            (Event::SystemCall, Standing::Visiting) if returned(held) => {
                keep(TracerEvent::Returned(task))
            }
            (Event::SystemCall, Standing::Changing) if returned(held) => {
                tell(TracerEvent::Changed(task));
                threads.insert(task, (process, Standing::Home));
                Some(Resume::GoOn)
            }
            (Event::Clone { child }, _) if process::process_of(child) == Some(process) => None,
            (Event::Vfork { child } | Event::Fork { child } | Event::Clone { child }, _) => {
                let lent = matches!(event, Event::Vfork { .. });
                let copy = !lent && !self.shares_memory(held, child);
                let told = tell(TracerEvent::Made { parent: task, child, copy, word });
                (told && copy).then_some(Resume::Stay)
            }
            _ => None,
        }
    }

    fn resume(&self, thread: u32) -> Resume {
        self.plainly(thread)
    }

    fn is_tracked(&self, thread: u32) -> bool {
        self.knows(thread)
    }

    fn has_remote_pages(&self) -> bool {
        !self.none()
    }

    fn task_started(&self, task: u32) -> bool {
        let mut state = self.state();
        state.awaited.remove(&task);
        let early = state.early.remove(&task);
        drop(state);
        let stands = self.stands(task, early);
        if !stands && !early {
            let parent = process::parent_of(task).unwrap_or_default();
            self.state().seen.insert(task, parent);
        }
        stands
    }

    fn is_starting(&self, process: u32) -> bool {
        !self.none() && self.state().unborn.contains(&process)
    }

    fn thread_exits(&self, task: u32) -> bool {
        let state = self.state();
        let of = state.threads.get(&task);
        let coordinator = of.and_then(|(process, _)| state.coordinators.get(process));
        coordinator.is_some_and(|one| one.pages_move && (one.tell)(TracerEvent::Ends(task)))
    }

    fn task_ended(&self, task: u32, word: Option<u64>) {
        let mut state = self.state();
        state.forking.remove(&task);
        state.passing.forget(task);
        state.early.remove(&task);
        // Whoever has ended tells of none.
        state.seen.retain(|_, parent| *parent != task);
        state.stopped.remove(&task);
        state.given_stop.remove(&task);
        state.unborn.remove(&task);
        if let Some(coordinator) =
            state.awaited.remove(&task).and_then(|of| state.coordinators.get(&of))
        {
            // Killed before it was seen: nobody is to wait for it.
            (coordinator.tell)(TracerEvent::Born(task));
        }
        let Some((process, _)) = state.threads.remove(&task) else { return };
        if let Some(coordinator) = state.coordinators.get(&process) {
            // It may have ended, too.
            word.map(|word| (coordinator.tell)(TracerEvent::Cleared { thread: task, word }));
            (coordinator.tell)(TracerEvent::Ended(task));
        }
    }

    fn program_replaced(&self, process: u32, former: u32) {
        if self.none() {
            return;
        }
        let mut state = self.state();
        state.threads.remove(&former);
        [former, process].into_iter().for_each(|thread| state.passing.forget(thread));
        state.threads.retain(|_, (of, _)| *of != process);
        if let Some(coordinator) = state.coordinators.remove(&process) {
            (coordinator.tell)(TracerEvent::Another);
        }
    }

    fn move_requested(&self, request: ThreadMoveRequest) -> bool {
        let state = self.state();
        let of = state.threads.get(&request.thread);
        let coordinator = of.and_then(|(process, _)| state.coordinators.get(process));
        coordinator.is_some_and(|coordinator| (coordinator.tell)(TracerEvent::Asks(request)))
    }

    fn reports(&self, message: u16, number: i64, arguments: &[u64; 6]) -> bool {
        match message {
            MAPS => is_watched(number, arguments),
            FORKS => number == libc::SYS_clone,
            WORDS => number == libc::SYS_futex,
            _ => false,
        }
    }
}

impl State {
    /// The coordinator, if it has not been followed by another.
    fn coordinator(&mut self, coordinator_id: CoordinatorId) -> Option<&mut CoordinatorHandle> {
        let coordinator = self.coordinators.get_mut(&coordinator_id.process);
        coordinator.filter(|coordinator| coordinator.number == coordinator_id.number)
    }

    /// What an event of a thread tells of its process being stopped, or going on.
    fn stop_of(&mut self, task: u32, event: Event) -> Option<TracerEvent> {
        let &(_, standing) = self.threads.get(&task)?;
        match event {
            Event::Stopped(_) => {
                let first = self.stopped.insert(task);
                (first && standing == Standing::Away).then_some(TracerEvent::Stopped(task))
            }
            Event::Interrupted => {
                self.stopped.remove(&task).then_some(TracerEvent::Continued(task))
            }
            _ => None,
        }
    }

    /// Whether a thread is about to be given a signal that stops others which are elsewhere.
    fn stops_all(&self, task: u32, process: u32, event: Event) -> bool {
        let away = || self.threads.values().any(|&one| one == (process, Standing::Away));
        matches!(event, Event::Signal(signal) if stops(task, signal) && away())
    }

    /// A thread stands at the end of a call that makes a process, if it does: its registers are again what it had put there. Whether it does.
    fn fork_returns(&mut self, held: &Tracee) -> bool {
        let exit = held.has_returned();
        if exit && self.forking.remove(&held.thread()).is_some() {
            // Killed meanwhile, if not.
            let _ = say_again(held);
        }
        exit
    }
}

/// Takes the wish that a new process is told its number out of the call that a thread is about to make; where it was to be told.
fn withhold_word(held: &Tracee) -> io::Result<u64> {
    let mut registers = held.registers()?;
    registers.rdi &= !SETS_NUMBER;
    held.set_registers(&registers)?;
    Ok(registers.r10)
}

/// Puts that wish back into the registers of one that is behind the call.
pub(crate) fn say_again(held: &Tracee) -> io::Result<()> {
    let mut registers = held.registers()?;
    registers.rdi |= SETS_NUMBER;
    held.set_registers(&registers)
}

/// Whether a thread is back from a call, for good.
fn returned(held: &Tracee) -> bool {
    held.has_returned() && held.registers().is_ok_and(|registers| !is_interrupted(registers.rax))
}

/// Whether a thread that stands in the call that makes a task shares its memory with it.
fn flags_of_clone(held: &Tracee) -> io::Result<bool> {
    let registers = held.registers()?;
    let flags = match registers.orig_rax.cast_signed() {
        // `struct clone_args` begins with its flags.
        libc::SYS_clone3 => Memory::of(held.thread())?.word(registers.rdi)?,
        _ => registers.rdi,
    };
    Ok(flags & libc::CLONE_VM as u64 != 0)
}
