//! A group's part at an instance that it did not begin at: a replica of its process, empty at first, in which threads of ours run the
//! instructions of the group's.
//!
//! The first task of the replica, its *keeper*, never runs: it makes threads, and takes mappings away, at the *landlord*'s bidding, the
//! one of our threads that traces it. Each further task has a thread of ours of its own ([`super::runner`]), which puts mappings in.
//!
//! **No mapping outlives what it shows.** A runner asks the origin what is at an address, and maps it later; in between the origin may have
//! told to forget it. So each forgetting is counted, under the lock that mappings are made under: an answer to a question from before is
//! asked for again ([`Guest::map`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::process::Child;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use refit_messages::{Layer, Reply};
use refit_sys::park;
use refit_sys::trace::{Held, Options};
use refit_sys::words::Words;

use super::runner::Runner;
use super::stub;
use super::wire::{Arrive, Descriptor, Forget, GroupId, Particulars};

/// The end of what programs can have (`TASK_SIZE`), on processors with four levels of tables.
pub(crate) const TOP: u64 = 0x7fff_ffff_f000;

/// A replica.
pub(crate) struct Guest {
    pub(crate) group: GroupId,
    pub(crate) layer: Arc<Layer>,
    pub(crate) window: Range<u64>,
    /// Where calls are left for the threads' shadows.
    pub(crate) slots: &'static [AtomicU64],
    /// Whether threads go home for each of their calls.
    pub(crate) calls_home: bool,
    /// The replica's number.
    pub(crate) process: u32,
    /// How often something had to be forgotten. Held while mappings change.
    forgotten: Mutex<u64>,
    jobs: Mutex<Sender<Job>>,
    runners: Mutex<BTreeMap<u32, Arc<Runner>>>,
    /// Runners whose threads have ended.
    spare: Mutex<Vec<Arc<Runner>>>,
}

/// What is asked of a landlord.
enum Job {
    Thread(Sender<io::Result<u32>>),
    Forget(Vec<Range<u64>>, Reply<Forget>),
    End,
}

