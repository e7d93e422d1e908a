//! Detection of changes to a file of the host beside the mount.
//!
//! The contents that a file's cache and the kernel hold are valid for the version that they know.
//! A version is identified by the change time, the modification time and the size. (The change
//! counter of the host's file systems, `STATX_CHANGE_COOKIE`, is not available to programs. Since
//! Linux 6.13 a change after a time has been read always yields a later time; before, two changes
//! within one tick of the clock cannot be distinguished.)
//!
//! The server changes the host's file, too. Each such change goes through
//! [`HostFile::changing`](crate::host::HostFile::changing),
//! which compares the file before and after it: a difference before the change was made by others,
//! a difference after it by the server.
//!
//! Lock order: `changes`, then `state`. No lock of an inode is taken with `changes` held.

use crate::image::record::{Record, RecordedVersion};
use crate::image::recorded::RecordedInode;
use crate::times;
use crate::values::Time;
use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::sync::Arc;

/// The attributes that distinguish one version of a file from another.
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

    fn recorded((changed, modified, size): RecordedVersion) -> Self {
        Self { changed, modified, size }
    }
}

/// The version of a file that the caches know.
#[derive(Debug, Default)]
pub(crate) struct KnownVersion {
    /// Held during each change by the server, so that one change is not taken for the work of
    /// others. The host serializes the changes as well.
    changes: Mutex<()>,
    /// Not held during system calls.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the version is recorded for the next server; `None` for a file that has no inode yet.
    record: Option<Arc<Record>>,
    /// `None` until the file was first seen.
    version: Option<Version>,
    /// A change by others was found, and the caches have not been notified yet.
    by_others: bool,
    /// The server is changing the file, so that `stat` is between two versions.
    changing: bool,
}

impl State {
    fn keep(&self) {
        if let Some(record) = &self.record {
            let version = self.version.map(|it| (it.changed, it.modified, it.size));
            record.set_version(version, self.by_others);
        }
    }

    fn differs(&self, stat: &Stat) -> bool {
        let known = self.version.is_none_or(|version| version == Version::of(stat));
        self.by_others || !known
    }
}

impl KnownVersion {
    /// Makes a change to the host's file, whose status `look` returns, that the caches know of.
    pub(crate) fn changing<T>(
        &self,
        look: impl Fn() -> Result<Stat, Errno>,
        change: impl FnOnce() -> T,
    ) -> T {
        let _alone = self.changes.lock();
        if let Ok(before) = look() {
            let mut state = self.state.lock();
            state.by_others |= state.differs(&before);
            state.changing = true;
            if let Some(record) = &state.record {
                record.version_changes();
            }
        }
        let outcome = change();
        let after = look().ok();
        let mut state = self.state.lock();
        state.version = after.as_ref().map(Version::of).or(state.version);
        state.changing = false;
        state.keep();
        outcome
    }

    /// Records the version in the record of the inode from now on.
    pub(crate) fn keep_in(&self, record: &Arc<Record>) {
        let mut state = self.state.lock();
        state.record = Some(Arc::clone(record));
        state.keep();
    }

    /// Continues with the version that another server's caches knew.
    pub(crate) fn continued(&self, inode: &RecordedInode) {
        let mut state = self.state.lock();
        state.version = inode.version().map(Version::recorded);
        state.by_others = inode.by_others();
    }

    /// Returns whether the file, whose status is `stat`, may have been changed by others. While the
    /// server changes the file only [`changed_by_others`](Self::changed_by_others) can tell; the
    /// result is then `surely`.
    pub(crate) fn may_have_changed(&self, stat: &Stat, surely: bool) -> bool {
        let state = self.state.lock();
        state.differs(stat) && (surely || state.by_others || !state.changing)
    }

    /// Returns whether the file, whose status `look` returns, has been changed by others since this
    /// version.
    pub(crate) fn changed_by_others(
        &self,
        look: impl FnOnce() -> Result<Stat, Errno>,
    ) -> Result<bool, Errno> {
        let _no_change_of_ours = self.changes.lock();
        let stat = look()?;
        Ok(self.state.lock().differs(&stat))
    }

    /// Records that the caches hold nothing older than `stat`, which was read before they dropped
    /// their data, so that any later change differs from it.
    pub(crate) fn caches_know(&self, stat: &Stat) {
        let mut state = self.state.lock();
        state.version = Some(Version::of(stat));
        state.by_others = false;
        state.keep();
    }
}

#[cfg(test)]
mod tests {
    use crate::host::HostFile;
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
