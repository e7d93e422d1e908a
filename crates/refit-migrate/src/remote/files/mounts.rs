//! The file systems on which it makes no difference which process reads and writes an open file.
//!
//! These are the ones of a disk or of memory; and refit's own, for calls that write nothing. There,
//! as on any file system that a program serves, the kernel writes back what it has of a file when
//! one of several descriptors of it is closed (`fuse_flush`, if it may cache anything): after each
//! write that would be an additional one, so shadows make these. Not among them are file systems
//! that stand for something else (`proc`, `sysfs`, `cgroup`), that programs serve which may want to
//! know the caller, or be the caller (`fuse`), that write back when a descriptor is closed (`nfs`),
//! and that may be layered on such (`overlay`).

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags};

/// By their names in `/proc/PID/mountinfo`.
const SAFE: [(&str, SafeCalls); 5] = [
    ("fuse.refit", SafeCalls::Reads),
    ("ext4", SafeCalls::All),
    ("xfs", SafeCalls::All),
    ("btrfs", SafeCalls::All),
    ("tmpfs", SafeCalls::All),
];

/// The calls that make no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SafeCalls {
    All,
    /// Calls that write nothing.
    Reads,
}

/// `STATX_MNT_ID_UNIQUE` (`linux/stat.h`, 6.8).
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The known mounts, by the number that is never reused.
#[derive(Debug, Default)]
pub(super) struct Mounts(BTreeMap<u64, Option<SafeCalls>>);

impl Mounts {
    /// Returns the calls that make no difference, if the file is a regular one on such a file
    /// system; `thread` is one that sees the mount.
    pub(super) fn safe_calls(&mut self, file: BorrowedFd<'_>, thread: u32) -> Option<SafeCalls> {
        // Without asking the server of the file system.
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = rustix::fs::statx(file, c"", how, StatxFlags::TYPE | UNIQUE).ok()?;
        if status.stx_mask & UNIQUE.bits() == 0
            || !FileType::from_raw_mode(status.stx_mode.into()).is_file()
        {
            return None;
        }
        *self.0.entry(status.stx_mnt_id).or_insert_with(|| {
            let all = fs::read(format!("/proc/{thread}/mountinfo")).ok()?;
            // While the file is open, its mount keeps the short number as well.
            let what =
                fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
            // Some directory of the list may have a name that is no text.
            let all = String::from_utf8_lossy(&all);
            let kind = kind(&all, &what)?;
            SAFE.iter().find(|(name, _)| *name == kind).map(|(_, calls)| *calls)
        })
    }
}

/// Returns the type of the file system of a descriptor, by the list of mounts
/// (proc_pid_mountinfo(5)) and the descriptor's information (proc_pid_fdinfo(5)).
fn kind<'a>(all: &'a str, descriptor: &str) -> Option<&'a str> {
    let number = descriptor.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let of = |line: &&str| line.split(' ').next() == Some(number);
    // The fields before have no spaces, but their number varies.
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
    fn other_files_are_not_taken_for_files_of_a_disk() {
        let mut mounts = Mounts::default();
        let own = std::process::id();
        let memory = rustix::fs::memfd_create(c"nowhere", rustix::fs::MemfdFlags::CLOEXEC);
        assert_eq!(mounts.safe_calls(memory.expect("a memfd").as_fd(), own), None);
        for path in ["/proc/self/status", "/dev/null", "/", "/sys/kernel/mm/transparent_hugepage"] {
            let Ok(file) = File::open(path) else { continue };
            assert_eq!(mounts.safe_calls(file.as_fd(), own), None, "{path}");
        }
    }
}
