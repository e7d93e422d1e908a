//! Whether the kernel caches a file as well, or every read and write is sent to the server.
//!
//! With the kernel's cache a read of cached data costs nothing and is not seen by the server. With
//! direct access the file cache manager sees every access, at the cost of a round trip each. The
//! choice is made when a file is opened. A file may be open in both ways at once: the kernel writes
//! back and drops its pages around direct accesses.

use parking_lot::RwLock;
use refit_sys::{glob, printable};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the kernel caches a file's pages in addition to the file cache manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMode {
    /// The kernel caches pages.
    Kernel,
    /// The kernel does not cache pages: every read and write reaches the file cache manager.
    Direct,
    /// The kernel caches pages, except those of files that are opened for reading only and are
    /// larger than half of the machine's memory, which would displace everything else in its cache.
    /// (For a file opened with `O_DIRECT` the kernel bypasses its cache in every mode.)
    Auto,
}

pub(crate) struct Modes {
    pub(crate) default: CacheMode,
    /// The size in bytes above which a file is too large for the kernel's cache.
    large: u64,
    rules: RwLock<Vec<(Vec<u8>, CacheMode)>>,
    any: AtomicBool,
}

impl Modes {
    pub(crate) fn new(default: CacheMode) -> Self {
        Self { default, large: memory() / 2, rules: RwLock::default(), any: AtomicBool::new(false) }
    }

    /// Adds a rule: files whose path matches `glob` are opened in `mode` from now on. The glob is
    /// written with the escapes of [`printable`]. The latest matching rule applies.
    pub(crate) fn add(&self, glob: &str, mode: CacheMode) {
        let glob = printable::bytes(glob);
        let mut rules = self.rules.write();
        rules.retain(|(old, _)| *old != glob);
        rules.push((glob, mode));
        self.any.store(true, Relaxed);
    }

    /// Returns whether a file is opened for direct access. `path` is called only if there are
    /// rules.
    pub(crate) fn direct(&self, path: impl FnOnce() -> Vec<u8>, flags: i32, size: u64) -> bool {
        let mode = if self.any.load(Relaxed) {
            let path = path();
            let rules = self.rules.read();
            let rule = rules.iter().rev().find(|(glob, _)| glob::matches(glob, &path));
            rule.map_or(self.default, |(_, mode)| *mode)
        } else {
            self.default
        };
        match mode {
            CacheMode::Kernel => false,
            CacheMode::Direct => true,
            CacheMode::Auto => flags & libc::O_ACCMODE == libc::O_RDONLY && size > self.large,
        }
    }
}

/// Returns the size of the machine's memory, in bytes.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_rule_wins() {
        let modes = Modes::new(CacheMode::Auto);
        let direct = |path: &str, size| modes.direct(|| path.as_bytes().to_vec(), 0, size);
        assert!(!direct("/a", 0));
        assert!(direct("/a", u64::MAX));
        assert!(!modes.direct(|| b"/a".to_vec(), libc::O_RDWR, u64::MAX));
        modes.add("/logs/*", CacheMode::Direct);
        modes.add("/logs/keep*", CacheMode::Kernel);
        assert!(direct("/logs/x", 0));
        assert!(!direct("/logs/keep/x", u64::MAX));
        assert!(!direct("/other", 0));
        modes.add("/logs/*", CacheMode::Auto);
        assert!(!direct("/logs/x", 0));
        assert!(!direct("/logs/keep/x", 0));
    }
}
