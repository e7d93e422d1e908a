//! A kernel instance among others: the programs that it follows, and what it has to do with those of its peers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use refit_messages::{InstanceId, Layer, MessageError};

use crate::migration::{Migration, MoveError};
use crate::process::Process;
use crate::tree::Tree;

/// How the threads of a program go from instance to instance by themselves: to see whether that changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roam {
    /// To the next, so often.
    Every(Duration),
    /// To the next, and they stay there.
    Once,
    /// Likewise, but back for each system call.
    Calls,
}

/// A kernel instance.
pub struct Kernel {
    own: InstanceId,
    layer: Arc<Layer>,
    migration: Arc<Migration>,
    trees: Mutex<Vec<Arc<Tree>>>,
}

impl Kernel {
    /// One with this number, which is found by others of this host by its name in `directory`, and has messages with all that are there.
    ///
    /// # Errors
    /// There is one with that number; what the system says.
    pub fn boot(number: u16, directory: &Path) -> io::Result<Arc<Self>> {
        let own = InstanceId(number);
        let migration = Migration::new(own);
        let layer = migration.answer(Layer::builder(own)).start().map_err(io::Error::other)?;
        migration.over(Arc::clone(&layer));
        for entry in std::fs::read_dir(directory)?.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|kind| kind != "kernel") {
                continue;
            }
            match layer.join_here(&path) {
                Ok(()) => {}
                // Its instance is dead.
                Err(MessageError::System { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionRefused =>
                {
                    let _ = std::fs::remove_file(&path);
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        layer.listen_here(&directory.join(format!("{number}.kernel"))).map_err(io::Error::other)?;
        Ok(Arc::new(Self { own, layer, migration, trees: Mutex::default() }))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.own.0
    }

    /// The numbers of those that it has messages with.
    pub fn peers(&self) -> Vec<u16> {
        self.layer.peers().iter().map(|peer| peer.id.0).collect()
    }

    /// Follows a process that is about to become a program, until that has ended; its threads `roam` from instance to instance
    /// so often.
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn follow(
        self: &Arc<Self>,
        process: u32,
        movable: bool,
        roam: Option<Roam>,
    ) -> io::Result<()> {
        let mut tree = if movable { Tree::of_movable() } else { Tree::default() };
        tree.make_calls_here(roam == Some(Roam::Calls));
        let tree = Arc::new(tree);
        self.trees().push(Arc::clone(&tree));
        let (tell, told) = mpsc::channel();
        let (this, followed) = (Arc::clone(self), Arc::clone(&tree));
        let follow = move || {
            let ready = || tell.send(Ok(())).map_err(io::Error::other);
            if let Err(error) = followed.follow(process, ready) {
                // What it followed dies with this thread.
                eprintln!("refit: process {process} cannot be followed: {error}");
                let _ = tell.send(Err(error));
            }
            this.trees().retain(|tree| !Arc::ptr_eq(tree, &followed));
        };
        thread::Builder::new().name("refit-follower".to_owned()).spawn(follow)?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("it has ended at once")))?;
        if let Some(roam) = roam {
            let this = Arc::clone(self);
            let wander = move || this.wander(&tree, roam);
            thread::Builder::new().name("refit-roam".to_owned()).spawn(wander)?;
        }
        Ok(())
    }

    /// Has all threads of a tree go to the next instance, again and again.
    fn wander(&self, tree: &Arc<Tree>, roam: Roam) {
        /// How often one looks for processes that are new.
        const LOOK: Duration = Duration::from_millis(5);
        let mut all = self.peers();
        all.push(self.own.0);
        all.sort_unstable();
        let own = all.iter().position(|&one| one == self.own.0).unwrap_or(0);
        let (every, turns) = match roam {
            Roam::Every(time) => (time, true),
            Roam::Once | Roam::Calls => (LOOK, false),
        };
        for turn in 1.. {
            let turn = own + if turns { turn } else { 1 };
            // That is how often they are to go.
            thread::sleep(every);
            let processes = tree.process_numbers();
            if processes.is_empty() {
                break;
            }
            let to = InstanceId(all[turn % all.len()]);
            for process in processes {
                // Some end meanwhile, some cannot be moved.
                let _ = self.migration.move_to(tree, process, None, to);
            }
        }
    }

    /// Has a process, or one thread of it, run at another instance, or its threads at all in turn.
    ///
    /// # Errors
    /// [`MoveError`]; whatever has not moved goes on where it was.
    pub fn move_to(
        &self,
        process: u32,
        thread: Option<u32>,
        to: Option<u16>,
    ) -> Result<(), MoveError> {
        let of = |tree: &&Arc<Tree>| tree.process_numbers().contains(&process);
        let tree = self.trees().iter().find(of).cloned();
        let tree = tree.ok_or(MoveError::NoProcess(process))?;
        match to {
            Some(to) => self.migration.move_to(&tree, process, thread, InstanceId(to)),
            None => self.migration.spread(&tree, process),
        }
    }

    /// Processes that it follows.
    pub fn processes(&self) -> Vec<Process> {
        let trees = self.trees().clone();
        trees.iter().flat_map(|tree| tree.processes()).collect()
    }

    /// Where the threads of a process are that have been elsewhere: by number, the instance.
    pub fn places(&self, process: u32) -> BTreeMap<u32, u16> {
        self.migration.places(process)
    }

    fn trees(&self) -> MutexGuard<'_, Vec<Arc<Tree>>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("own", &self.own).finish_non_exhaustive()
    }
}
