//! Bytes as a file, for readers that take a path.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::write;

/// Returns an unnamed file that holds `bytes`, and a path by which it can be opened for as long as
/// it exists.
pub(crate) fn holding(bytes: &[u8]) -> (File, PathBuf) {
    let file = memfd_create(c"fuzzed", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut left = bytes;
    while !left.is_empty() {
        left = &left[write(&file, left).expect("room for it")..];
    }
    let file = File::from(file);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}
