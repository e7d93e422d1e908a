//! Replicas, and who makes them. That takes a millisecond, in which a thread that is to move would have to wait; so each instance has one that nobody has
//! moved into yet, with a task at rest, at the address that is refit's in most programs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use refit_messages::Reply;
use refit_sys::cpu_latency::Awake;
use refit_sys::foreign::Memory;
use refit_sys::shadow_stub;
use refit_sys::trace::{Options, Tracee};
use refit_tracer::placement::{self, TOP};

use crate::dsm::{self, Store};
use crate::fault_injection::{self, Step};
use crate::protocol::messages::{Follow, Invalidate};
use crate::remote::mmap::pass;
use crate::remote::replica::Replica;
use crate::remote::stub;

/// What is asked of a replica server.
pub(super) enum ReplicaJob {
    Thread(Sender<io::Result<u32>>),
    Invalidate(Invalidate, Reply<Invalidate>),
    InvalidateDone,
    Follow(Follow, Reply<Follow>),
    End,
}

/// The replica that the next group moves into.
#[derive(Default)]
pub(crate) struct SpareReplicas {
    vacant: Mutex<Option<SpareReplica>>,
    /// Somebody is about to have one be there.
    comes: AtomicBool,
}

impl SpareReplicas {
    /// Has a group move into a replica whose page of ours is at `page`.
    ///
    /// # Errors
    /// None can be made.
    pub(super) fn let_in(
        &self,
        page: u64,
        frames: &File,
        (moves, awake): (bool, Option<Arc<Awake>>),
    ) -> io::Result<NewReplica> {
        let there = self.vacant().take_if(|one| one.page == page);
        if let Some(Ok(done)) = there.map(|one| one.let_in(frames, moves, awake.clone())) {
            return Ok(done);
        }
        // One that was there may have been killed.
        SpareReplica::begin(page)?.let_in(frames, moves, awake)
    }

    /// Has one be there for who comes next.
    pub(crate) fn fill(&self) {
        let mut vacant = self.vacant();
        if vacant.is_none() {
            // Else it is made when it is needed.
            *vacant = SpareReplica::begin(placement::FIRST).ok();
        }
    }

    /// The same in a while, if nobody else does: who has just moved in needs the processor.
    pub(crate) fn fill_later(&self) {
        const WHILE: Duration = Duration::from_secs(1);
        // Relaxed: whoever is too late for that one makes its own.
        if self.vacant().is_none() && !self.comes.swap(true, Ordering::Relaxed) {
            thread::sleep(WHILE);
            self.comes.store(false, Ordering::Relaxed);
            self.fill();
        }
    }

    fn vacant(&self) -> std::sync::MutexGuard<'_, Option<SpareReplica>> {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A replica that nobody has moved into, or is being made.
struct SpareReplica {
    page: u64,
    tenants: Sender<Tenant>,
}

/// Who moves in.
struct Tenant {
    frames: File,
    /// Its pages are to be held here.
    moves: bool,
    awake: Option<Arc<Awake>>,
    jobs: Receiver<ReplicaJob>,
    told: Sender<io::Result<ReplicaReady>>,
}

/// A replica that is its tenant's: its number, its pages, and where the replica is to be sent.
type ReplicaReady = (u32, Option<Arc<Store>>, Sender<Arc<Replica>>);

/// The same, and where jobs are to be sent.
pub(super) struct NewReplica {
    pub(super) process: u32,
    pub(super) store: Option<Arc<Store>>,
    pub(super) hand_over: Sender<Arc<Replica>>,
    pub(super) jobs: Sender<ReplicaJob>,
}

impl SpareReplica {
    fn begin(page: u64) -> io::Result<Self> {
        let (tenants, wanted) = mpsc::channel();
        let keep = move || keep(page, &wanted);
        thread::Builder::new().name("refit-replicas".to_owned()).spawn(keep)?;
        Ok(Self { page, tenants })
    }

    fn let_in(
        self,
        frames: &File,
        moves: bool,
        awake: Option<Arc<Awake>>,
    ) -> io::Result<NewReplica> {
        let gone = || io::Error::other("its replica server has ended at once");
        let ((jobs, asked), (told, hears)) = (mpsc::channel(), mpsc::channel());
        let tenant = Tenant { frames: frames.try_clone()?, moves, awake, jobs: asked, told };
        self.tenants.send(tenant).map_err(|_| gone())?;
        let (process, store, hand_over) = hears.recv().map_err(|_| gone())??;
        Ok(NewReplica { process, store, hand_over, jobs })
    }
}

/// Makes a replica, and serves its tenant.
fn keep(page: u64, wanted: &Receiver<Tenant>) {
    let made = ReplicaServer::begin(page);
    let Ok(Tenant { frames, moves, awake, jobs, told }) = wanted.recv() else {
        return made.into_iter().for_each(ReplicaServer::end);
    };
    match made.and_then(|replica_server| replica_server.let_in(frames, moves)) {
        Ok((replica_server, store)) => {
            let (hand_over, handed) = mpsc::channel();
            // Whoever has asked waits for it.
            let _ = told.send(Ok((replica_server.child.id(), store, hand_over)));
            match handed.recv() {
                Ok(replica) => replica_server.serve(&jobs, &replica),
                Err(_) => replica_server.end(),
            }
        }
        Err(error) => drop(told.send(Err(error))),
    }
    drop(awake);
}

/// Who traces the keeper.
struct ReplicaServer {
    child: Child,
    keeper: Tracee,
    page: u64,
    /// A `syscall` instruction of the replica.
    instruction: u64,
    /// Where its threads begin.
    rest: u64,
    /// One that nobody has asked for yet.
    spare: Option<u32>,
}

impl ReplicaServer {
    /// Makes a replica, with a task that rests.
    fn begin(page: u64) -> io::Result<Self> {
        let (child, keeper) = stub::start(page, Options::EXIT_KILL)?;
        let code = page + stub::CODE;
        let (instruction, rest) = (code + shadow_stub::instruction(), code + shadow_stub::rest());
        let mut replica_server = Self { child, keeper, page, instruction, rest, spare: None };
        match replica_server.clear().and_then(|()| replica_server.thread()) {
            Ok(task) => {
                replica_server.spare = Some(task);
                Ok(replica_server)
            }
            Err(error) => {
                replica_server.end();
                Err(error)
            }
        }
    }

