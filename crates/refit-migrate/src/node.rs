//! A kernel instance among others: the programs that it follows, and what it does for the programs
//! of its peers.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use refit_messages::{InstanceId, Layer, MessageError, Peer, Refusal, Security, Transport};
use refit_sys::cpu_latency::Awake;
use refit_sys::thread::EndedEarly;
use refit_tracer::Shown;
use refit_tracer::loan::{LoanAnswer, LoanRequest};
use refit_tracer::process::Process;
use rustix::io::Errno;
use tracing::info;

use crate::error::{BootError, MoveError};
use crate::membership::absent::Absence;
use crate::membership::{self, Meeting};
use crate::migration::Migration;
use crate::origin::ProgramTree;
use crate::setting::Setting;
use crate::stats::{MoveCounts, Traffic};

/// The way in which the threads of a program go from node to node by themselves: to test whether
/// that changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roam {
    /// To the next node, at this interval.
    Every(Duration),
    /// To the next node, where they stay.
    Once,
    /// Likewise, but they return for each system call.
    Calls,
    /// To all nodes in turn, where they stay.
    Spread,
}

/// The interval at which new processes are looked for, and at which those are tried again that
/// could not move.
const PROCESS_POLL: Duration = Duration::from_millis(5);

/// The way in which a node exchanges messages with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By memory that both share, on this host.
    Memory,
    /// By TCP, unencrypted.
    Tcp,
    /// By TLS, with certificates of both.
    Tls,
}

/// A peer, as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The peer's number.
    pub number: u16,
    /// The way in which messages go.
    pub reached: Reached,
    /// The path or address by which one of the two has joined the other.
    pub place: String,
    /// The time since they are connected.
    pub time: Duration,
}

/// A kernel instance.
pub struct Node {
    own: InstanceId,
    layer: Arc<Layer>,
    migration: Arc<Migration>,
    meeting: Arc<Meeting>,
    security: Security,
    trees: Mutex<Vec<Arc<ProgramTree>>>,
}

