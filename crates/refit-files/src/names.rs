//! Operations on names: look-up, creation, link, rename and removal.

use crate::attributes;
use crate::host::{HostFile, proc_path};
use crate::image::request::{self, Effect, Operation};
use crate::inode::{Inode, Place};
use crate::open_mode::OpenMode;
use crate::refused_opens::OpenTarget;
use crate::server::{Caller, Server};
use crate::times;
use crate::values::HostKey;
use fuser::FileAttr;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number and the length of the waits of a request for descriptors. The total is short, because
/// the wait occupies a worker that the requests that release descriptors need.
const DESCRIPTOR_ATTEMPTS: usize = 60;
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(5);

/// Checks that a name stays in its directory. The kernel never sends another one.
fn checked(name: &OsStr) -> Result<&OsStr, Errno> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(Errno::INVAL);
    }
    Ok(name)
}

impl Server {
    pub(crate) fn child(&self, parent: &Inode, name: &OsStr) -> Result<(Arc<Inode>, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self
            .with_descriptors(|| rustix::fs::openat(&*parent.fd(), name, flags, Mode::empty()))?;
        let stat = rustix::fs::fstat(&fd)?;
        let place = Place { parent: parent.node, name: name.to_owned() };
        let (inode, new) = self.table.looked_up(HostFile::new(fd), &stat, place)?;
        if new {
            self.pressure.in_use(self.descriptors());
            return Ok((inode, stat));
        }
        let stat = self.noticed(&inode, stat)?;
        Ok((inode, stat))
    }

    /// Opens a file with `open`, and retries after releasing descriptors if there are none left.
    pub(crate) fn with_descriptors<T>(
        &self,
        open: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut outcome = open();
        for _ in 0..DESCRIPTOR_ATTEMPTS {
            if !matches!(outcome, Err(Errno::MFILE | Errno::NFILE)) {
                break;
            }
            self.pressure.relieve();
            // The kernel sends no notification when a descriptor becomes free.
            std::thread::sleep(DESCRIPTOR_PAUSE);
            outcome = open();
        }
        outcome
    }

    /// Returns the attributes of a child, or `None` if there is none, which the kernel may cache.
    pub(crate) fn lookup(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
    ) -> Result<Option<FileAttr>, Errno> {
        let parent = self.inode(parent)?;
        match self.child(&parent, checked(name)?) {
            Ok((inode, stat)) => Ok(Some(attributes::overlaid(&inode, &stat))),
            Err(Errno::NOENT) => {
                if self.refused.any() {
                    let place = Place { parent: parent.node, name: name.to_owned() };
                    self.refused.came_back(caller.pid, &OpenTarget { node: 0, place });
                }
                Ok(None)
            }
            Err(errno) => Err(errno),
        }
    }

    fn found(&self, parent: &Inode, name: &OsStr) -> Result<FileAttr, Errno> {
        let (inode, stat) = self.child(parent, name)?;
        Ok(attributes::overlaid(&inode, &stat))
    }

