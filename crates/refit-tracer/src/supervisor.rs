//! The tasks of a program and of all that it starts.
//!
//! One thread follows ([`Supervisor::follow`]), any other may ask. A task is in the tree from its first instruction until its
//! parent can learn of its end.
//!
//! What only the tracer of a task can do, the thread that follows does for others ([`Supervisor::ask`], `requests`).
//!
//! The first thread of the first process also tells that it is about to end, since that is the last moment at which its descriptors can
//! be reached. What a thread is told of, those that it makes inherit: in the first stop of each it is taken off again.

#[cfg(test)]
mod calls;
mod event_loop;
mod filtered;
mod ignored;
mod move_request;
pub(crate) mod processors;
mod requests;
mod sandbox;
mod short_writes;
mod stop_all;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use refit_sys::status::Status;
use refit_sys::trace::{self, Event, Options, Tracee};
use refit_sys::wait_interrupt::Wakeup;
use rustix::io::Errno;
use tracing::{debug, info};

use crate::hook::{Hook, TracerHook};
use crate::process::{self, Process};
use crate::resume::{Resume, StopReason};
use crate::{signals, syscall, vdso};
use event_loop::EventLoop;
use ignored::Ignored;
use move_request::MoveRequests;
use processors::Shown;

pub use requests::Hears;
use sandbox::Sandbox;
use short_writes::ShortWrites;

/// What is told of each task, which those that it makes inherit; and that all end with who follows.
pub const TRACE_OPTIONS: Options = Options::FORK
    .union(Options::VFORK)
    .union(Options::CLONE)
    .union(Options::EXEC)
    .union(Options::SECCOMP)
    .union(Options::SYSTEM_CALL)
    .union(Options::EXIT_KILL);

/// What is told of the first task, and of all that may move: that it is about to end, too.
pub const TRACE_OPTIONS_WITH_EXIT: Options = TRACE_OPTIONS.union(Options::EXIT);

/// Something to be done with a stopped thread of a process; how it goes on, and what is to be told then.
type Work = Box<dyn FnOnce(&mut Tracee, StopReason) -> (Resume, Tell) + Send>;
/// Somebody waits for it.
type Tell = Option<Box<dyn FnOnce() + Send>>;

/// The same, and with which thread.
struct SupervisorRequest {
    task: u32,
    work: Work,
    /// Only if it is kept now.
    kept_only: bool,
}

/// Something to be done while all threads of a process stand.
type StopAllWork = Box<dyn FnOnce() + Send>;

/// Why a process cannot be moved that has given itself a filter.
pub const LIMITS_ITSELF: &str = "it limits its own calls (seccomp)";

type Watcher = Box<dyn Fn(u32) + Send + Sync>;
/// Says whether a new task stands until an order for it comes.
type BirthWatcher = Box<dyn Fn(u32) -> bool + Send + Sync>;
/// Says whether a task that is given this signal stands until an order for it comes.
type DumpWatcher = Box<dyn Fn(u32, i32) -> bool + Send + Sync>;

