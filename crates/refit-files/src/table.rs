//! The inodes that the kernel knows.
//!
//! An inode on the source's own device has the host's inode number, so that programs see the same
//! numbers through the mount. Number 1 is the root of every FUSE mount. An inode with that number
//! on the host, and the inodes of other devices that are mounted below the source, get numbers from
//! the upper half of the range instead.
//!
//! Lock order: a shard, then `foreign`. No other function is called with a lock held.

use crate::host::{HostFile, proc_path};
use crate::image::Image;
use crate::image::record::{Count, Uses};
use crate::image::request::Logged;
use crate::inode::{Inode, Place};
use crate::values::HostKey;
use parking_lot::{Mutex, RwLock};
use rustix::fs::Stat;
use rustix::io::Errno;
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

/// Takes back a count of a request. No more look-ups are outdated than there are.
fn uncount(inode: &Inode, count: Count) {
    inode.record.count(count);
    let outdated = inode.record.outdated_lookups().min(inode.record.lookups());
    inode.record.set_outdated_lookups(outdated);
}

/// The first number of an inode that does not have the host's.
const FIRST_FOREIGN: u64 = 1 << 63 | 1;

fn root_place() -> Place {
    Place { parent: ROOT, name: OsString::new() }
}

#[derive(Debug)]
pub(crate) struct Table {
    device: u64,
    shards: [RwLock<HashMap<u64, Arc<Inode>>>; SHARDS],
    foreign: Mutex<HashMap<HostKey, u64>>,
    next_foreign: AtomicU64,
    count: AtomicU64,
    image: Arc<Image>,
}

impl Table {
    /// Creates a table that contains only the root, and keeps its inodes in `image`, which is a new
    /// one.
    pub(crate) fn new(image: &Arc<Image>, root: HostFile, stat: &Stat) -> Self {
        let table = Self::empty(image, stat.st_dev, FIRST_FOREIGN);
        let record = image.take_record().expect("a new image has room for the root");
        let root = Inode::new(ROOT, root, stat, root_place(), record);
        root.record.set_lookups(1);
        table.insert_continued(Arc::new(root));
        table
    }

    /// Creates a table without inodes, to which those of another server are added.
    pub(crate) fn empty(image: &Arc<Image>, device: u64, next_foreign: u64) -> Self {
        let table = Self {
            device,
            shards: std::array::from_fn(|_| RwLock::new(HashMap::new())),
            foreign: Mutex::new(HashMap::new()),
            next_foreign: AtomicU64::new(next_foreign),
            count: AtomicU64::new(0),
            image: Arc::clone(image),
        };
        table.continue_numbers(next_foreign);
        table
    }

    /// Adds an inode that another server has served. Of two with the same number, one has been
    /// forgotten and was about to end when that server ended; the other one stays.
    pub(crate) fn insert_continued(&self, inode: Arc<Inode>) {
        let node = inode.node;
        if inode.record.lookups() == 0 && self.get(node).is_some() {
            return;
        }
        if node == ROOT || node >> 63 == 1 {
            self.foreign.lock().insert(inode.key, node);
        }
        if self.shard(node).write().insert(node, inode).is_none() {
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// Continues to number inodes of other devices with `next`.
    pub(crate) fn continue_numbers(&self, next: u64) {
        self.next_foreign.store(next, Relaxed);
        self.image.set_next_foreign(next);
    }

    /// Removes an inode that was added by [`insert_continued`](Self::insert_continued), unless
    /// another one with its number has been added since.
    pub(crate) fn discard(&self, inode: &Arc<Inode>) {
        let mut shard = self.shard(inode.node).write();
        if shard.get(&inode.node).is_some_and(|other| Arc::ptr_eq(other, inode)) {
            shard.remove(&inode.node);
            self.count.fetch_sub(1, Relaxed);
            let mut foreign = self.foreign.lock();
            if foreign.get(&inode.key) == Some(&inode.node) {
                foreign.remove(&inode.key);
            }
        }
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
            *self.foreign.lock().entry(key).or_insert_with(|| {
                let node = self.next_foreign.fetch_add(1, Relaxed);
                self.image.set_next_foreign(node + 1);
                node
            })
        })
    }

    /// Returns the inode of a host file if the kernel knows it.
    pub(crate) fn find(&self, stat: &Stat) -> Option<Arc<Inode>> {
        self.find_key(HostKey::of(stat))
    }

    /// Returns the inode of a host file if the kernel knows it.
    pub(crate) fn find_key(&self, key: HostKey) -> Option<Arc<Inode>> {
        self.known_node(key).and_then(|node| self.get(node))
    }

    /// Returns the inode whose status on the host is `stat` and counts another look-up of it.
    /// Creates it from `host` if it is new, which the flag reports.
    ///
    /// # Errors
    ///
    /// `ENFILE` if there is no room for another inode.
    pub(crate) fn looked_up(
        &self,
        host: HostFile,
        stat: &Stat,
        place: Place,
    ) -> Result<(Arc<Inode>, bool), Errno> {
        let node = self.node(HostKey::of(stat));
        let mut shard = self.shard(node).write();
        if let Some(inode) = shard.get(&node) {
            inode.record.count(Count::Lookups(1));
            let inode = inode.clone();
            drop(shard);
            inode.moved(place.parent, &place.name);
            inode.record.set_mode(stat.st_mode);
            return Ok((inode, false));
        }
        let record = self.image.take_record().ok_or(Errno::NFILE)?;
        let inode = Arc::new(Inode::new(node, host, stat, place, record));
        inode.record.count(Count::Lookups(1));
        shard.insert(node, inode.clone());
        if node >> 63 == 1 {
            // The last user may have removed the number from the map after it was read above.
            self.foreign.lock().insert(inode.key, node);
        }
        self.count.fetch_add(1, Relaxed);
        Ok((inode, true))
    }