impl Guest {
    /// Makes a replica for a group.
    pub(crate) fn begin(
        group: GroupId,
        particulars: &Particulars,
        layer: &Arc<Layer>,
    ) -> io::Result<Arc<Self>> {
        let slots = Words::open(open(particulars.slots)?)?;
        let frames = open(particulars.frames)?;
        let window = particulars.window.clone();
        let (jobs, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let landlord = move || match Landlord::begin(&window, frames) {
            Ok(landlord) => {
                let (process, asked) = (landlord.child.id(), asked);
                if let Ok(guest) = begun(tell, process) {
                    landlord.serve(&asked, &guest);
                }
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        thread::Builder::new().name("refit-landlord".to_owned()).spawn(landlord)?;
        let gone = || io::Error::other("its landlord has ended at once");
        let (process, hand_over) = told.recv().map_err(|_| gone())??;
        let guest = Arc::new(Self {
            group,
            layer: Arc::clone(layer),
            window: particulars.window.clone(),
            slots: slots.get(),
            calls_home: particulars.calls_home,
            process,
            forgotten: Mutex::new(0),
            jobs: Mutex::new(jobs),
            runners: Mutex::default(),
            spare: Mutex::default(),
        });
        hand_over.send(Arc::clone(&guest)).map_err(|_| gone())?;
        Ok(guest)
    }

    /// Has a thread of the group run here; `reply` is told when it does.
    pub(crate) fn arrive(self: &Arc<Self>, arrive: Arrive, reply: Reply<Arrive>) {
        match self.runner(arrive.thread) {
            Ok(runner) => runner.arrive(arrive, reply),
            Err(error) => reply.say(&Err(error.to_string()), &[]),
        }
    }

    /// The runner of a thread, which is made if this is the first time that it is here.
    fn runner(self: &Arc<Self>, thread: u32) -> io::Result<Arc<Runner>> {
        if let Some(runner) = self.runners().get(&thread) {
            return Ok(Arc::clone(runner));
        }
        let spare = self.spare().pop();
        let runner = match spare {
            Some(runner) => runner,
            None => {
                let (tell, told) = mpsc::channel();
                self.ask(Job::Thread(tell));
                let ended = |_| io::Error::other("its replica has ended");
                Runner::begin(self, told.recv().map_err(ended)??)?
            }
        };
        self.runners().insert(thread, Arc::clone(&runner));
        Ok(runner)
    }

    /// The runner of a thread that has been here.
    pub(crate) fn known(&self, thread: u32) -> Option<Arc<Runner>> {
        self.runners().get(&thread).cloned()
    }

    /// What is at these addresses is to be asked for again.
    pub(crate) fn forget(&self, ranges: Vec<Range<u64>>, reply: Reply<Forget>) {
        self.ask(Job::Forget(ranges, reply));
    }

    /// A thread has ended: its runner serves another one, some day.
    pub(crate) fn vanish(&self, thread: u32) {
        if let Some(runner) = self.runners().remove(&thread) {
            runner.rest();
            self.spare().push(runner);
        }
    }

    /// Ends all.
    pub(crate) fn end(&self) {
        let runners = std::mem::take(&mut *self.runners());
        runners.values().for_each(|runner| runner.end());
        self.spare().drain(..).for_each(|runner| runner.end());
        self.ask(Job::End);
    }

    /// How often something had to be forgotten until now.
    pub(crate) fn forgotten(&self) -> u64 {
        *self.lock()
    }

    /// Makes mappings that are an answer to a question from when `forgotten` was told; `None`: it has to be asked again.
    pub(crate) fn map<R>(&self, forgotten: u64, make: impl FnOnce() -> R) -> Option<R> {
        let now = self.lock();
        (*now == forgotten).then(make)
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runners(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Runner>>> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Arc<Runner>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, job: Job) {
        // A landlord that has ended has dropped what waits for an answer.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }
}

/// What a landlord tells when its replica stands: the number of it, and where the guest is to be sent.
type Begun = Sender<io::Result<(u32, Sender<Arc<Guest>>)>>;

fn begun(tell: Begun, process: u32) -> Result<Arc<Guest>, mpsc::RecvError> {
    let (hand_over, handed) = mpsc::channel();
    // Whoever has asked waits for it.
    let _ = tell.send(Ok((process, hand_over)));
    handed.recv()
}

/// Who traces the keeper.
struct Landlord {
    child: Child,
    keeper: Held,
    /// A `syscall` instruction of the replica.
    instruction: u64,
    /// Where its threads begin.
    rest: u64,
}

impl Landlord {
    fn begin(window: &Range<u64>, frames: File) -> io::Result<Self> {
        let (child, keeper) = stub::start(window.start, frames, Options::EXIT_KILL)?;
        let code = window.start + stub::CODE;
        let (instruction, rest) = (code + park::instruction(), code + park::rest());
        let mut landlord = Self { child, keeper, instruction, rest };
        match landlord.clear(window) {
            Ok(()) => Ok(landlord),
            Err(error) => {
                landlord.end();
                Err(error)
            }
        }
    }

    /// Takes away what the kernel has given: stack, vDSO.
    fn clear(&mut self, window: &Range<u64>) -> io::Result<()> {
        let page = refit_sys::maps::of(self.child.id())?;
        let ours = page.iter().find(|mapping| mapping.range.contains(&window.start));
        let end = ours.map_or(window.start, |mapping| mapping.range.end);
        self.unmap(&(0..window.start))?;
        self.unmap(&(end..TOP))
    }

    fn unmap(&mut self, range: &Range<u64>) -> io::Result<()> {
        let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
        self.keeper.call(self.instruction, libc::SYS_munmap, arguments)?;
        Ok(())
    }

    fn serve(mut self, asked: &Receiver<Job>, guest: &Guest) {
        for job in asked {
            match job {
                Job::Thread(tell) => drop(tell.send(self.thread())),
                Job::Forget(ranges, reply) => {
                    let mut forgotten = guest.lock();
                    *forgotten += 1;
                    let done = ranges.iter().try_for_each(|range| self.forget(guest, range));
                    drop(forgotten);
                    // If that failed nobody is left who could see what was there: the keeper was killed.
                    reply.say(&(), &[]);
                    if done.is_err() {
                        break;
                    }
                }
                Job::End => break,
            }
        }
        self.end();
    }

    /// Takes away what is mapped in a range, but what is ours.
    fn forget(&mut self, guest: &Guest, range: &Range<u64>) -> io::Result<()> {
        let below = range.start..range.end.min(guest.window.start);
        let above = range.start.max(guest.window.end)..range.end.min(TOP);
        for part in [below, above] {
            if !part.is_empty() {
                self.unmap(&part)?;
            }
        }
        Ok(())
    }

    /// A new thread of the replica, which rests, untraced.
    fn thread(&mut self) -> io::Result<u32> {
        let rest = self.rest;
        let start = |registers: &mut refit_sys::trace::Registers| registers.rip = rest;
        let held = self.keeper.clone_thread(self.instruction, Options::EXIT_KILL, start)?;
        let task = held.thread();
        held.let_go()?;
        Ok(task)
    }

    fn end(mut self) {
        // It stands, and whatever it was is not needed any more.
        let _ = self.child.kill();
        self.keeper.leave();
        let _ = self.child.wait();
    }
}

/// A descriptor that another process of this host holds, opened anew.
fn open(descriptor: Descriptor) -> io::Result<File> {
    let Descriptor { process, number } = descriptor;
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{number}"))
}
