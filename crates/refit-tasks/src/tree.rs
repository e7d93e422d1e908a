//! The tasks of a program and of all that it starts.
//!
//! One thread follows ([`Tree::follow`]), any other may ask. A task is in the tree from its first instruction until its
//! parent can learn of its end.
//!
//! What only the tracer of a task can do, the thread that follows does for others ([`Tree::ask`]): they leave it in `errands`, and nudge the
//! thread until it has fetched it, since a nudge that comes before the thread waits is lost.
//!
//! The first thread of the first process also tells that it is about to end, since that is the last moment at which its descriptors can
//! be reached. What a thread is told of, those that it makes inherit: in the first stop of each it is taken off again.

pub(crate) mod moves;
mod still;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use refit_sys::thread;
use refit_sys::trace::{self, Event, Held, Options};
use rustix::io::Errno;

use crate::movable;
use crate::process::{self, Process};
use moves::Moves;

/// What is told of each task, which those that it makes inherit; and that all end with who follows.
pub(crate) const FOLLOWED: Options = Options::FORK
    .union(Options::VFORK)
    .union(Options::CLONE)
    .union(Options::EXEC)
    .union(Options::SECCOMP)
    .union(Options::SYSTEM_CALL)
    .union(Options::EXIT_KILL);

/// What is told of the first task.
const FIRST: Options = FOLLOWED.union(Options::EXIT);

/// Between two nudges.
const PAUSE: Duration = Duration::from_millis(2);

/// Something to be done with a stopped thread of a process.
type Work = Box<dyn FnOnce(&mut Held, Stands) -> After + Send>;

/// How a thread stands that something is to be done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// It was stopped for that, or was kept for it.
    ForUs,
    /// Its whole process is stopped, by job control.
    WithItsProcess,
}

/// Something to be done while all threads of a process stand.
type StillWork = Box<dyn FnOnce() + Send>;

/// How a thread goes on that was stopped for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// As if nothing had been.
    GoOn,
    /// Up to the next entry or exit of a system call; it is given this signal first, if it is not 0.
    ToSystemCall(i32),
    /// It is given this signal, if it is not 0, and stops again at once, behind what that leads to.
    Once(i32),
    /// Not at all, until somebody comes with more work.
    Stay,
}

type Watcher = Box<dyn Fn(u32) + Send + Sync>;

/// The tasks of a tree.
#[derive(Default)]
pub struct Tree {
    tasks: Mutex<BTreeSet<u32>>,
    /// The thread that follows; 0: none.
    follower: AtomicU32,
    /// By task.
    errands: Mutex<Vec<(u32, Work)>>,
    /// By process.
    still_errands: Mutex<Vec<(u32, StillWork)>>,
    watcher: Mutex<Option<Watcher>>,
    /// Who is told before the end of the first process.
    mourner: Mutex<Option<Watcher>>,
    /// By thread: the word that the kernel clears when it ends.
    words: Mutex<BTreeMap<u32, Word>>,
    /// Whether its programs are to hold nothing of the kernel that runs them.
    movable: bool,
    /// Whether threads that run elsewhere come back for each of their calls.
    calls_here: bool,
    /// Processes of such a tree that do all the same.
    bound: Mutex<BTreeSet<u32>>,
    /// Processes that have the memory of their parent, which waits (`vfork`): who they are, and the thread that waits.
    borrowers: Mutex<BTreeMap<u32, u32>>,
    /// Processes of which threads run elsewhere.
    pub(crate) moves: Moves,
}

/// What the thread that follows keeps to itself.
struct Following {
    /// The process that the tree begins with.
    first: u32,
    /// What is to be done with tasks that were interrupted for it.
    expected: BTreeMap<u32, Vec<Work>>,
    /// Tasks that stand until somebody comes with more work.
    kept: BTreeSet<u32>,
}

/// A word of a program that tells of a thread's end.
#[derive(Clone, Copy, Debug)]
struct Word {
    address: u64,
    /// The thread's process, once that has been asked for.
    process: Option<u32>,
}