    /// Counts another look-up of an inode that the kernel knows and that got another name.
    pub(crate) fn looked_up_again(&self, inode: &Inode) {
        let _shard = self.shard(inode.node).write();
        inode.record.count(Count::Lookups(1));
    }

    /// Counts an open of an inode.
    pub(crate) fn opened(&self, inode: &Inode, uses: Uses) {
        let _shard = self.shard(inode.node).write();
        inode.record.count(Count::Opened(uses));
    }

    /// Counts a close of an inode. It counts as open until `Inode::closing` falls again.
    pub(crate) fn closed(&self, inode: &Inode, uses: Uses) {
        let _shard = self.shard(inode.node).write();
        inode.closing.fetch_add(1, Relaxed);
        inode.record.count(Count::Closed(uses));
    }

    /// Takes back what a request has counted that this thread is about to execute once more.
    pub(crate) fn take_back(&self, logged: &Logged) {
        let counts = logged.looked_up.iter().rev().map(|record| (*record, Count::Lookups(-1)));
        let used = logged.used.map(|(record, uses)| (record, Count::Closed(uses)));
        for (record, count) in counts.chain(used) {
            let Some(node) = self.image.node_of(record) else { continue };
            let shard = self.shard(node).write();
            if let Some(inode) = shard.get(&node).filter(|it| it.record.index() == record) {
                uncount(inode, count);
            }
        }
    }

    /// Returns the number that programs see for an entry of a directory on `device`.
    pub(crate) fn shown_number(&self, device: u64, number: u64) -> u64 {
        self.known_node(HostKey { device, number }).unwrap_or(number)
    }

    /// Marks all previous look-ups of an inode as outdated.
    pub(crate) fn outdated(&self, inode: &Inode) {
        let _shard = self.shard(inode.node).write();
        inode.record.set_outdated_lookups(inode.record.lookups());
    }

    /// Subtracts `count` look-ups, of which outdated ones are the oldest. Returns the inode if none
    /// are left; it stays in the table until [`Table::remove`].
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<Arc<Inode>> {
        if node == ROOT {
            return None;
        }
        let shard = self.shard(node).write();
        let inode = shard.get(&node)?;
        let left = inode.record.lookups().saturating_sub(count);
        inode.record.set_lookups(left);
        let still = inode.record.outdated_lookups().saturating_sub(count).min(left);
        inode.record.set_outdated_lookups(still);
        (left == 0).then(|| inode.clone())
    }

    /// Reverses the last look-up that this thread's request has counted. Returns the inode if none
    /// are left.
    pub(crate) fn take_back_lookup(&self, node: u64) -> Option<Arc<Inode>> {
        let shard = self.shard(node).write();
        let inode = shard.get(&node)?;
        uncount(inode, Count::Lookups(-1));
        (inode.record.lookups() == 0).then(|| inode.clone())
    }

    /// Removes an inode unless the kernel has looked it up again meanwhile. Returns whether it was
    /// removed.
    pub(crate) fn remove(&self, inode: &Inode) -> bool {
        let mut shard = self.shard(inode.node).write();
        let is_there =
            shard.get(&inode.node).is_some_and(|it| std::ptr::eq(&raw const **it, inode));
        if inode.record.lookups() != 0 || !is_there {
            return false;
        }
        shard.remove(&inode.node);
        if inode.node >> 63 == 1 {
            self.foreign.lock().remove(&inode.key);
        }
        self.count.fetch_sub(1, Relaxed);
        true
    }

    /// Calls `look` with each inode. It must not call the table.
    pub(crate) fn each(&self, mut look: impl FnMut(&Inode)) {
        for shard in &self.shards {
            shard.read().values().for_each(|inode| look(inode));
        }
    }

    /// Returns all inodes.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.shards
            .iter()
            .flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the directory and the name under which an inode was last seen. For an inode that
    /// another server has served, the host says where it is.
    pub(crate) fn place(&self, inode: &Inode) -> Place {
        if let Some(place) = &*inode.place.lock() {
            return place.clone();
        }
        let found = self.place_on_host(inode);
        inode.place.lock().get_or_insert(found).clone()
    }

    fn place_on_host(&self, inode: &Inode) -> Place {
        let unknown = || Place { parent: 0, name: OsString::from("?") };
        if inode.node == ROOT {
            return root_place();
        }
        let Ok(path) = std::fs::read_link(proc_path(&inode.fd())) else { return unknown() };
        let parent = path.parent().and_then(|parent| rustix::fs::lstat(parent).ok());
        let parent = parent.and_then(|stat| self.known_node(HostKey::of(&stat)));
        match (parent, path.file_name()) {
            (Some(parent), Some(name)) => Place { parent, name: name.to_owned() },
            _ => unknown(),
        }
    }

    /// Returns the path of an inode within the mount, beginning with `/`, as far as it is known.
    pub(crate) fn path(&self, inode: &Inode) -> Vec<u8> {
        let mut place = self.place(inode);
        let mut names = Vec::new();
        let mut node = inode.node;
        while node != ROOT && names.len() < MAX_DEPTH {
            names.push(place.name);
            node = place.parent;
            match self.get(node) {
                Some(parent) => place = self.place(&parent),
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
