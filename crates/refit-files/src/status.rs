//! Operations on a file's status: attributes, extended attributes, and the state of the file
//! system.

use crate::attributes;
use crate::capability::Capability;
use crate::host::proc_path;
use crate::image::request::{self, Effect, Operation};
use crate::inode::Inode;
use crate::server::{Caller, Server};
use crate::times;
use fuser::{FileAttr, TimeOrNow};
use refit_sys::credentials::{self, CAP_FSETID};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, StatVfs, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;

/// The attributes to change; those that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewStatus {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
}

impl NewStatus {
    fn is_empty(&self) -> bool {
        let Self { mode, uid, gid, size, atime, mtime } = self;
        mode.or(*uid).or(*gid).is_none() && size.is_none() && atime.or(*mtime).is_none()
    }

    /// Returns whether it is only the time of the last write, which the kernel sends after the data
    /// that it has collected.
    fn only_modified(&self) -> bool {
        self.mtime.is_some() && Self { mtime: None, ..*self }.is_empty()
    }
}

impl Server {
    pub(crate) fn getattr(&self, node: u64) -> Result<FileAttr, Errno> {
        let inode = self.inode(node)?;
        let stat = self.noticed(&inode, rustix::fs::fstat(&*inode.fd())?)?;
        Ok(attributes::overlaid(&inode, &stat))
    }

    pub(crate) fn setattr(
        &self,
        caller: Caller,
        node: u64,
        new: NewStatus,
    ) -> Result<FileAttr, Errno> {
        if !new.only_modified() {
            self.may_change()?;
        }
        let inode = self.inode(node)?;
        if let Some(size) = new.size {
            self.truncate(caller, &inode, size)?;
        }
        if new.uid.is_some() || new.gid.is_some() || new.is_empty() {
            // Without any change this is chown(-1, -1), for which the host clears set-user-ID bits
            // and capabilities.
            let (uid, gid) = (new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw));
            inode
                .change_on_host(|fd| rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH))?;
            if new.is_empty() && inode.kind == FileType::RegularFile {
                // The host has checked the server's groups and capabilities instead of the
                // caller's.
                self.drop_privileges(caller, &inode)?;
            }
        }
        if let Some(mode) = new.mode {
            if inode.kind == FileType::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            let mode = Mode::from_raw_mode(mode & 0o7777);
            inode.change_on_host(|fd| rustix::fs::chmod(proc_path(fd), mode))?;
        }
        let with_the_data = with_the_data(&inode, &new);
        if !with_the_data && (new.atime.is_some() || new.mtime.is_some()) {
            let times = Timestamps {
                last_access: timespec(new.atime),
                last_modification: timespec(new.mtime),
            };
            let set = inode
                .change_on_host(|fd| rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH));
            // The kernel has checked that the caller may set times. This is therefore the kernel
            // itself, which sends the time of a write to another user's file; the host has already
            // set that time.
            let for_a_write = new.atime.is_none() && self.own.0 != 0;
            set.or_else(|errno| if for_a_write { Ok(()) } else { Err(errno) })?;
        }
        let stat = rustix::fs::fstat(&*inode.fd())?;
        {
            let mut times = inode.times.lock();
            if new.mtime.is_some() && !with_the_data {
                times.modified_set(times::mtime(&stat));
            }
            times.metadata_changed(times::now());
        }
        Ok(attributes::overlaid(&inode, &stat))
    }

    pub(crate) fn statfs(&self, node: u64) -> Result<StatVfs, Errno> {
        rustix::fs::fstatvfs(&*self.inode(node)?.fd())
    }

    /// Fails in a mount without extended attributes. The kernel sends each of the four requests
    /// once, and replies itself from then on.
    fn has_xattrs(&self) -> Result<(), Errno> {
        if self.xattrs { Ok(()) } else { Err(Errno::NOSYS) }
    }

    pub(crate) fn setxattr(
        &self,
        caller: Caller,
        node: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        self.has_xattrs()?;
        self.may_change()?;
        let inode = self.inode(node)?;
        let mut flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
        let repeated = if flags.is_empty() { None } else { changed_xattr(&inode, name) };
        let permits = |before| match before {
            Xattrs::Had => !flags.contains(XattrFlags::CREATE),
            Xattrs::HadNot => !flags.contains(XattrFlags::REPLACE),
        };
        if repeated.is_some_and(permits) {
            // The request may have set the attribute when it was executed before.
            flags = XattrFlags::empty();
        }
        inode.change_on_host(|fd| rustix::fs::setxattr(proc_path(fd), name, value, flags))?;
        if name == Capability::NAME {
            inode.capability.set();
        }
        if name == "system.posix_acl_access" {
            self.drop_set_group_id(caller, &inode)?;
        }
        inode.times.lock().metadata_changed(times::now());
        Ok(())
    }

    /// Clears the set-group-ID bit if an access control list is set by a caller that is not in the
    /// file's group.
    fn drop_set_group_id(&self, caller: Caller, inode: &Inode) -> Result<(), Errno> {
        let stat = rustix::fs::fstat(&*inode.fd())?;
        let keeps = || {
            credentials::has_capability(caller.pid, CAP_FSETID).unwrap_or(caller.uid == 0)
                || caller.in_group(stat.st_gid)
        };
        if stat.st_mode & libc::S_ISGID == 0 || keeps() {
            return Ok(());
        }
        let mode = stat.st_mode & 0o7777 & !libc::S_ISGID;
        inode.change_on_host(|fd| rustix::fs::chmod(proc_path(fd), Mode::from_raw_mode(mode)))?;
        inode.record.set_mode(stat.st_mode & !libc::S_ISGID);
        Ok(())
    }

    /// Returns the value of an extended attribute of at most `size` bytes; with a `size` of 0, only
    /// its length.
    pub(crate) fn getxattr(&self, node: u64, name: &OsStr, size: u32) -> Result<Xattr, Errno> {
        self.has_xattrs()?;
        let inode = self.inode(node)?;
        if name.as_encoded_bytes().starts_with(b"system.posix_acl_") {
            // The kernel asks when it checks permissions. A host without ACLs has none, which is no
            // error.
            return host_xattr(&inode, name, size)
                .map_err(|errno| if errno == Errno::OPNOTSUPP { Errno::NODATA } else { errno });
        }
        if name != Capability::NAME {
            return host_xattr(&inode, name, size);
        }
        if inode.capability.absent() {
            return Err(Errno::NODATA);
        }
        inode.capability.asks();
        host_xattr(&inode, name, size).inspect_err(|errno| {
            if *errno == Errno::NODATA {
                inode.capability.answered_absent();
            }
        })
    }

    pub(crate) fn listxattr(&self, node: u64, size: u32) -> Result<Xattr, Errno> {
        self.has_xattrs()?;
        let fd = self.inode(node)?.fd();
        let path = proc_path(&fd);
        if size == 0 {
            return rustix::fs::listxattr_query(path).map(|size| Xattr::Size(size as u32));
        }
        let mut names = Vec::with_capacity(size as usize);
        rustix::fs::listxattr(path, rustix::buffer::spare_capacity(&mut names))?;
        Ok(Xattr::Value(names))
    }

    pub(crate) fn removexattr(&self, node: u64, name: &OsStr) -> Result<(), Errno> {
        self.has_xattrs()?;
        self.may_change()?;
        let inode = self.inode(node)?;
        let repeated = changed_xattr(&inode, name);
        let removed = inode.change_on_host(|fd| rustix::fs::removexattr(proc_path(fd), name));
        if removed != Err(Errno::NODATA) || repeated != Some(Xattrs::Had) {
            removed?;
        }
        inode.times.lock().metadata_changed(times::now());
        Ok(())
    }
}