impl Tree {
    /// A tree whose programs are to be movable: its first process is ([`refit_sys::launch::be_movable`]), from the next program on, and the
    /// vDSO is hidden from each program here.
    pub fn of_movable() -> Self {
        Self { movable: true, ..Self::default() }
    }

    /// How many filters of system calls its programs were given by refit.
    pub(crate) fn filters(&self) -> u32 {
        u32::from(self.movable)
    }

    /// Follows the tree of a process that has one thread, until all of it has ended; `ready` is called when nothing can
    /// escape any more. If this thread ends before that, the kernel kills the tree.
    ///
    /// # Errors
    /// It cannot be followed (`ESRCH`, `EPERM`); what the kernel says afterwards.
    pub fn follow(&self, process: u32, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        thread::accept_nudges()?;
        Held::seize_with(process, FIRST)?.leave();
        self.tasks().insert(process);
        if self.movable {
            // Until it is the program.
            lock(&self.bound).insert(process);
        }
        // Pairs with `ask`: what is needed to be nudged is there.
        self.follower.store(thread::id(), Ordering::Release);
        ready()?;
        let mut following =
            Following { first: process, expected: BTreeMap::new(), kept: BTreeSet::new() };
        let followed = loop {
            match trace::next(true) {
                Ok(Some((task, event))) => self.take(task, event, &mut following)?,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.fetch(&mut following);
                }
                // Nobody is left.
                Err(error) if is(&error, Errno::CHILD) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.follower.store(0, Ordering::Release);
        lock(&self.errands).clear();
        lock(&self.still_errands).clear();
        followed
    }

    /// Tells `watcher` of processes that have another memory, or none, since they have become other programs or have ended; in the thread
    /// that follows and before the process goes on: it must not wait for it.
    pub fn watch(&self, watcher: impl Fn(u32) + Send + Sync + 'static) {
        *lock(&self.watcher) = Some(Box::new(watcher));
    }

    /// Tells `mourner` of the first process when it is about to end and still has all its descriptors: in the thread that follows, and
    /// the process waits for it. A first thread that ends before others, or gives way to one that becomes another program, is told
    /// like the end; with another program the true end is told as well.
    pub fn before_end(&self, mourner: impl Fn(u32) + Send + Sync + 'static) {
        *lock(&self.mourner) = Some(Box::new(mourner));
    }

    /// Has the thread that follows do `work` with the first thread of a process, which is stopped for as long, as for
    /// [`Held::call`]; what it returns.
    ///
    /// # Errors
    /// `ESRCH`: it is not of this tree, or has ended. `ETIMEDOUT`: it has not stopped `within` this time, and nothing has been done:
    /// it waits for a page, or for the child of its `vfork`.
    pub fn ask<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Held) -> R + Send + 'static,
    ) -> io::Result<R> {
        self.order(process, within, |held, _| (work(held), After::GoOn))
    }

    /// As [`ask`](Self::ask), of any thread, and the work says how it goes on. A thread that [stays](After::Stay) is not in an event stop
    /// always: see what it was kept for.
    pub(crate) fn order<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce(&mut Held, Stands) -> (R, After) + Send + 'static,
    ) -> io::Result<R> {
        let (answer, answered) = mpsc::channel();
        // Whoever is first says whether it is done: who has stopped the thread, or who does not want to wait any longer.
        let decided = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&decided);
        let work: Work = Box::new(move |held, stands| {
            // Relaxed, as below: what is decided is all that is told.
            if begins.swap(true, Ordering::Relaxed) {
                return After::GoOn;
            }
            let (done, after) = work(held, stands);
            drop(answer.send(done));
            after
        });
        lock(&self.errands).push((process, work));
        let waits = || lock(&self.errands).iter().any(|(task, _)| *task == process);
        self.until_answered(&answered, &decided, Instant::now() + within, waits)
    }

    /// Has the thread that follows do `work` while all threads of a process stand, wherever they are, and all that have its memory for a
    /// while (`vfork`); what it returns. Threads that wait for the end of a `vfork` do not count: they touch nothing.
    ///
    /// # Errors
    /// `ESRCH`: nobody follows any more. `ETIMEDOUT`: they do not all stand `within` this time; nothing has been done.
    pub(crate) fn still<R: Send + 'static>(
        &self,
        process: u32,
        within: Duration,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<R> {
        let (answer, answered) = mpsc::channel();
        let decided = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&decided);
        let work: StillWork = Box::new(move || {
            if !begins.swap(true, Ordering::Relaxed) {
                drop(answer.send(work()));
            }
        });
        lock(&self.still_errands).push((process, work));
        let waits = || lock(&self.still_errands).iter().any(|(of, _)| *of == process);
        self.until_answered(&answered, &decided, Instant::now() + within, waits)
    }

    /// Nudges who follows as long as the errand `waits`, until there is an answer.
    fn until_answered<R>(
        &self,
        answered: &mpsc::Receiver<R>,
        decided: &AtomicBool,
        deadline: Instant,
        waits: impl Fn() -> bool,
    ) -> io::Result<R> {
        loop {
            // Pairs with `follow`.
            let follower = self.follower.load(Ordering::Acquire);
            if follower != 0 && waits() {
                thread::nudge(follower);
            }
            match answered.recv_timeout(PAUSE) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(Errno::SRCH.into()),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) if decided.swap(true, Ordering::Relaxed) => {
                    // It has begun.
                    return answered.recv().map_err(|_| Errno::SRCH.into());
                }
                Err(RecvTimeoutError::Timeout) => return Err(Errno::TIMEDOUT.into()),
            }
        }
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
    fn note(&self, held: &Held, thread: u32) {
        if let Ok(Some(address)) = held.clears_at_end() {
            lock(&self.words).insert(thread, Word { address, process: None });
        }
    }

    /// Interrupts the tasks that something is to be done with.
    fn fetch(&self, following: &mut Following) {
        for (task, work) in std::mem::take(&mut *lock(&self.errands)) {
            if !self.tasks().contains(&task) {
                continue;
            }
            let mut held = Held::of(task);
            if following.kept.remove(&task) {
                // Killed meanwhile, if not: its end is the next that is told.
                let _ = following.run(&mut held, vec![work]);
            } else if held.interrupt().is_ok() {
                following.expected.entry(task).or_default().push(work);
            }
            held.leave();
        }
        for (process, work) in std::mem::take(&mut *lock(&self.still_errands)) {
            // Killed meanwhile: what that means is told later.
            let _ = self.stand_still(process, following, work);
        }
    }

    /// Takes note of an event, and lets the task go on as it would if nobody followed it.
    fn take(&self, task: u32, event: Event, following: &mut Following) -> io::Result<()> {
        let mut held = Held::of(task);
        let goes_on = match self.moves.take(&held, event) {
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
        held: &mut Held,
        event: Event,
        following: &mut Following,
    ) -> io::Result<()> {
        let task = held.thread();
        match event {
            Event::Signal(signal) => return held.resume(signal),
            // By job control: until somebody continues it.
            Event::Stopped(_) => {
                let _ = held.make_interrupted_call_again();
                let works = following.expected.remove(&task);
                Following::do_all(held, Stands::WithItsProcess, works);
                return held.leave_stopped();
            }
            Event::Clone { child } => self.note(held, child),
            Event::Vfork { child } => drop(lock(&self.borrowers).insert(child, task)),
            Event::Exited(_) | Event::Killed(_) => {
                lock(&self.words).remove(&task);
                self.tasks().remove(&task);
                lock(&self.bound).remove(&task);
                following.forget(task);
                lock(&self.borrowers).remove(&task);
                self.moves.ended(task);
                Self::tell(&self.watcher, task);
                return Ok(());
            }
            // Others only if they are killed before they have begun.
            Event::Exit { .. } if task == following.first => Self::tell(&self.mourner, task),
            Event::Interrupted => {
                // Nobody but us interrupts it. One that was killed meanwhile has nothing to go on with.
                let _ = held.make_interrupted_call_again();
                if self.tasks().insert(task) {
                    // Killed meanwhile, if not.
                    let _ = held.set_options(FOLLOWED);
                    self.inherit(task);
                    if self.moves.born(task) {
                        following.kept.insert(task);
                        return Ok(());
                    }
                }
                if let Some(works) = following.expected.remove(&task) {
                    return following.run(held, works);
                }
            }
            Event::Exec { former } => {
                // All other threads of the process tell of their ends, but the one whose number it takes.
                lock(&self.words).retain(|thread, _| ![former, task].contains(thread));
                self.tasks().remove(&former);
                following.forget(former);
                lock(&self.borrowers).remove(&task);
                self.tasks().insert(task);
                self.unbind(held);
                self.moves.became_another(task, former);
                Self::tell(&self.watcher, task);
                if task == following.first {
                    // Another of its threads may have become it.
                    let _ = held.set_options(FIRST);
                }
            }
            // It has made a task, which tells of itself.
            _ => {}
        }
        following.go_on(held, self.moves.plainly(task))
    }

    /// A new process holds what its parent does.
    fn inherit(&self, task: u32) {
        let mut bound = lock(&self.bound);
        // As a rule there are none.
        if !bound.is_empty() && process::parent_of(task).is_some_and(|from| bound.contains(&from)) {
            bound.insert(task);
        }
    }

    /// A program that begins is movable, if that is wanted and can be.
    fn unbind(&self, held: &Held) {
        if self.movable {
            let hidden = movable::hide_vdso(held).is_ok();
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

    /// Whether threads that run elsewhere are to come back for each of their calls.
    pub(crate) fn make_calls_here(&mut self, here: bool) {
        self.calls_here = here;
    }

    pub(crate) fn makes_calls_here(&self) -> bool {
        self.calls_here
    }

    /// Whether a process can be moved; why not.
    pub(crate) fn movable(&self, process: u32) -> Result<(), String> {
        if !self.movable {
            return Err("it was not started by `refit run --movable`".to_owned());
        }
        if lock(&self.borrowers).contains_key(&process) {
            return Err("it has the memory of its parent until it runs another program".to_owned());
        }
        if lock(&self.bound).contains(&process) {
            return Err(
                "it has the vDSO of this kernel, which could not be hidden from it".to_owned()
            );
        }
        Ok(())
    }

    /// Its processes now, by number.
    pub fn processes(&self) -> Vec<Process> {
        let bound = lock(&self.bound).clone();
        let look = |id| process::look(id, self.movable && !bound.contains(&id));
        self.process_numbers().into_iter().filter_map(look).collect()
    }

    /// The numbers of its processes now.
    pub fn process_numbers(&self) -> BTreeSet<u32> {
        let tasks = self.tasks().clone();
        tasks.into_iter().filter_map(process::process_of).collect()
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        lock(&self.tasks)
    }
}

impl Following {
    /// Does what was to be done with a thread that stands; how it goes on, as whoever said it last wants.
    fn do_all(held: &mut Held, stands: Stands, works: Option<Vec<Work>>) -> After {
        works.into_iter().flatten().fold(After::GoOn, |_, work| work(held, stands))
    }

    /// Does it, and lets it go on.
    fn run(&mut self, held: &mut Held, works: Vec<Work>) -> io::Result<()> {
        let after = Self::do_all(held, Stands::ForUs, Some(works));
        self.go_on(held, after)
    }

    fn go_on(&mut self, held: &Held, after: After) -> io::Result<()> {
        match after {
            After::GoOn => held.resume(0),
            After::ToSystemCall(signal) => held.resume_to_system_call(signal),
            After::Once(signal) => {
                held.interrupt()?;
                held.resume(signal)
            }
            After::Stay => {
                self.kept.insert(held.thread());
                Ok(())
            }
        }
    }

    fn forget(&mut self, task: u32) {
        self.expected.remove(&task);
        self.kept.remove(&task);
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one operation on a collection.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is(error: &io::Error, which: Errno) -> bool {
    error.raw_os_error() == Some(which.raw_os_error())
}
