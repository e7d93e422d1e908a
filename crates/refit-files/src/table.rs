//! The inodes that the kernel knows.
//!
//! An inode on the source's own device has the host's inode number, so that programs see the same
//! numbers through the mount. Number 1 is the root of every FUSE mount. An inode with that number
//! on the host, and the inodes of other devices that are mounted below the source, get numbers from
//! the upper half of the range instead.
//!
//! Lock order: a shard, then `foreign`. No other function is called with a lock held.

use crate::host::HostFile;
use crate::inode::{HostKey, Inode, Place};
use parking_lot::{Mutex, RwLock};
use rustix::fs::Stat;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of the root of every FUSE mount.
pub(crate) const ROOT: u64 = 1;

const SHARDS: usize = 16;
/// The maximum depth of a path. It is larger than that of any path that can be passed to the
/// kernel, and ends the walk if the places form a cycle.
const MAX_DEPTH: usize = 4096;

#[derive(Debug)]
pub(crate) struct Table {
    device: u64,
    shards: [RwLock<HashMap<u64, Arc<Inode>>>; SHARDS],
    foreign: Mutex<HashMap<HostKey, u64>>,
    next_foreign: AtomicU64,
    count: AtomicU64,
}

impl Table {
    /// Creates a table that contains only the root.
    pub(crate) fn new(root: HostFile, stat: &Stat) -> Self {
        let table = Self {
            device: stat.st_dev,
            shards: std::array::from_fn(|_| RwLock::new(HashMap::new())),
            foreign: Mutex::new(HashMap::from([(HostKey::of(stat), ROOT)])),
            next_foreign: AtomicU64::new(1 << 63 | 1),
            count: AtomicU64::new(1),
        };
        let place = Place { parent: ROOT, name: OsString::new() };
        let root = Inode::new(ROOT, root, stat, place);
        root.lookups.store(1, Relaxed);
        table.shard(ROOT).write().insert(ROOT, Arc::new(root));
        table
    }

    fn shard(&self, node: u64) -> &RwLock<HashMap<u64, Arc<Inode>>> {
        &self.shards[node as usize % SHARDS]
    }

    pub(crate) fn get(&self, node: u64) -> Option<Arc<Inode>> {
        self.shard(node).read().get(&node).cloned()
    }

    pub(crate) fn root(&self) -> Arc<Inode> {
        self.get(ROOT).expect("the root is never removed")
    }

    pub(crate) fn len(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the node of a host inode if it has one.
    fn known_node(&self, key: HostKey) -> Option<u64> {
        // The root's own number is looked up among the foreign ones, as is every inode numbered 1.
        if let Some(node) = self.foreign.lock().get(&key) {
            return Some(*node);
        }
        (key.device == self.device && key.number != ROOT && key.number >> 63 == 0)
            .then_some(key.number)
    }

    fn node(&self, key: HostKey) -> u64 {
        self.known_node(key).unwrap_or_else(|| {
            *self
                .foreign
                .lock()
                .entry(key)
                .or_insert_with(|| self.next_foreign.fetch_add(1, Relaxed))
        })
    }

    /// Returns the inode of a host file if the kernel knows it.
    pub(crate) fn find(&self, stat: &Stat) -> Option<Arc<Inode>> {
        self.known_node(HostKey::of(stat)).and_then(|node| self.get(node))
    }

    /// Returns the inode whose status on the host is `stat` and counts another look-up of it.
    /// Creates it from `host` if it is new, which the flag reports.
    pub(crate) fn looked_up(
        &self,
        host: HostFile,
        stat: &Stat,
        place: Place,
    ) -> (Arc<Inode>, bool) {
        let node = self.node(HostKey::of(stat));
        let mut shard = self.shard(node).write();
        if let Some(inode) = shard.get(&node) {
            inode.lookups.fetch_add(1, Relaxed);
            let inode = inode.clone();
            drop(shard);
            inode.moved(place.parent, &place.name);
            inode.mode.store(stat.st_mode, Relaxed);
            return (inode, false);
        }
        let inode = Arc::new(Inode::new(node, host, stat, place));
        inode.lookups.store(1, Relaxed);
        shard.insert(node, inode.clone());
        if node >> 63 == 1 {
            // The last user may have removed the number from the map after it was read above.
            self.foreign.lock().insert(inode.key, node);
        }
        self.count.fetch_add(1, Relaxed);
        (inode, true)
    }

    /// Counts another look-up of an inode that the kernel knows and that got another name.
    pub(crate) fn looked_up_again(&self, inode: &Inode) {
        let _shard = self.shard(inode.node).write();
        inode.lookups.fetch_add(1, Relaxed);
    }

    /// Returns the number that programs see for an entry of a directory on `device`.
    pub(crate) fn shown_number(&self, device: u64, number: u64) -> u64 {
        self.known_node(HostKey { device, number }).unwrap_or(number)
    }

    /// Marks all previous look-ups of an inode as outdated.
    pub(crate) fn outdated(&self, inode: &Inode) {
        let _shard = self.shard(inode.node).write();
        inode.outdated_lookups.store(inode.lookups.load(Relaxed), Relaxed);
    }

    /// Subtracts `count` look-ups, the oldest of which, up to `outdated`, are outdated ones.
    /// Returns the inode if none are left; it stays in the table until [`Table::remove`].
    pub(crate) fn forget(&self, node: u64, count: u64, outdated: u64) -> Option<Arc<Inode>> {
        if node == ROOT {
            return None;
        }
        let shard = self.shard(node).write();
        let inode = shard.get(&node)?;
        let left = inode.lookups.load(Relaxed).saturating_sub(count);
        inode.lookups.store(left, Relaxed);
        let still = inode.outdated_lookups.load(Relaxed).saturating_sub(outdated).min(left);
        inode.outdated_lookups.store(still, Relaxed);
        (left == 0).then(|| inode.clone())
    }

    /// Removes an inode unless the kernel has looked it up again meanwhile. Returns whether it was
    /// removed.
    pub(crate) fn remove(&self, inode: &Inode) -> bool {
        let mut shard = self.shard(inode.node).write();
        if inode.lookups.load(Relaxed) != 0 || !shard.contains_key(&inode.node) {
            return false;
        }
        shard.remove(&inode.node);
        if inode.node >> 63 == 1 {
            self.foreign.lock().remove(&inode.key);
        }
        self.count.fetch_sub(1, Relaxed);
        true
    }

    /// Returns all inodes.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the path of an inode within the mount, beginning with `/`, as far as it is known.
    pub(crate) fn path(&self, inode: &Inode) -> Vec<u8> {
        let mut place = inode.place.lock().clone();
        let mut names = Vec::new();
        let mut node = inode.node;
        while node != ROOT && names.len() < MAX_DEPTH {
            names.push(place.name);
            node = place.parent;
            match self.get(node) {
                Some(parent) => place = parent.place.lock().clone(),
                None => {
                    names.push(OsString::from("?"));
                    break;
                }
            }
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        if path.is_empty() {
            path.push(b'/');
        }
        path
    }
}