/// Whether an inode has an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Xattrs {
    Had,
    HadNot,
}

/// Records that an extended attribute is about to be changed. Returns whether the inode had it
/// before this request was executed by a server that has ended, if it was.
fn changed_xattr(inode: &Inode, name: &OsStr) -> Option<Xattrs> {
    let had = host_xattr(inode, name, 0).is_ok();
    let before = Effect::new(Operation::Xattr, had.then_some(inode.key));
    let before = request::about_to(before)?;
    Some(if before.before[0].is_some() { Xattrs::Had } else { Xattrs::HadNot })
}

/// The result of a query for an extended attribute.
pub(crate) enum Xattr {
    Size(u32),
    Value(Vec<u8>),
}

/// Records a modification time that reaches the host together with waiting data. Most such times
/// come from the kernel itself, which sends one after each cached write and after each removal.
fn with_the_data(inode: &Inode, new: &NewStatus) -> bool {
    let (Some(TimeOrNow::SpecificTime(mtime)), None) = (new.mtime, new.atime) else { return false };
    inode.kind == FileType::RegularFile
        && inode.times.lock().modified_later(attributes::host_time(mtime), inode.is_gone())
}

fn host_xattr(inode: &Inode, name: &OsStr, size: u32) -> Result<Xattr, Errno> {
    let fd = inode.fd();
    let path = proc_path(&fd);
    if size == 0 {
        return rustix::fs::getxattr_query(path, name).map(|size| Xattr::Size(size as u32));
    }
    let mut value = Vec::with_capacity(size as usize);
    rustix::fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut value))?;
    Ok(Xattr::Value(value))
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let (tv_sec, tv_nsec) = attributes::host_time(time);
            Timespec { tv_sec, tv_nsec }
        }
    }
}