/// The tasks of a tree.
#[derive(Default)]
pub struct Supervisor {
    tasks: Mutex<BTreeSet<u32>>,
    /// What calls the thread that follows.
    wakeup: Wakeup,
    /// Nobody follows any more.
    over: AtomicBool,
    requests: Mutex<Vec<SupervisorRequest>>,
    /// By process.
    stop_requests: Mutex<Vec<(u32, StopAllWork)>>,
    /// Threads that stand in their ends, and need not any more.
    ended_well: Mutex<Vec<u32>>,
    watcher: Mutex<Option<Watcher>>,
    /// Who is told of each new task in its first stop.
    births: Mutex<Option<BirthWatcher>>,
    /// Who is told of each task that is about to be given a signal which ends its process with an image of its memory.
    dumps: Mutex<Option<DumpWatcher>>,
    /// Processes that limit their own calls.
    sandbox: Sandbox,
    /// Threads that wait on where something has interrupted them that they do not see.
    ignored: Arc<Ignored>,
    /// Who is told before the end of the first process.
    exit_observer: Mutex<Option<Watcher>>,
    /// By thread: the word that the kernel clears when it ends.
    words: Mutex<BTreeMap<u32, Word>>,
    /// Whether its programs are to hold nothing of the kernel that runs them.
    movable: bool,
    /// Processes of such a tree that do all the same.
    bound: Mutex<BTreeSet<u32>>,
    /// Processes that were given a filter after their beginning, and those that they have made since.
    managed: Mutex<BTreeSet<u32>>,
    /// Processes that have the memory of another one.
    borrowers: Mutex<BTreeMap<u32, Borrower>>,
    /// Decides about threads that run elsewhere.
    hook: Hook,
    /// Threads that ask to run elsewhere.
    asking: MoveRequests,
    /// Who is told of tasks that are new, and of processes that are another program.
    heard: Mutex<Option<Sender<()>>>,
    /// Which processors its programs are told of; `None`: those that they may use.
    shown: Option<Shown>,
    /// Threads that were stopped when they had done a part of their calls.
    rests: Arc<ShortWrites>,
}

/// A process that has the memory of another one.
#[derive(Clone, Copy, Debug)]
struct Borrower {
    /// That one.
    of: u32,
    /// The thread of it that waits to have it back (`vfork`).
    waits: Option<u32>,
}

/// A word of a program that tells of a thread's end.
#[derive(Clone, Copy, Debug)]
struct Word {
    address: u64,
    /// The thread's process, once that has been asked for.
    process: Option<u32>,
}

impl Supervisor {
    /// A tree whose programs are to be movable: its first process is ([`refit_sys::launch::be_movable`]), from the next program on, and the
    /// vDSO is hidden from each program here.
    pub fn of_movable() -> Self {
        Self { movable: true, ..Self::default() }
    }

    /// Has `hook` decide about threads that run elsewhere, before anything is followed.
    pub fn set_hook(&mut self, hook: Arc<dyn TracerHook>) {
        self.hook = Hook::new(hook);
    }

    /// How many filters of system calls a process was given by refit, or has from its parent.
    pub fn filters(&self, process: u32) -> u32 {
        u32::from(self.movable || lock(&self.managed).contains(&process))
    }

    /// A process has the filter of those that refit manages ([`refit_sys::seccomp::managed`]), and so have those that it makes.
    pub fn is_managed(&self, process: u32) {
        lock(&self.managed).insert(process);
    }