    /// Creates and opens a file. The flag in the result says whether it bypasses the kernel's
    /// cache.
    pub(crate) fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, OpenMode), Errno> {
        self.may_change()?;
        let parent = self.inode(parent)?;
        let exclusive = OFlags::from_bits_retain(flags as u32) & OFlags::EXCL;
        let open = OFlags::CREATE
            | OFlags::RDWR
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY
            | OFlags::NONBLOCK
            | exclusive;
        let name = checked(name)?;
        let made = self.makes_name(&parent, name);
        let open = if made { open - OFlags::EXCL } else { open };
        let fd = {
            let _identity = self.act_as(caller)?;
            self.with_descriptors(|| {
                rustix::fs::openat(&*parent.fd(), name, open, Mode::from_raw_mode(mode))
            })?
        };
        let stat = rustix::fs::fstat(&fd)?;
        let place = Place { parent: parent.node, name: name.to_owned() };
        let (inode, new) = self.table.looked_up(HostFile::opened(fd), &stat, place)?;
        let made = (|| {
            let mut flags = flags;
            if !new {
                self.noticed(&inode, stat)?;
            }
            if new && inode.kind == FileType::RegularFile {
                let size = stat.st_size as u64;
                if size == 0 {
                    // The kernel knew of no such file: it was just created, and there is nothing to
                    // truncate.
                    inode.capability.is_absent();
                    flags &= !libc::O_TRUNC;
                }
                if !self.backing_files.available() {
                    self.make_data(&inode, inode.host.clone(), size)?;
                }
            }
            self.open_inode(caller, &inode, flags)
        })();
        match made {
            Ok(mode) => {
                let stat = if stat.st_size == 0 { stat } else { rustix::fs::fstat(&*inode.fd())? };
                Ok((attributes::overlaid(&inode, &stat), mode))
            }
            Err(errno) => {
                self.take_back(inode.node);
                Err(errno)
            }
        }
    }

    pub(crate) fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        device: u32,
    ) -> Result<FileAttr, Errno> {
        self.may_change()?;
        let (parent, name) = (self.inode(parent)?, checked(name)?);
        if !self.makes_name(&parent, name) {
            let _identity = self.act_as(caller)?;
            rustix::fs::mknodat(
                &*parent.fd(),
                name,
                FileType::from_raw_mode(mode),
                Mode::from_raw_mode(mode),
                host_device(device),
            )?;
        }
        self.found(&parent, name)
    }

    pub(crate) fn mkdir(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        self.may_change()?;
        let (parent, name) = (self.inode(parent)?, checked(name)?);
        if !self.makes_name(&parent, name) {
            let _identity = self.act_as(caller)?;
            rustix::fs::mkdirat(&*parent.fd(), name, Mode::from_raw_mode(mode))?;
        }
        self.found(&parent, name)
    }

    pub(crate) fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        target: &Path,
    ) -> Result<FileAttr, Errno> {
        self.may_change()?;
        let (parent, name) = (self.inode(parent)?, checked(name)?);
        if !self.makes_name(&parent, name) {
            let _identity = self.act_as(caller)?;
            rustix::fs::symlinkat(target, &*parent.fd(), name)?;
        }
        self.found(&parent, name)
    }

    pub(crate) fn readlink(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(node)?;
        Ok(rustix::fs::readlinkat(&*inode.fd(), c"", Vec::new())?.into_bytes())
    }

    pub(crate) fn link(&self, node: u64, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        self.may_change()?;
        let (inode, parent) = (self.inode(node)?, self.inode(parent)?);
        let target = checked(name)?;
        if !self.makes_name(&parent, target) {
            // Links through /proc, since linking by descriptor needs a capability.
            inode.change_on_host(|fd| {
                let (path, to) = (proc_path(fd), parent.fd());
                rustix::fs::linkat(CWD, path, &*to, target, AtFlags::SYMLINK_FOLLOW)
            })?;
        }
        inode.set_gone(false);
        inode.times.lock().metadata_changed(times::now());
        let attr = attributes::of(&inode)?;
        self.table.looked_up_again(&inode);
        Ok(attr)
    }

    pub(crate) fn unlink(&self, parent: u64, name: &OsStr, flags: AtFlags) -> Result<(), Errno> {
        self.may_change()?;
        let parent = self.inode(parent)?;
        let name = checked(name)?;
        let stat = stat_of(&parent, name);
        let key = stat.as_ref().map(HostKey::of);
        if let Some(before) = request::about_to(Effect::new(Operation::Remove, key))
            && let Some(removed) = before.before[0].filter(|removed| key != Some(*removed))
        {
            // This request was executed before, and has removed the name.
            self.lost_name_of(removed);
            return Ok(());
        }
        let known = stat.as_ref().and_then(|stat| self.table.find(stat));
        changing_each(&[known], || rustix::fs::unlinkat(&*parent.fd(), name, flags))?;
        if let Some(stat) = stat {
            self.lost_name(&stat);
        }
        Ok(())
    }

    /// Returns whether a name that a request is about to make was made when the same request was
    /// executed before by a server that has ended. Otherwise records that it is about to be made.
    fn makes_name(&self, parent: &Inode, name: &OsStr) -> bool {
        let key = stat_of(parent, name).as_ref().map(HostKey::of);
        let before = request::about_to(Effect::new(Operation::Create, key));
        before.is_some_and(|before| before.before[0].is_none() && key.is_some())
    }

    /// Records that a name of the inode was removed, by its status on the host.
    fn lost_name_of(&self, removed: HostKey) {
        let inode = self.table.find_key(removed);
        let stat = inode.and_then(|inode| rustix::fs::fstat(&*inode.fd()).ok());
        if let Some(mut stat) = stat {
            // The status before the removal.
            stat.st_nlink += 1;
            self.lost_name(&stat);
        }
    }

    /// Records that a name of the inode whose status was `stat` has been removed.
    fn lost_name(&self, stat: &Stat) {
        if let Some(inode) = self.table.find(stat) {
            let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if directory || stat.st_nlink <= 1 {
                inode.set_gone(true);
                *self.space.removed.lock() = Some(Instant::now());
            } else {
                inode.times.lock().metadata_changed(times::now());
            }
        }
    }

    pub(crate) fn rename(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        self.may_change()?;
        let (from_dir, to_dir) = (self.inode(from.0)?, self.inode(to.0)?);
        let (from_name, to_name) = (checked(from.1)?, checked(to.1)?);
        let (moved, target) = (stat_of(&from_dir, from_name), stat_of(&to_dir, to_name));
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let keys = [&moved, &target].map(|stat| stat.as_ref().map(HostKey::of));
        if let Some(before) =
            request::about_to(Effect { operation: Operation::Rename, before: keys })
            && was_renamed(before.before, keys)
        {
            self.renamed_before(before.before, (&from_dir, from_name), (&to_dir, to_name), flags);
            return Ok(());
        }
        let known = [moved, target].map(|stat| stat.and_then(|stat| self.table.find(&stat)));
        changing_each(&known, || {
            rustix::fs::renameat_with(&*from_dir.fd(), from_name, &*to_dir.fd(), to_name, flags)
        })?;
        if let Some(inode) = moved.and_then(|stat| self.table.find(&stat)) {
            inode.moved(to_dir.node, to_name);
            inode.times.lock().metadata_changed(times::now());
        }
        let Some(target) = target else { return Ok(()) };
        if flags.contains(RenameFlags::EXCHANGE) {
            if let Some(inode) = self.table.find(&target) {
                inode.moved(from_dir.node, from_name);
                inode.times.lock().metadata_changed(times::now());
            }
        } else if moved.is_none_or(|moved| moved.st_ino != target.st_ino) {
            // If both names belong to one file, rename does nothing, and both names remain.
            self.lost_name(&target);
        }
        Ok(())
    }

    /// Records a rename that the request has made when it was executed before.
    fn renamed_before(
        &self,
        [moved, target]: [Option<HostKey>; 2],
        (from_dir, from_name): (&Inode, &OsStr),
        (to_dir, to_name): (&Inode, &OsStr),
        flags: RenameFlags,
    ) {
        if let Some(inode) = moved.and_then(|key| self.table.find_key(key)) {
            inode.moved(to_dir.node, to_name);
            inode.times.lock().metadata_changed(times::now());
        }
        let Some(target) = target else { return };
        if !flags.contains(RenameFlags::EXCHANGE) {
            self.lost_name_of(target);
        } else if let Some(inode) = self.table.find_key(target) {
            inode.moved(from_dir.node, from_name);
            inode.times.lock().metadata_changed(times::now());
        }
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        if let Some(inode) = self.table.forget(node, count) {
            self.forgotten(&inode);
        }
    }

    /// Reverses the last look-up of an inode, whose reply does not reach the kernel.
    pub(crate) fn take_back(&self, node: u64) {
        if let Some(inode) = self.table.take_back_lookup(node) {
            self.forgotten(&inode);
        }
    }
}

