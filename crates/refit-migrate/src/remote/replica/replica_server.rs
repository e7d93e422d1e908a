//! The threads that make and serve replicas. Making a replica takes a millisecond, during which a
//! thread that moves would have to wait; so each node keeps a spare replica, which belongs to
//! no group yet. It has one stopped task, and refit's page is at an address that is free in most
//! programs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use refit_sys::cpu_latency::Awake;
use refit_sys::foreign::Memory;
use refit_sys::shadow_stub;
use refit_sys::thread::EndedEarly;
use refit_sys::trace::{Options, Tracee};
use refit_tracer::placement::{self, TOP};

use crate::dsm::{self, Store};
use crate::fault_injection::{self, Step};
use crate::protocol::messages::{Follow, Invalidate};
use crate::remote::mmap::pass;
use crate::remote::replica::job::ReplicaJob;
use crate::remote::replica::state::Replica;
use crate::remote::stub;

/// The replica that the next group gets.
#[derive(Default)]
pub(crate) struct SpareReplicas {
    spare: Mutex<Option<SpareReplica>>,
    /// Whether a thread is about to make one.
    is_filling: AtomicBool,
}

impl SpareReplicas {
    /// Assigns a group a replica whose page of refit's is at `page`.
    ///
    /// # Errors
    /// No replica can be made.
    pub(super) fn assign(
        &self,
        page: u64,
        frames: &File,
        (moves, awake): (bool, Option<Arc<Awake>>),
    ) -> io::Result<NewReplica> {
        let there = self.spare().take_if(|one| one.page == page);
        if let Some(Ok(done)) = there.map(|one| one.assign(frames, moves, awake.clone())) {
            return Ok(done);
        }
        // The spare one may have been killed.
        SpareReplica::begin(page)?.assign(frames, moves, awake)
    }

    /// Makes a spare replica, if there is none.
    pub(crate) fn fill(&self) {
        let mut spare = self.spare();
        if spare.is_none() {
            // If this fails, the replica is made when it is needed.
            *spare = SpareReplica::begin(placement::FIRST).ok();
        }
    }

    /// Makes a spare replica after a while, unless another thread does: the group that has just got
    /// a replica needs the processor.
    pub(crate) fn fill_later(&self) {
        const DELAY: Duration = Duration::from_secs(1);
        // Relaxed: a thread that misses the spare replica makes its own.
        if self.spare().is_none() && !self.is_filling.swap(true, Ordering::Relaxed) {
            thread::sleep(DELAY);
            self.is_filling.store(false, Ordering::Relaxed);
            self.fill();
        }
    }

    fn spare(&self) -> MutexGuard<'_, Option<SpareReplica>> {
        self.spare.lock()
    }
}

/// A replica that no group has, or that is being made.
struct SpareReplica {
    page: u64,
    assignments: Sender<Assignment>,
}

/// The group of a new replica.
struct Assignment {
    frames: File,
    /// Whether the group's pages are held here.
    moves: bool,
    awake: Option<Arc<Awake>>,
    jobs: Receiver<ReplicaJob>,
    ready: Sender<io::Result<ReplicaReady>>,
}

/// A replica that is a group's: its process, its pages, and where to send the replica.
type ReplicaReady = (u32, Option<Arc<Store>>, Sender<Arc<Replica>>);

/// A new replica of a group: its process, its pages, and where to send the replica and jobs.
pub(super) struct NewReplica {
    pub(super) process: u32,
    pub(super) store: Option<Arc<Store>>,
    pub(super) hand_over: Sender<Arc<Replica>>,
    pub(super) jobs: Sender<ReplicaJob>,
}

impl SpareReplica {
    fn begin(page: u64) -> io::Result<Self> {
        let (assignments, wanted) = mpsc::channel();
        let serve = move || serve_one(page, &wanted);
        thread::Builder::new().name("refit-replicas".to_owned()).spawn(serve)?;
        Ok(Self { page, assignments })
    }

    fn assign(
        self,
        frames: &File,
        moves: bool,
        awake: Option<Arc<Awake>>,
    ) -> io::Result<NewReplica> {
        let ended_early = || EndedEarly("its replica server");
        let ((jobs, queue), (ready, is_ready)) = (mpsc::channel(), mpsc::channel());
        let assignment =
            Assignment { frames: frames.try_clone()?, moves, awake, jobs: queue, ready };
        self.assignments.send(assignment).map_err(|_| ended_early())?;
        let (process, store, hand_over) = is_ready.recv().map_err(|_| ended_early())??;
        Ok(NewReplica { process, store, hand_over, jobs })
    }
}

/// Makes a replica, waits for its group, and serves it.
fn serve_one(page: u64, wanted: &Receiver<Assignment>) {
    let made = ReplicaServer::begin(page);
    let Ok(Assignment { frames, moves, awake, jobs, ready }) = wanted.recv() else {
        return made.into_iter().for_each(ReplicaServer::end);
    };
    match made.and_then(|replica_server| replica_server.assign(frames, moves)) {
        Ok((replica_server, store)) => {
            let (hand_over, handed) = mpsc::channel();
            // The group waits for this.
            let _ = ready.send(Ok((replica_server.child.id(), store, hand_over)));
            match handed.recv() {
                Ok(replica) => replica_server.serve(&jobs, &replica),
                Err(_) => replica_server.end(),
            }
        }
        Err(error) => drop(ready.send(Err(error))),
    }
    drop(awake);
}

/// The error that a replica's frames are not the descriptor that its code maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frames are its descriptor {0}")]
struct WrongDescriptor(u64);

/// The thread that traces the leader.
struct ReplicaServer {
    child: Child,
    leader: Tracee,
    page: u64,
    /// The address of a `syscall` instruction of the replica.
    instruction: u64,
    /// The address at which its tasks begin.
    rest: u64,
    /// A task that was not asked for yet.
    spare: Option<u32>,
}