    /// Follows the tree of a process that has one thread, until all of it has ended; `ready` is called when nothing can
    /// escape any more. If this thread ends before that, the kernel kills the tree.
    ///
    /// # Errors
    /// It cannot be followed (`ESRCH`, `EPERM`); what the kernel says afterwards.
    pub fn follow(&self, process: u32, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        Tracee::seize_with(process, TRACE_OPTIONS_WITH_EXIT)?.leave();
        self.tasks().insert(process);
        if self.movable {
            // Until it is the program.
            lock(&self.bound).insert(process);
        }
        self.wakeup.hear()?;
        info!(process, movable = self.movable, "is followed");
        ready()?;
        let (rests, ignored) = (Arc::clone(&self.rests), Arc::clone(&self.ignored));
        let mut following = EventLoop::of(process, rests, ignored);
        let followed = loop {
            match trace::next_unless(&self.wakeup) {
                Ok((task, event)) => {
                    self.take(task, event, &mut following)?;
                    self.take_executed(&mut following)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if self.wakeup.answer() {
                        self.fetch(&mut following);
                        self.take_executed(&mut following)?;
                    }
                }
                // Nobody is left.
                Err(error) if is(&error, Errno::CHILD) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // Pairs with `until_answered`: an errand that is not seen here is seen there not to be fetched any more.
        self.over.store(true, Ordering::Release);
        info!(process, result = ?followed, "is followed no more");
        // Whoever listens hears that nobody is left; behind the former, as `hear_of_programs` looks at it under the same lock.
        *lock(&self.heard) = None;
        lock(&self.requests).clear();
        lock(&self.stop_requests).clear();
        lock(&self.ended_well).clear();
        followed
    }

    /// Sees to processes of which it was noticed in between that they have become other programs.
    fn take_executed(&self, following: &mut EventLoop) -> io::Result<()> {
        while let Some((task, former)) = following.executed.pop() {
            self.take(task, Event::Exec { former }, following)?;
        }
        Ok(())
    }

    /// The addresses of words of a process that the kernel clears when threads end, for who waits for that (`CLONE_CHILD_CLEARTID`). A
    /// thread that ends waits for no page: one that is not there then is not written to, and who joins the thread waits for ever.
    pub fn words(&self, process: u32) -> Vec<u64> {
        let mut words = lock(&self.words);
        for (thread, word) in words.iter_mut().filter(|(_, word)| word.process.is_none()) {
            word.process = process::process_of(*thread);
        }
        let own = words.values().filter(|word| word.process == Some(process));
        own.map(|word| word.address).collect()
    }

    /// Takes note of a thread that `held` has just made.
    fn note(&self, held: &Tracee, thread: u32) {
        if let Ok(Some(address)) = self.with_page(held, Tracee::clears_at_end) {
            lock(&self.words).insert(thread, Word { address, process: None });
        }
    }

    /// Takes note of an event, and lets the task go on as it would if nobody followed it.
    fn take(&self, task: u32, event: Event, following: &mut EventLoop) -> io::Result<()> {
        let mut held = Tracee::of(task);
        self.rests.look(&held, event);
        self.ignored.look(&held, event);
        self.sandbox.look(&held, event);
        let taken = self.take_filtered(&held, event);
        let taken = taken.or_else(|| self.hook.on_event(&held, event));
        let taken = taken.or_else(|| self.take_request(&held, event));
        let taken = taken.or_else(|| self.take_look(&held, event));
        let goes_on = match taken {
            Some(after) => following.go_on(&held, after),
            None => self.take_note(&mut held, event, following),
        };
        held.leave();
        match goes_on {
            // Killed meanwhile: its end is the next that is told.
            Err(error) if !is(&error, Errno::SRCH) => Err(error),
            _ => Ok(()),
        }
    }

    fn take_note(
        &self,
        held: &mut Tracee,
        event: Event,
        following: &mut EventLoop,
    ) -> io::Result<()> {
        let task = held.thread();
        match event {
            Event::Signal(signal) => return self.give(held, signal, following),
            Event::SystemCall if let Some(after) = self.ignored.take(held) => {
                return following.go_on(held, after);
            }
            // By job control: until somebody continues it.
            Event::Stopped(_) => {
                self.ignored.is_interrupted(held, !self.hook.is_tracked(task));
                let works = following.expected.remove(&task).unwrap_or_default();
                let (_, tells) = EventLoop::do_all(held, StopReason::WithItsProcess, works);
                tells.into_iter().flatten().for_each(|tell| tell());
                return match held.leave_stopped() {
                    // What was done with it has taken it out of its stop.
                    Err(error) if is(&error, Errno::IO) => {
                        held.interrupt()?;
                        held.resume(0)
                    }
                    left => left,
                };
            }
            Event::Clone { child } | Event::Fork { child } => {
                self.note(held, child);
                self.lend(task, child);
            }
            Event::Vfork { child } => {
                let of = process::process_of(task).unwrap_or(task);
                lock(&self.borrowers).insert(child, Borrower { of, waits: Some(task) });
            }
            Event::Exited(_) | Event::Killed(_) => {
                let word = lock(&self.words).remove(&task);
                self.tasks().remove(&task);
                lock(&self.bound).remove(&task);
                lock(&self.managed).remove(&task);
                lock(&self.borrowers).remove(&task);
                self.sandbox.forget(task);
                self.forget(task, following);
                self.hook.task_ended(task, word.map(|word| word.address));
                Self::tell(&self.watcher, task);
                return Ok(());
            }
            // Others only if they are killed before they have begun.
            Event::Exit { .. } => {
                if task == following.first {
                    Self::tell(&self.exit_observer, task);
                }
                // Whoever waits for what was to be done with it is told that it is gone: its end itself may not be told for long, if it is the
                // first thread of its process.
                following.forget(task);
                if self.hook.thread_exits(task) {
                    following.ending.insert(task);
                    return Ok(());
                }
            }
            Event::Interrupted => {
                // Nobody but us interrupts it. Elsewhere its coordinator sees to what becomes of its
                // call.
                self.ignored.is_interrupted(held, !self.hook.is_tracked(task));
                if !self.tasks().contains(&task) {
                    if refit_sys::agent::is_lost(held) {
                        return process::kill(task);
                    }
                    if self.is_born(held) {
                        following.kept.insert(task);
                        return Ok(());
                    }
                }
                if let Some(done) = following.does_expected(held) {
                    return done;
                }
            }
            Event::Exec { former } => self.becomes_another(held, former, following),
            _ => {} // It has made a task, which tells of itself.
        }
        following.go_on(held, self.hook.resume(task))
    }

    /// A task is told of for the first time; whether it stands until somebody has decided about it.
    fn is_born(&self, held: &Tracee) -> bool {
        let task = held.thread();
        // Killed meanwhile, if not.
        let _ =
            held.set_options(if self.movable { TRACE_OPTIONS_WITH_EXIT } else { TRACE_OPTIONS });
        self.inherit(task);
        let stands = self.hook.task_started(task) | self.is_awaited(task);
        // Not before it is known that it has not begun.
        self.tasks().insert(task);
        self.tell_of_program();
        stands
    }

    /// A thread is about to be given a signal.
    fn give(&self, held: &Tracee, signal: i32, following: &mut EventLoop) -> io::Result<()> {
        let task = held.thread();
        let dumps = signals::dumps(task, signal)
            && lock(&self.dumps).as_ref().is_some_and(|tell| tell(task, signal));
        if dumps {
            return following.go_on(held, Resume::Stay);
        }
        following.interrupt_again(held)?;
        // Elsewhere its coordinator sees to what becomes of its call.
        let follow = !self.hook.is_tracked(task);
        if self.ignored.is_given(held, signal, follow) {
            return held.resume_to_system_call(signal);
        }
        held.resume(signal)
    }

    /// A process is another program from now on, in which `former` goes on under the number of its first thread.
    fn becomes_another(&self, held: &mut Tracee, former: u32, following: &mut EventLoop) {
        let task = held.thread();
        debug!(process = task, by = former, "executes another program");
        // All other threads of the process tell of their ends, but the one whose number it takes.
        lock(&self.words).retain(|thread, _| ![former, task].contains(thread));
        self.tasks().remove(&former);
        [former, task].into_iter().for_each(|one| self.forget(one, following));
        lock(&self.borrowers).remove(&task);
        self.tasks().insert(task);
        self.unbind(held);
        self.hook.program_replaced(task, former);
        self.tell_of_program();
        Self::tell(&self.watcher, task);
        if task == following.first {
            // Another of its threads may have become it.
            let _ = held.set_options(TRACE_OPTIONS_WITH_EXIT);
        }
    }

    /// A task is no more.
    fn forget(&self, task: u32, following: &mut EventLoop) {
        following.forget(task);
        self.asking.forget(task);
        self.ignored.forget(task);
        self.rests.forget(task);
    }

    /// A new process may have the memory of the one that has made it, without being a thread of it (`CLONE_VM`).
    fn lend(&self, task: u32, child: u32) {
        let of = process::process_of(task);
        if self.movable
            && let Some(of) = of.filter(|_| process::process_of(child) != of)
            && refit_sys::process::same_memory(task, child).unwrap_or(false)
        {
            lock(&self.borrowers).insert(child, Borrower { of, waits: None });
        }
    }

    /// A new process holds what its parent does.
    fn inherit(&self, task: u32) {
        self.sandbox.inherit(task);
        let mut managed = lock(&self.managed);
        if !managed.is_empty()
            && process::parent_of(task).is_some_and(|from| managed.contains(&from))
        {
            // It may have been made before its parent had the filter.
            let filters = Status::of(task).ok().and_then(|status| status.filters());
            if filters.is_some_and(|count| count > 0) {
                managed.insert(task);
            }
        }
        drop(managed);
        let mut bound = lock(&self.bound);
        // As a rule there are none.
        if !bound.is_empty() && process::parent_of(task).is_some_and(|from| bound.contains(&from)) {
            bound.insert(task);
        }
    }

    /// A program that begins is movable, if that is wanted and can be.
    fn unbind(&self, held: &Tracee) {
        if self.movable {
            let hidden = vdso::hide_vdso(held).is_ok();
            let mut bound = lock(&self.bound);
            if hidden {
                bound.remove(&held.thread())
            } else {
                bound.insert(held.thread())
            };
        }
    }

    fn tell(whom: &Mutex<Option<Watcher>>, task: u32) {
        if let Some(watcher) = &*lock(whom) {
            watcher(task);
        }
    }

    /// Whether a process can be moved; why not.
    pub fn movable(&self, process: u32) -> Result<(), String> {
        if !self.movable {
            return Err("it was not started by `refit run --movable`".to_owned());
        }
        if lock(&self.borrowers).contains_key(&process) {
            return Err("it has the memory of its parent until it runs another program".to_owned());
        }
        let parent = process::parent_of(process).filter(|parent| self.tasks().contains(parent));
        let same = |parent| refit_sys::process::same_memory(process, parent);
        if parent.is_some_and(|parent| same(parent).is_ok_and(|same| same)) {
            return Err("it shares the memory of its parent".to_owned());
        }
        if self.sandbox.has(process) {
            return Err(LIMITS_ITSELF.to_owned());
        }
        if self.hook.is_starting(process) {
            return Err("it has not begun yet".to_owned());
        }
        if lock(&self.bound).contains(&process) {
            return Err(
                "it has the vDSO of this kernel, which could not be hidden from it".to_owned()
            );
        }
        Ok(())
    }

    /// Returns whether a thread was stopped when it had done a part of a call, of which the rest is still to be done.
    pub fn has_short_write(&self, thread: u32) -> bool {
        self.rests.is_short(thread)
    }

    /// Has the rest of such a call not be done: the thread leaves with what it has.
    pub fn forget_short_write(&self, thread: u32) {
        self.rests.forget(thread);
    }

    /// Whether a process limits its own calls (seccomp), and so has to stay at home.
    pub fn limits_itself(&self, process: u32) -> bool {
        self.sandbox.has(process)
    }

    /// Its processes now, by number.
    pub fn processes(&self) -> Vec<Process> {
        let bound = lock(&self.bound).clone();
        let look = |id| process::look(id, self.movable && !bound.contains(&id));
        self.process_numbers().into_iter().filter_map(look).collect()
    }

    /// Whether a process is one of its own.
    pub fn has(&self, process: u32) -> bool {
        let known = self.tasks().contains(&process);
        known && process::process_of(process) == Some(process)
    }

    /// The numbers of its processes now.
    pub fn process_numbers(&self) -> BTreeSet<u32> {
        let tasks = self.tasks().clone();
        tasks.into_iter().filter_map(process::process_of).collect()
    }

    /// Reads what a thread has handed to the call that it stands in; its page may be elsewhere.
    fn with_page<R>(
        &self,
        held: &Tracee,
        read: impl Fn(&Tracee) -> io::Result<R>,
    ) -> io::Result<R> {
        syscall::with_page(held, || self.hook.has_remote_pages(), read)
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        lock(&self.tasks)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one operation on a collection.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is(error: &io::Error, which: Errno) -> bool {
    error.raw_os_error() == Some(which.raw_os_error())
}