/// Returns the status of the inode that a name leads to; `None` if there is none.
fn stat_of(directory: &Inode, name: &OsStr) -> Option<Stat> {
    rustix::fs::statat(&*directory.fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Returns whether a rename was made before which its two names led to `before`, if they lead to
/// `now`. A rename between two names of one inode changes nothing, and can be made again.
fn was_renamed(before: [Option<HostKey>; 2], now: [Option<HostKey>; 2]) -> bool {
    before[0].is_some() && before[0] != before[1] && now[0] != before[0] && now[1] == before[0]
}

/// Changes several inodes of the host, as far as they are known. Two names of one file are one
/// inode.
fn changing_each<T>(inodes: &[Option<Arc<Inode>>], change: impl FnOnce() -> T) -> T {
    let mut inodes: Vec<_> = inodes.iter().flatten().collect();
    // Sorted, since each of them is locked.
    inodes.sort_by_key(|inode| inode.node);
    inodes.dedup_by_key(|inode| inode.node);
    match inodes[..] {
        [] => change(),
        [one] => one.change_on_host(|_| change()),
        [first, second, ..] => first.change_on_host(|_| second.change_on_host(|_| change())),
    }
}

/// Converts a device number sent by the kernel, which has 32 bits: 12 for the major number and 20
/// for the minor number, with the minor number's upper bits on top.
fn host_device(device: u32) -> u64 {
    rustix::fs::makedev(device >> 8 & 0xfff, (device & 0xff) | (device >> 12 & 0xfff00))
}