impl ReplicaServer {
    /// Makes a replica, with a task at rest.
    fn begin(page: u64) -> io::Result<Self> {
        let (child, leader) = stub::start(page, Options::EXIT_KILL)?;
        let code = page + stub::CODE;
        let (instruction, rest) = (code + shadow_stub::instruction(), code + shadow_stub::rest());
        let mut replica_server = Self { child, leader, page, instruction, rest, spare: None };
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

    /// Makes the replica a group's, which has these frames; with pages of its own if they `move`.
    fn assign(mut self, frames: File, moves: bool) -> io::Result<(Self, Option<Arc<Store>>)> {
        let store = self.give_frames(&frames).and_then(|()| {
            let open = || dsm::open(&mut self.leader, self.instruction);
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

    /// Makes the frames the replica's descriptor 0.
    fn give_frames(&mut self, frames: &File) -> io::Result<()> {
        let memory = Memory::of(self.child.id())?;
        self.leader.call(self.instruction, libc::SYS_close, [0; 6])?;
        match pass(&mut self.leader, self.instruction, (self.page, &memory), frames, true)? {
            0 => Ok(()),
            other => Err(io::Error::other(WrongDescriptor(other))),
        }
    }

    /// Unmaps what the kernel has mapped: stack, vDSO.
    fn clear(&mut self) -> io::Result<()> {
        let mappings = refit_sys::maps::of(self.child.id())?;
        let ours = mappings.iter().find(|mapping| mapping.range.contains(&self.page));
        let end = ours.map_or(self.page, |mapping| mapping.range.end);
        self.unmap(&(0..self.page))?;
        self.unmap(&(end..TOP))
    }

    fn unmap(&mut self, range: &Range<u64>) -> io::Result<()> {
        let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
        self.leader.call(self.instruction, libc::SYS_munmap, arguments)?;
        Ok(())
    }

    fn serve(mut self, jobs: &Receiver<ReplicaJob>, replica: &Replica) {
        for job in jobs {
            match job {
                ReplicaJob::Thread(task) => {
                    let spare = self.spare.take();
                    let _ = task.send(spare.map_or_else(|| self.thread(), Ok));
                }
                ReplicaJob::InvalidateDone => replica.mapped.known().thaw(),
                ReplicaJob::Follow(Follow { members, plan, .. }, reply) => {
                    replica.lock.follow(&members);
                    // No answer is mapped any more that was accepted before.
                    let _changes = replica.changes();
                    replica.mapped.known().follow(members, plan);
                    reply.say(&(), &[]);
                }
                ReplicaJob::Invalidate(Invalidate { ranges, freezes, .. }, reply) => {
                    let changes = replica.changes();
                    replica.mapped.known().invalidate(&ranges, freezes);
                    let ranges =
                        if fault_injection::fails(Step::Invalidate) { Vec::new() } else { ranges };
                    let done = ranges.iter().try_for_each(|range| self.invalidate(replica, range));
                    drop(changes);
                    // If this failed the leader was killed, and with it every task that could see
                    // what was there.
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

    /// Unmaps what is mapped in a range, except refit's window.
    fn invalidate(&mut self, replica: &Replica, range: &Range<u64>) -> io::Result<()> {
        let below = range.start..range.end.min(replica.window.start);
        let above = range.start.max(replica.window.end)..range.end.min(TOP);
        for part in [below, above] {
            if !part.is_empty() {
                self.unmap(&part)?;
            }
        }
        Ok(())
    }

    /// Makes a task of the replica, which rests, untraced.
    fn thread(&mut self) -> io::Result<u32> {
        let rest = self.rest;
        let start = |registers: &mut refit_sys::trace::Registers| registers.rip = rest;
        let tracee = self.leader.clone_thread(self.instruction, Options::EXIT_KILL, start)?;
        let task = tracee.thread();
        tracee.let_go()?;
        Ok(task)
    }

    fn end(mut self) {
        // The leader is stopped, and the state of the replica does not matter any more.
        let _ = self.child.kill();
        self.leader.leave();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_gets_the_spare_replica_or_a_new_one() {
        let frames = || {
            let made = refit_sys::memfd::create(c"frames", 1 << 20, refit_sys::memfd::Pages::Base);
            File::from(made.expect("a memfd"))
        };
        let spare_replicas = SpareReplicas::default();
        spare_replicas.fill();
        let enter = |page| {
            let entered = spare_replicas.assign(page, &frames(), (false, None)).expect("a replica");
            let first = std::fs::read_link(format!("/proc/{}/fd/0", entered.process));
            assert!(first.expect("it has it").to_string_lossy().contains("frames"));
            entered.process
        };
        let elsewhere = enter(placement::FIRST + (1 << 30));
        assert!(spare_replicas.spare().is_some(), "that was not the usual place");
        let usual = enter(placement::FIRST);
        assert!(spare_replicas.spare().is_none());
        spare_replicas.fill_later();
        let next = enter(placement::FIRST);
        assert!(elsewhere != usual && usual != next);
    }

    #[test]
    fn a_spare_replica_that_was_killed_is_replaced() {
        let frames = refit_sys::memfd::create(c"frames", 4096, refit_sys::memfd::Pages::Base);
        let frames = File::from(frames.expect("a memfd"));
        let ended = SpareReplica { page: placement::FIRST, assignments: mpsc::channel().0 };
        let spare_replicas =
            SpareReplicas { spare: Mutex::new(Some(ended)), ..SpareReplicas::default() };
        spare_replicas.assign(placement::FIRST, &frames, (false, None)).expect("another one");
    }
}
