//! On which file systems it makes no difference which process reads and writes a file that is open.
//!
//! Those of a disk or of memory; and refit's own, for calls that write nothing. There, as on any file system that is served by a program, the kernel writes what it has
//! of a file back when one of several descriptors of it is closed (`fuse_flush`, where it may keep anything): after each write that would be a second
//! one, so shadows make these. Not what stands for something else (`proc`, `sysfs`, `cgroup`), what is served by
//! programs that may want to know who calls, or be the caller (`fuse`), what is written back when a descriptor is closed (`nfs`), and what may stand on such
//! (`overlay`).

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags};

/// As `/proc/PID/mountinfo` calls them.
const ALIKE: [(&str, Alike); 5] = [
    ("fuse.refit", Alike::Reads),
    ("ext4", Alike::All),
    ("xfs", Alike::All),
    ("btrfs", Alike::All),
    ("tmpfs", Alike::All),
];

/// For which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alike {
    All,
    /// For those that write nothing.
    Reads,
}

/// `STATX_MNT_ID_UNIQUE` (`linux/stat.h`, 6.8).
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Which mounts are such, by the number that none has again.
#[derive(Debug, Default)]
pub(super) struct Mounts(BTreeMap<u64, Option<Alike>>);

impl Mounts {
    /// For which calls it makes no difference, if this is a regular file there; `thread` sees the mount.
    pub(super) fn have(&mut self, file: BorrowedFd<'_>, thread: u32) -> Option<Alike> {
        // Nobody is asked who serves the file system.
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let told = rustix::fs::statx(file, c"", how, StatxFlags::TYPE | UNIQUE).ok()?;
        if told.stx_mask & UNIQUE.bits() == 0
            || !FileType::from_raw_mode(told.stx_mode.into()).is_file()
        {
            return None;
        }
        *self.0.entry(told.stx_mnt_id).or_insert_with(|| {
            let all = fs::read_to_string(format!("/proc/{thread}/mountinfo"));
            // While it is open its mount keeps the short number as well.
            let what = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
            let (all, what) = all.ok().zip(what.ok())?;
            let kind = kind(&all, &what)?;
            ALIKE.iter().find(|(name, _)| *name == kind).map(|(_, alike)| *alike)
        })
    }
}

/// What the file system is, by the mounts that there are (proc_pid_mountinfo(5)) and what is told of a descriptor (proc_pid_fdinfo(5)).
fn kind<'a>(all: &'a str, descriptor: &str) -> Option<&'a str> {
    let number = descriptor.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let of = |line: &&str| line.split(' ').next() == Some(number);
    // What is before has no spaces in its words, but any number of words.
    let (_, behind) = all.lines().find(of)?.split_once(" - ")?;
    behind.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_system_is_found_by_its_mount() {
        let all = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            2 1 254:0 / / rw shared:1 master:2 - ext4 /dev/vda rw\n\
            222 2 0:45 / /a\\040-\\040b rw - fuse.refit /source rw\n";
        let of = |number| kind(all, &format!("pos:\t0\nflags:\t02\nmnt_id:\t{number}\nino:\t7\n"));
        assert_eq!([of(22), of(2), of(222)], [Some("proc"), Some("ext4"), Some("fuse.refit")]);
        assert_eq!((of(7), kind(all, "pos:\t0\n")), (None, None));
    }

    #[test]
    fn what_is_no_file_of_a_disk_is_not_taken_for_one() {
        let mut mounts = Mounts::default();
        let own = std::process::id();
        let memory = rustix::fs::memfd_create(c"nowhere", rustix::fs::MemfdFlags::CLOEXEC);
        assert_eq!(mounts.have(memory.expect("a memfd").as_fd(), own), None);
        for path in ["/proc/self/status", "/dev/null", "/", "/sys/kernel/mm/transparent_hugepage"] {
            let Ok(file) = File::open(path) else { continue };
            assert_eq!(mounts.have(file.as_fd(), own), None, "{path}");
        }
    }
}
