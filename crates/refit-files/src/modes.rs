//! Whether the kernel caches a file as well, every read and write is sent to the server, or none.
//!
//! With the kernel's cache a read of cached data costs nothing and is not seen by the server. With
//! direct access the file cache manager sees every access, at the cost of a round trip each. A file
//! that is passed through costs what it costs on the host, and the server sees no access. In a
//! mount for the exclusive use of a source, the server does not even see opens. In all others the
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
    /// The kernel reads, writes and maps the host's file itself, and nothing of the file is cached
    /// twice; see `passthrough`. A mount that was not mounted in this mode cannot do so. A file
    /// that cannot be passed through is served as with [`Kernel`](Self::Kernel).
    Passthrough,
    /// The kernel caches pages, and opens and closes files without a request. A change beside the
    /// mount is therefore found only when a name is looked up. It is a mode of a whole mount, all
    /// files of which have it.
    Exclusive,
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

    /// Returns the mode of a file. `path` is called only if there are rules.
    pub(crate) fn mode(&self, path: impl FnOnce() -> Vec<u8>) -> CacheMode {
        if !self.any.load(Relaxed) {
            return self.default;
        }
        let path = path();
        let rules = self.rules.read();
        let rule = rules.iter().rev().find(|(glob, _)| glob::matches(glob, &path));
        rule.map_or(self.default, |(_, mode)| *mode)
    }

    /// Returns whether a file of a mode is opened for direct access, if its data is served.
    pub(crate) fn direct(&self, mode: CacheMode, flags: i32, size: u64) -> bool {
        match mode {
            CacheMode::Kernel | CacheMode::Passthrough | CacheMode::Exclusive => false,
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
        let mode = |path: &str| modes.mode(|| path.as_bytes().to_vec());
        let direct = |path: &str, size| modes.direct(mode(path), 0, size);
        assert!(!direct("/a", 0));
        assert!(direct("/a", u64::MAX));
        assert!(!modes.direct(mode("/a"), libc::O_RDWR, u64::MAX));
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