impl Node {
    /// Starts a node, which others of this host find by its name in `directory`, and which connects
    /// to all that are there.
    ///
    /// # Errors
    /// [`BootError`]
    pub fn boot(number: u16, directory: &Path, setting: &Setting) -> Result<Arc<Self>, BootError> {
        let own = InstanceId(number);
        info!(node = number, listen = ?setting.listen, join = ?setting.join, "boots");
        if setting.awake {
            drop(Awake::hold().map_err(BootError::Awake)?);
        }
        let migration = Migration::new(own, setting);
        let meeting = Arc::new(Meeting::new(setting.security.clone()));
        let refused = move |place: &str, why: &Refusal| {
            refit_log::say(&format!("{own} refused a connection ({place}): {why}"));
        };
        let builder = Layer::builder(own).silence(setting.silence);
        let (on_found, on_lost) = (Arc::clone(&meeting), Arc::clone(&meeting));
        let builder = meeting.answer(migration.answer(builder)).refused(refused);
        let builder = builder.found(move |peer| on_found.on_peer_found(own, peer));
        let builder = builder.lost(move |peer, why| on_lost.on_peer_lost(peer, why));
        let layer = builder.start()?;
        migration.over(Arc::clone(&layer));
        meeting.over(&layer);
        for entry in std::fs::read_dir(directory)?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|kind| kind != "kernel") {
                continue;
            }
            match layer.join_here(&path) {
                Ok(()) => {}
                // The node of this socket is dead.
                Err(MessageError::System { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionRefused =>
                {
                    let _ = std::fs::remove_file(&path);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let security = setting.security.clone();
        if let Some(address) = setting.listen {
            meeting.listen(&layer, address, &security)?;
        }
        for address in &setting.join {
            membership::join(&layer, address, &security)?;
        }
        layer.listen_here(&directory.join(format!("{number}.kernel")))?;
        let trees = Mutex::default();
        Ok(Arc::new(Self { own, layer, migration, meeting, security, trees }))
    }

    /// Returns the node's number.
    pub fn number(&self) -> u16 {
        self.own.0
    }

    /// Returns the numbers of its peers.
    pub fn peers(&self) -> Vec<u16> {
        self.layer.peers().iter().map(|peer| peer.id.0).collect()
    }

    /// Returns where nodes of other hosts can join it.
    pub fn address(&self) -> Option<SocketAddr> {
        self.meeting.address()
    }

    /// Returns its connections.
    pub fn connections(&self) -> Vec<Connection> {
        let connection = |peer: Peer| Connection {
            number: peer.id.0,
            reached: match (peer.transport, &self.security) {
                (Transport::Shared, _) => Reached::Memory,
                (Transport::Tcp, Security::None { .. }) => Reached::Tcp,
                (Transport::Tcp, Security::Mutual { .. }) => Reached::Tls,
            },
            place: peer.place,
            time: peer.since.elapsed(),
        };
        self.layer.peers().into_iter().map(connection).collect()
    }

    /// Returns the peers of other hosts that are lost and have not come back.
    pub fn absences(&self) -> Vec<Absence> {
        self.meeting.absences()
    }

    /// Follows a process that is about to become a program, until that has ended. Its threads
    /// `roam` from node to node, and it sees the processors in `shown`.
    ///
    /// # Errors
    /// The process cannot be followed.
    pub fn follow(
        self: &Arc<Self>,
        process: u32,
        movable: bool,
        roam: Option<Roam>,
        shown: Option<Shown>,
    ) -> io::Result<()> {
        info!(process, movable, ?roam, "is followed");
        let tree = ProgramTree::new(movable, shown, roam == Some(Roam::Calls));
        self.migration.origin.answer_requests(&tree);
        self.trees().push(Arc::clone(&tree));
        let (ready, is_ready) = mpsc::channel();
        let (this, followed) = (Arc::clone(self), Arc::clone(&tree));
        let follow = move || {
            let on_ready = || ready.send(Ok(())).map_err(io::Error::other);
            if let Err(error) = followed.supervisor.follow(process, on_ready) {
                // The processes that it followed die with this thread.
                refit_log::say(&format!("process {process} cannot be traced: {error}"));
                let _ = ready.send(Err(error));
            }
            this.trees().retain(|tree| !Arc::ptr_eq(tree, &followed));
        };
        thread::Builder::new().name("refit-follower".to_owned()).spawn(follow)?;
        is_ready.recv().map_err(|_| EndedEarly("it"))??;
        if let Some(roam) = roam {
            let this = Arc::clone(self);
            let wander = move || match roam {
                Roam::Spread => this.spread_new(&tree),
                _ => this.wander(&tree, roam),
            };
            thread::Builder::new().name("refit-roam".to_owned()).spawn(wander)?;
        }
        Ok(())
    }

    /// Has the threads of all processes of a tree run at all nodes in turn, those of new processes
    /// from their beginning.
    fn spread_new(&self, tree: &Arc<ProgramTree>) {
        /// The interval at which this looks for the end of the tree, which is not reported if
        /// following it has failed.
        const END_POLL: Duration = Duration::from_secs(1);
        let programs = tree.supervisor.subscribe_programs();
        while !tree.supervisor.process_numbers().is_empty() {
            let new = || {
                tree.supervisor.process_numbers().into_iter().filter(|&one| !tree.threads.has(one))
            };
            for process in new() {
                // Some end meanwhile, some cannot move.
                let _ = self.migration.origin.spread(tree, process);
            }
            // Those that could not move may be able to soon.
            let next =
                programs.recv_timeout(if new().next().is_some() { PROCESS_POLL } else { END_POLL });
            if next == Err(RecvTimeoutError::Disconnected) {
                break;
            }
            // One look covers all notifications.
            while programs.try_recv().is_ok() {}
        }
    }

    /// Has all threads of a tree go to the next node, again and again.
    fn wander(&self, tree: &Arc<ProgramTree>, roam: Roam) {
        let mut all = self.peers();
        all.push(self.own.0);
        all.sort_unstable();
        let own = all.iter().position(|&one| one == self.own.0).unwrap_or(0);
        let (every, turns) = match roam {
            Roam::Every(time) => (time, true),
            Roam::Once | Roam::Calls | Roam::Spread => (PROCESS_POLL, false),
        };
        for turn in 1.. {
            let turn = own + if turns { turn } else { 1 };
            // The interval of the moves.
            thread::sleep(every);
            let processes = tree.supervisor.process_numbers();
            if processes.is_empty() {
                break;
            }
            let to = InstanceId(all[turn % all.len()]);
            for process in processes {
                // Some end meanwhile, some cannot move.
                let _ = self.migration.origin.move_to(tree, process, None, to);
            }
        }
    }

    /// Has a process, or one thread of it, run at another node, or its threads at all nodes in
    /// turn.
    ///
    /// # Errors
    /// [`MoveError`]; threads that have not moved go on where they were.
    pub fn move_to(
        &self,
        process: u32,
        thread: Option<u32>,
        to: Option<u16>,
    ) -> Result<(), MoveError> {
        let tree = self.trees().iter().find(|tree| tree.supervisor.has(process)).cloned();
        let tree = tree.ok_or(MoveError::NoProcess(process))?;
        let moved = match to {
            Some(to) => self.migration.origin.move_to(&tree, process, thread, InstanceId(to)),
            None => self.migration.origin.spread(&tree, process),
        };
        moved.map_err(|error| {
            let MoveError::NoInstance(number) = error else { return error };
            let absent = self.absences().into_iter().find(|absence| absence.number == number);
            absent.map_or(error, |Absence { number, why, .. }| MoveError::Absent { number, why })
        })
    }

    /// Returns how many bytes programs that move use here, and how many the node owns for them, if
    /// that is limited.
    pub fn memory(&self) -> (u64, Option<u64>) {
        let quota = &self.migration.resources.quota;
        (quota.used(), quota.owned())
    }

    /// Returns the processes that it follows.
    pub fn processes(&self) -> Vec<Process> {
        let trees = self.trees().clone();
        trees.iter().flat_map(|tree| tree.supervisor.processes()).collect()
    }

    /// Lends a process that it follows ([`refit_tracer::Supervisor::lend`]), all of whose threads
    /// return before.
    ///
    /// # Errors
    /// `ESRCH`: there is no such process. `ETIMEDOUT`: its threads have not returned and stopped
    /// `within` this time. `EOPNOTSUPP`: its pages move between hosts.
    pub fn lend(
        &self,
        process: u32,
        within: Duration,
        converse: impl FnMut(LoanAnswer) -> Option<LoanRequest> + Send + 'static,
    ) -> io::Result<()> {
        let tree = self.trees().iter().find(|tree| tree.supervisor.has(process)).cloned();
        let tree = tree.ok_or(Errno::SRCH)?;
        let _gathered = self.migration.origin.gather(process, within)?;
        tree.supervisor.lend(process, within, converse)
    }

    /// Returns the nodes of the threads of a process that have moved, by thread.
    pub fn places(&self, process: u32) -> BTreeMap<u32, u16> {
        self.migration.origin.places(process)
    }

    /// Returns the counts of a program that began here, and has moved; also of one that has ended
    /// recently.
    pub fn counts(&self, process: u32) -> Option<MoveCounts> {
        self.migration.origin.counts(process)
    }

    /// Returns the counts of all such programs, by process, without those of their destinations.
    pub fn all_counts(&self) -> Vec<(u32, MoveCounts)> {
        self.migration.origin.all_counts()
    }

    /// Returns the traffic with each peer.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.layer.peers().iter().map(Traffic::from).collect()
    }

    fn trees(&self) -> MutexGuard<'_, Vec<Arc<ProgramTree>>> {
        self.trees.lock()
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("own", &self.own).finish_non_exhaustive()
    }
}
