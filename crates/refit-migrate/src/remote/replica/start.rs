//! Makes replicas, and the executors of their threads.

use std::fs::File;
use std::io;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use refit_messages::{InstanceId, Layer, Reply};
use refit_sys::cpu_latency::Awake;
use refit_sys::foreign::Memory;
use refit_sys::memfd;
use refit_sys::thread::EndedEarly;
use refit_sys::words::Words;
use refit_tracer::placement::TOP;

use crate::dsm::Window;
use crate::fault_injection::{self, Step};
use crate::frames;
use crate::lookup::PendingQueries;
use crate::mm_lock::LockMessage;
use crate::protocol::messages::{Arrive, Claim, Descriptor, GroupId, GroupParams, MemoryMode};
use crate::quota::Quota;
use crate::remote::executor::{self, Executor};
use crate::remote::mmap::Mapped;
use crate::remote::replica::job::ReplicaJob;
use crate::remote::replica::pages::Pages;
use crate::remote::replica::replica_server::{NewReplica, SpareReplicas};
use crate::remote::replica::state::Replica;
use crate::remote::stub;

/// Makes a replica for a group.
///
/// # Errors
/// No process can be made for it, or it cannot be traced.
pub(crate) fn start(
    group: GroupId,
    params: &GroupParams,
    layer: &Arc<Layer>,
    (spare_replicas, awake, quota): (&SpareReplicas, Option<Arc<Awake>>, &Arc<Quota>),
) -> io::Result<Arc<Replica>> {
    fault_injection::reach(Step::Replica)?;
    let (frames, slots) = match &params.hold {
        MemoryMode::Borrow { frames, slots, .. } => {
            (open(*frames)?, Some(Words::open(open(*slots)?)?))
        }
        MemoryMode::Move { .. } => {
            (File::from(memfd::create(frames::NAME, TOP, memfd::Pages::Base)?), None)
        }
    };
    let slots = slots.map(|slots| slots.get());
    let moves = slots.is_none();
    let new = spare_replicas.assign(params.window.start, &frames, (moves, awake))?;
    let NewReplica { process, store, hand_over, jobs } = new;
    let pages = match store {
        Some(store) => {
            quota.count(store.frames());
            Some(Pages::new(store)?)
        }
        None => None,
    };
    let replica = Arc::new(Replica {
        group,
        layer: Arc::clone(layer),
        window: params.window.clone(),
        slots,
        pages,
        quota: Arc::clone(quota),
        mapped: Mapped::default(),
        fault_around: match params.hold {
            MemoryMode::Borrow { beside, .. } => beside.min(stub::CALLS as u16 - 1),
            MemoryMode::Move { .. } => 0,
        },
        queries: PendingQueries::default(),
        lock: params.lock.of(layer.own(), claim_sender(group, params.epoch, layer)),
        epoch: params.epoch,
        calls_home: params.calls_home,
        process,
        memory: Memory::of(process)?,
        changes: Mutex::default(),
        jobs: Mutex::new(jobs),
        executors: Mutex::default(),
        spare: Mutex::default(),
    });
    let ended_early = |_| EndedEarly("its replica server");
    hand_over.send(Arc::clone(&replica)).map_err(ended_early)?;
    if let MemoryMode::Move { window } = params.hold {
        replica.start_pager(if window == 0 { Window::Adaptive } else { Window::Fixed(window) })?;
    }
    Ok(replica)
}

/// The error that a replica has ended while a thread was about to run there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its replica has ended")]
struct ReplicaEnded;

impl Replica {
    /// Makes what a thread needs that will run here.
    pub(crate) fn prepare(self: &Arc<Self>, thread: u32) -> io::Result<()> {
        self.executor(thread).map(drop)
    }

    /// Has a thread run here; its executor replies once it does.
    pub(crate) fn arrive(self: &Arc<Self>, arrive: Arrive, reply: Reply<Arrive>) {
        match self.executor(arrive.thread) {
            Ok(executor) => executor.arrive(arrive, reply),
            Err(error) => reply.say(&Err(error.into()), &[]),
        }
    }

    /// Returns the executor of a thread, made at the thread's first arrival.
    fn executor(self: &Arc<Self>, thread: u32) -> io::Result<Arc<Executor>> {
        if let Some(executor) = self.executors().get(&thread) {
            return Ok(Arc::clone(executor));
        }
        fault_injection::reach(Step::Task)?;
        let spare = self.spare().pop();
        let executor = match spare {
            Some(executor) => executor,
            None => {
                let (task, made) = mpsc::channel();
                self.send_job(ReplicaJob::Thread(task));
                let task = made.recv().map_err(|_| io::Error::other(ReplicaEnded))??;
                executor::residency::start(self, task)?
            }
        };
        self.executors().insert(thread, Arc::clone(&executor));
        Ok(executor)
    }
}

/// Returns the function by which a replica sends its claims on the lock of the group's memory.
fn claim_sender(
    group: GroupId,
    epoch: u64,
    layer: &Arc<Layer>,
) -> impl Fn(InstanceId, LockMessage, u64) -> bool + Send + Sync + 'static {
    let layer = Arc::clone(layer);
    move |to, word, time| layer.send(to, &Claim { group, epoch, word, time }, &[]).is_ok()
}

/// Opens the file of a descriptor that another process of this host has.
fn open(descriptor: Descriptor) -> io::Result<File> {
    let Descriptor { process, number } = descriptor;
    File::options().read(true).write(true).open(format!("/proc/{process}/fd/{number}"))
}
