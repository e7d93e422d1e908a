//! Letting go of inodes before descriptors run out.
//!
//! Each inode that the kernel knows costs a descriptor, and the kernel forgets only when it is short of memory itself.
//! So when most of the descriptors that this process may have are in use, the kernel is asked to drop names of files
//! that nobody has open; it then forgets their inodes. This needs a thread of its own: the kernel takes the lock of the
//! directory for it, and whoever holds that may be waiting for a worker.

use crate::inode::Inode;
use crate::server::Server;
use crate::table::ROOT;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use rustix::fs::FileType;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How full the table of descriptors may be: above the first share letting go begins, below the second it ends.
const HIGH: (u64, u64) = (7, 10);
const LOW: (u64, u64) = (5, 10);
/// Above this share whoever takes another one pauses, so that letting go keeps up.
const BRIM: (u64, u64) = (17, 20);
const PAUSE: Duration = Duration::from_millis(1);
/// How long the kernel may take to forget before others are asked for.
const PATIENCE: Duration = Duration::from_millis(20);

/// What the thread waits for.
#[derive(Debug)]
pub(crate) struct Pressure {
    state: Mutex<State>,
    news: Condvar,
    high: u64,
    low: u64,
    brim: u64,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    ending: bool,
}

impl Pressure {
    /// For a process that may have `limit` descriptors.
    pub(crate) fn new(limit: u64) -> Self {
        let share = |(part, of): (u64, u64)| limit / of * part;
        let (high, low, brim) = (share(HIGH), share(LOW), share(BRIM));
        Self { state: Mutex::default(), news: Condvar::new(), high, low, brim }
    }

    /// Tells how many descriptors are in use.
    #[inline]
    pub(crate) fn in_use(&self, descriptors: u64) {
        if descriptors > self.high {
            self.relieve();
            if descriptors > self.brim {
                // Who opens files waits for who closes them; the kernel tells nobody when a descriptor is free.
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Starts letting go.
    pub(crate) fn relieve(&self) {
        let mut state = self.state.lock();
        if !state.wanted {
            state.wanted = true;
            self.news.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().ending = true;
        self.news.notify_one();
    }

    /// The loop of the thread.
    pub(crate) fn run(&self, server: &Server, notifier: &Notifier) {
        let mut state = self.state.lock();
        while !state.ending {
            if state.wanted {
                drop(state);
                let enough = self.let_go(server, notifier);
                state = self.state.lock();
                if enough {
                    state.wanted = false;
                } else if !state.ending {
                    self.news.wait_for(&mut state, PATIENCE);
                }
            } else {
                self.news.wait(&mut state);
            }
        }
    }

    /// Has the kernel drop names; whether that is enough now, or nothing can be done.
    fn let_go(&self, server: &Server, notifier: &Notifier) -> bool {
        let excess = server.descriptors().saturating_sub(self.low);
        if excess == 0 {
            return true;
        }
        server.queue.hurry();
        let idle = |inode: &Arc<Inode>| {
            inode.node != ROOT && inode.opens.load(Relaxed) == 0 && inode.lookups.load(Relaxed) > 0
        };
        let mut victims: Vec<_> = server.table.all().into_iter().filter(idle).collect();
        // Directories last: their names go only with everything below them.
        victims.sort_by_key(|inode| inode.kind == FileType::Directory);
        let mut asked = 0;
        for inode in victims.iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            let place = inode.place.lock().clone();
            if notifier.inval_entry(INodeNo(place.parent), &place.name).is_ok() {
                asked += 1;
            }
        }
        asked == 0
    }
}
