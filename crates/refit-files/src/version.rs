//! Whether a file of the host was changed beside the mount.
//!
//! What a file's cache and the kernel hold of a file is good for the version of it that they got to
//! know. A version is told by the change time, the modification time and the size. (The change
//! counter of the host's file systems, `STATX_CHANGE_COOKIE`, is not shown to programs. Since Linux
//! 6.13 a time that somebody has looked at is followed by a later one; before, two changes within
//! one tick of the clock cannot be told apart.)
//!
//! The server changes the host's file, too. Each such change goes through [`HostFile::changing`],
//! which looks at the file before it and after it: what differs before is the work of others, what
//! differs after is its own.
//!
//! Lock order: `changes`, then `state`. Whoever holds `changes` takes no lock of an inode.

use crate::host::HostFile;
use crate::times::{self, Time};
use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::io::Errno;

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    changed: Time,
    modified: Time,
    size: i64,
}

impl Version {
    fn of(stat: &Stat) -> Self {
        let (changed, modified) = (times::ctime(stat), times::mtime(stat));
        Self { changed, modified, size: stat.st_size }
    }
}

/// The version of a file that caches know.
#[derive(Debug, Default)]
pub(crate) struct KnownVersion {
    /// Held over each change by the server, so that one does not take another for the work of
    /// others. The host makes them wait for each other as well.
    changes: Mutex<()>,
    /// Held for no system call.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until somebody got to know the file.
    version: Option<Version>,
    /// A change by others was found; the caches have not been told.
    by_others: bool,
    /// The server is changing the file: what `stat` says is between two versions.
    changing: bool,
}

impl State {
    fn differs(&self, stat: &Stat) -> bool {
        let known = self.version.is_none_or(|version| version == Version::of(stat));
        self.by_others || !known
    }
}

impl HostFile {
    /// Makes a change to the host's file that caches know of.
    pub(crate) fn changing<T>(&self, change: impl FnOnce() -> T) -> T {
        let known = &self.version;
        let _alone = known.changes.lock();
        let look = || rustix::fs::fstat(self.fd());
        if let Ok(before) = look() {
            let mut state = known.state.lock();
            state.by_others |= state.differs(&before);
            state.changing = true;
        }
        let outcome = change();
        let after = look().ok();
        let mut state = known.state.lock();
        state.version = after.as_ref().map(Version::of).or(state.version);
        state.changing = false;
        outcome
    }

    /// Whether the file, which is `stat`, may have been changed by others. While the server changes
    /// it, only [`changed_by_others`](Self::changed_by_others) can tell; no is the answer then
    /// unless `surely`.
    pub(crate) fn may_have_changed(&self, stat: &Stat, surely: bool) -> bool {
        let state = self.version.state.lock();
        state.differs(stat) && (surely || state.by_others || !state.changing)
    }

    /// Whether the file has been changed by others since the version that caches know.
    pub(crate) fn changed_by_others(&self) -> Result<bool, Errno> {
        let _no_change_of_ours = self.version.changes.lock();
        let stat = rustix::fs::fstat(self.fd())?;
        Ok(self.version.state.lock().differs(&stat))
    }

    /// The caches hold nothing that is older than `stat`. It was looked at before they dropped what
    /// they had: what is changed after that differs from it again.
    pub(crate) fn caches_know(&self, stat: &Stat) {
        let mut state = self.version.state.lock();
        state.version = Some(Version::of(stat));
        state.by_others = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    fn known() -> (HostFile, File) {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(b"first").unwrap();
        let host = HostFile::opened(file.try_clone().unwrap().into());
        host.caches_know(&rustix::fs::fstat(&file).unwrap());
        (host, file)
    }

    fn changed(host: &HostFile) -> bool {
        let changed = host.changed_by_others().unwrap();
        let stat = rustix::fs::fstat(host.fd()).unwrap();
        assert_eq!(host.may_have_changed(&stat, true), changed);
        changed
    }

    #[test]
    fn a_change_of_its_own_is_none_by_others() {
        let (host, _file) = known();
        assert!(!changed(&host));
        assert_eq!(host.write_some(3, b"second"), Ok(6));
        assert!(!changed(&host));
        host.changing(|| rustix::fs::fchmod(host.fd(), 0o600.into())).unwrap();
        assert!(!changed(&host));
    }

    #[test]
    fn a_change_by_others_is_not_hidden_by_one_of_its_own() {
        let (host, file) = known();
        file.write_all_at(b"by others", 0).unwrap();
        assert!(changed(&host));
        assert_eq!(host.write_some(0, b"second"), Ok(6));
        assert!(changed(&host));
        host.caches_know(&rustix::fs::fstat(&file).unwrap());
        assert!(!changed(&host));
    }
}
