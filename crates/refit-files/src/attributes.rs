//! The status of a file as programs see it: the host's status, overlaid with changes that the host
//! does not have yet.

use crate::inode::Inode;
use crate::values::Time;
use fuser::{FileAttr, INodeNo};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current status of an inode.
pub(crate) fn of(inode: &Inode) -> Result<FileAttr, Errno> {
    Ok(overlaid(inode, &rustix::fs::fstat(&*inode.fd())?))
}

/// Returns the status of an inode whose status on the host is `stat`.
pub(crate) fn overlaid(inode: &Inode, stat: &Stat) -> FileAttr {
    inode.record.set_mode(stat.st_mode);
    let mut attr = plain(inode.node, stat);
    if inode.kind != FileType::RegularFile {
        return attr;
    }
    let (mtime, ctime) = inode.times.lock().shown(stat);
    attr.mtime = system_time(mtime);
    attr.ctime = system_time(ctime);
    if let Some(data) = &*inode.data.read() {
        attr.size = data.cache.size();
        let dirty = data.cache.stats().dirty;
        if dirty > 0 {
            // The dirty pages count as if their blocks were allocated: a file that is being written
            // must not look sparse.
            let full = attr.size.div_ceil(4096) * 8;
            attr.blocks = attr.blocks.max((attr.blocks + dirty * 8).min(full));
        }
    }
    attr
}

fn plain(node: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: system_time((stat.st_atime, stat.st_atime_nsec as i64)),
        mtime: system_time((stat.st_mtime, stat.st_mtime_nsec as i64)),
        ctime: system_time((stat.st_ctime, stat.st_ctime_nsec as i64)),
        crtime: UNIX_EPOCH,
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// Returns attributes with the inode number 0, which tell the kernel that there is no such file and
/// that it may cache the fact.
pub(crate) fn absent() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::RegularFile | FileType::Unknown => fuser::FileType::RegularFile,
    }
}

fn system_time((seconds, nanoseconds): Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(nanoseconds.unsigned_abs());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// Converts a time sent by the kernel to the host's form. For a time before 1970 the kernel sends
/// seconds rounded down and nanoseconds that count up; the library makes both count down, which is
/// undone here.
pub(crate) fn host_time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => {
            (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos().into())
        }
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            (seconds, before.subsec_nanos().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_survive() {
        assert_eq!(system_time((-2, 800_000_000)), UNIX_EPOCH - Duration::from_millis(1200),);
        // The value that the library returns for (-2 s, 800 ms).
        let sent = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(host_time(sent), (-2, 800_000_000));
        assert_eq!(host_time(UNIX_EPOCH + Duration::new(7, 5)), (7, 5));
    }
}