    /// Makes it a group's, whose frames these are; and its pages, if they `move`.
    fn let_in(mut self, frames: File, moves: bool) -> io::Result<(Self, Option<Arc<Store>>)> {
        let store = self.own(&frames).and_then(|()| {
            let open = || dsm::open(&mut self.keeper, self.instruction);
            let userfault = moves.then(open).transpose()?;
            Ok(userfault.map(|userfault| Store::new(Arc::new(frames), userfault)))
        });
        match store {
            Ok(store) => Ok((self, store)),
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }

    /// Makes the frames its descriptor 0.
    fn own(&mut self, frames: &File) -> io::Result<()> {
        let memory = Memory::of(self.child.id())?;
        self.keeper.call(self.instruction, libc::SYS_close, [0; 6])?;
        match pass(&mut self.keeper, self.instruction, (self.page, &memory), frames, true)? {
            0 => Ok(()),
            other => Err(io::Error::other(format!("the frames are its descriptor {other}"))),
        }
    }

    /// Takes away what the kernel has given: stack, vDSO.
    fn clear(&mut self) -> io::Result<()> {
        let mappings = refit_sys::maps::of(self.child.id())?;
        let ours = mappings.iter().find(|mapping| mapping.range.contains(&self.page));
        let end = ours.map_or(self.page, |mapping| mapping.range.end);
        self.unmap(&(0..self.page))?;
        self.unmap(&(end..TOP))
    }

    fn unmap(&mut self, range: &Range<u64>) -> io::Result<()> {
        let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
        self.keeper.call(self.instruction, libc::SYS_munmap, arguments)?;
        Ok(())
    }

    fn serve(mut self, asked: &Receiver<ReplicaJob>, replica: &Replica) {
        for job in asked {
            match job {
                ReplicaJob::Thread(tell) => {
                    let spare = self.spare.take();
                    let _ = tell.send(spare.map_or_else(|| self.thread(), Ok));
                }
                ReplicaJob::InvalidateDone => replica.mapped.known().thaw(),
                ReplicaJob::Follow(Follow { members, plan, .. }, reply) => {
                    replica.lock.follow(&members);
                    // No answer is mapped any more that was believed before.
                    let _changes = replica.lock();
                    replica.mapped.known().follow(members, plan);
                    reply.say(&(), &[]);
                }
                ReplicaJob::Invalidate(Invalidate { ranges, freezes, .. }, reply) => {
                    let changes = replica.lock();
                    replica.mapped.known().forget(&ranges, freezes);
                    let ranges =
                        if fault_injection::fails(Step::Invalidate) { Vec::new() } else { ranges };
                    let done = ranges.iter().try_for_each(|range| self.forget(replica, range));
                    drop(changes);
                    // If that failed nobody is left who could see what was there: the keeper was killed.
                    reply.say(&(), &[]);
                    if done.is_err() {
                        break;
                    }
                }
                ReplicaJob::End => break,
            }
        }
        self.end();
    }

    /// Takes away what is mapped in a range, but what is ours.
    fn forget(&mut self, replica: &Replica, range: &Range<u64>) -> io::Result<()> {
        let below = range.start..range.end.min(replica.window.start);
        let above = range.start.max(replica.window.end)..range.end.min(TOP);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_moves_into_what_is_there_or_into_what_is_made_then() {
        let frames = || {
            let made = refit_sys::memfd::create(c"frames", 1 << 20, refit_sys::memfd::Pages::Base);
            File::from(made.expect("a memfd"))
        };
        let spare_replicas = SpareReplicas::default();
        spare_replicas.fill();
        let enter = |page| {
            let entered = spare_replicas.let_in(page, &frames(), (false, None)).expect("a replica");
            let first = std::fs::read_link(format!("/proc/{}/fd/0", entered.process));
            assert!(first.expect("it has it").to_string_lossy().contains("frames"));
            entered.process
        };
        let elsewhere = enter(placement::FIRST + (1 << 30));
        assert!(spare_replicas.vacant().is_some(), "that was not the usual place");
        let usual = enter(placement::FIRST);
        assert!(spare_replicas.vacant().is_none());
        spare_replicas.fill_later();
        let next = enter(placement::FIRST);
        assert!(elsewhere != usual && usual != next);
    }

    #[test]
    fn one_that_was_killed_is_made_anew() {
        let frames = refit_sys::memfd::create(c"frames", 4096, refit_sys::memfd::Pages::Base);
        let frames = File::from(frames.expect("a memfd"));
        let gone = SpareReplica { page: placement::FIRST, tenants: mpsc::channel().0 };
        let spare_replicas =
            SpareReplicas { vacant: Mutex::new(Some(gone)), ..SpareReplicas::default() };
        spare_replicas.let_in(placement::FIRST, &frames, (false, None)).expect("another one");
    }
}
