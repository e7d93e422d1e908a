//! Plain values that inodes, their records and what changes them have in common.

use rustix::fs::Stat;

/// Seconds and nanoseconds since 1970.
pub(crate) type Time = (i64, i64);

/// The access that a descriptor permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The identity of an inode on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostKey {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

impl HostKey {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}
