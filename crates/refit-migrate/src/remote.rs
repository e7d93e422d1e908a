//! A node's part in the moves of programs that began at others: replicas, and the threads that run
//! in them.

pub(crate) mod executor;
pub(crate) mod files;
mod mailbox;
pub(crate) mod mmap;
pub(crate) mod replica;
pub(crate) mod stub;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::{InstanceId, Reply};
use tracing::debug;

use crate::error::MoveError;
use crate::fault_injection::{self, Step};
use crate::page::PAGE_SIZE;
use crate::protocol::messages::{Arrive, GroupId, GroupParams, MemoryMode, Prepare, Teardown};
use crate::remote::replica::{Replica, SpareReplicas};
use crate::resources::NodeResources;

/// The replicas of other nodes' programs.
pub(crate) struct Remote {
    resources: Arc<NodeResources>,
    replicas: Mutex<BTreeMap<GroupId, Arc<Replica>>>,
    spare_replicas: SpareReplicas,
}

impl Remote {
    /// Returns the part of a node that has no replica yet.
    pub(crate) fn new(resources: Arc<NodeResources>) -> Arc<Self> {
        let spare_replicas = SpareReplicas::default();
        Arc::new(Self { resources, replicas: Mutex::default(), spare_replicas })
    }

    /// Makes a spare replica, which the first group that comes gets.
    pub(crate) fn fill_spares(&self) {
        self.spare_replicas.fill();
    }

    /// Returns the replica of a group, if there is one here.
    pub(crate) fn replica(&self, group: GroupId) -> Option<Arc<Replica>> {
        self.replicas().get(&group).cloned()
    }

    fn replicas(&self) -> MutexGuard<'_, BTreeMap<GroupId, Arc<Replica>>> {
        self.replicas.lock()
    }

    /// Prepares for a thread that will arrive, and replies with the number of its replica.
    pub(crate) fn prepare(self: &Arc<Self>, prepare: Prepare, reply: Reply<Prepare>) {
        let this = Arc::clone(self);
        let serve = move || {
            let Prepare { group, params, thread } = prepare;
            debug!(%group, thread, "prepares");
            let replica = this.check_room(&params);
            let replica = replica.and_then(|()| this.replica_for(group, &params));
            let prepared =
                replica.and_then(|replica| replica.prepare(thread).map(|()| replica.process));
            reply.say(&prepared.map_err(MoveError::from), &[]);
            this.spare_replicas.fill_later();
        };
        Self::in_own_thread(serve);
    }

    /// Hands an arriving thread to its executor, which replies.
    pub(crate) fn arrive(self: &Arc<Self>, arrive: Arrive, reply: Reply<Arrive>) {
        if fault_injection::fails(Step::Arrive) {
            std::process::abort();
        }
        if let Err(error) = self.check_room(&arrive.params) {
            return reply.say(&Err(error.into()), &[]);
        }
        // Usually the thread is expected.
        let replica = self.replicas.try_lock();
        let replica = replica.and_then(|replicas| replicas.get(&arrive.group).cloned());
        if let Some(executor) = replica.and_then(|replica| replica.existing_executor(arrive.thread))
        {
            return executor.arrive(arrive, reply);
        }
        let this = Arc::clone(self);
        Self::in_own_thread(move || match this.replica_for(arrive.group, &arrive.params) {
            Ok(replica) => replica.arrive(arrive, reply),
            Err(error) => reply.say(&Err(error.into()), &[]),
        });
    }

    /// Checks that there is memory here for what a thread touches at once, if pages of its group
    /// are held here.
    fn check_room(&self, params: &GroupParams) -> io::Result<()> {
        /// The pages of its code, its stack, and its data.
        const AT_ONCE: u64 = 16 * PAGE_SIZE;
        match params.hold {
            MemoryMode::Move { .. } => Ok(self.resources.quota.check_room(AT_ONCE)?),
            MemoryMode::Borrow { .. } => Ok(()),
        }
    }

    /// Serves a request in a thread of its own: making a replica takes a while, and the messages of
    /// others must not wait.
    fn in_own_thread(serve: impl FnOnce() + Send + 'static) {
        // If there is no thread the reply is dropped, which is an answer.
        let _ = thread::Builder::new().name("refit-arrival".to_owned()).spawn(serve);
    }

    fn replica_for(&self, group: GroupId, params: &GroupParams) -> io::Result<Arc<Replica>> {
        let mut replicas = self.replicas();
        if let Some(replica) = replicas.get(&group) {
            return Ok(Arc::clone(replica));
        }
        let layer = self.resources.connected()?;
        let with = (&self.spare_replicas, self.resources.awake(), &self.resources.quota);
        let replica = replica::start(group, params, layer, with)?;
        debug!(%group, process = replica.process, "a replica begins");
        replicas.insert(group, Arc::clone(&replica));
        Ok(replica)
    }

    /// Ends a thread, or a whole program.
    pub(crate) fn tear_down(&self, teardown: Teardown) {
        debug!(group = %teardown.group, thread = ?teardown.thread, "is torn down");
        match teardown.thread {
            Some(thread) => {
                if let Some(replica) = self.replica(teardown.group) {
                    replica.end_thread(thread);
                }
            }
            None => {
                if let Some(replica) = self.replicas().remove(&teardown.group) {
                    replica.end();
                }
            }
        }
    }

    /// Takes the replicas of a lost peer's programs out of the table, for [`Remote::end_lost`].
    pub(crate) fn take_those_of(&self, peer: InstanceId) -> Vec<Arc<Replica>> {
        let mut replicas = self.replicas();
        let theirs = replicas.extract_if(.., |group, _| group.home() == peer);
        theirs.map(|(_, replica)| replica).collect()
    }

    /// Ends the replicas of a lost peer's programs; the others stop to wait for it.
    pub(crate) fn end_lost(&self, peer: InstanceId, theirs: Vec<Arc<Replica>>) {
        theirs.into_iter().for_each(|replica| replica.end());
        let others: Vec<_> = self.replicas().values().cloned().collect();
        others.iter().for_each(|replica| replica.on_peer_lost(peer));
    }
}
