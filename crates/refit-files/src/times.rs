//! The times of a file whose data has not reached the host yet.
//!
//! The host sets the times of a file when the data reaches it, whereas a program expects the time
//! at which it wrote. The server therefore remembers the program's time from the first write until
//! the data is on the host, shows that time, and then sets it on the host. The change time cannot
//! be set on the host: the time shown before write-back stays visible for as long as nothing else
//! changes the file.

use crate::image::record::Record;
use crate::image::recorded::RecordedInode;
use crate::values::Time;
use rustix::fs::Stat;
use std::sync::Arc;

/// The times that differ from the host's, which the inode's record repeats.
#[derive(Debug)]
pub(crate) struct Times {
    record: Arc<Record>,
    /// The modification time that the host does not have yet.
    modified: Option<Time>,
    changed: Option<Changed>,
}

#[derive(Debug)]
struct Changed {
    shown: Time,
    /// The change time of the host that `shown` replaces; `None` while data is waiting.
    host: Option<Time>,
}

impl Times {
    /// Creates the times of a file whose times are the host's.
    pub(crate) fn new(record: Arc<Record>) -> Self {
        Self { record, modified: None, changed: None }
    }

    /// Creates the times of a file that another server has served.
    pub(crate) fn continued(record: Arc<Record>, inode: &RecordedInode) -> Self {
        let changed = inode.changed().map(|(shown, host)| Changed { shown, host });
        Self { record, modified: inode.modified(), changed }
    }

    fn keep(&self) {
        let changed = self.changed.as_ref().map(|changed| (changed.shown, changed.host));
        self.record.set_times(self.modified, changed);
    }

    /// Records a write at `now`. With `keep` a waiting modification time stays: the write comes
    /// from the kernel's cache, and the kernel sends its time separately.
    pub(crate) fn written(&mut self, now: Time, keep: bool) {
        if !keep || self.modified.is_none() {
            self.modified = Some(now);
        }
        self.changed = Some(Changed { shown: now, host: None });
        self.keep();
    }

    /// Records that the modification time was set and is already on the host. It is set again after
    /// write-back if data is waiting.
    pub(crate) fn modified_set(&mut self, mtime: Time) {
        if self.modified.is_some() {
            self.modified = Some(mtime);
            self.keep();
        }
    }

    /// Records a modification time that can wait for the data. Returns whether there is such data;
    /// otherwise the time must be set on the host now. With `gone` it need not reach the host
    /// unless the file is synchronized.
    pub(crate) fn modified_later(&mut self, mtime: Time, gone: bool) -> bool {
        let waits = gone || self.modified.is_some();
        if waits {
            self.modified = Some(mtime);
            self.keep();
        }
        waits
    }

    /// Records that the host's times are valid: the file was truncated or extended there, and no
    /// data is waiting.
    pub(crate) fn as_on_host(&mut self) {
        (self.modified, self.changed) = (None, None);
        self.keep();
    }

    /// Records that something other than the data was changed on the host at `now`.
    pub(crate) fn metadata_changed(&mut self, now: Time) {
        if let Some(Changed { shown, host: None }) = &mut self.changed {
            *shown = now;
            self.keep();
        }
    }

    /// Returns the modification time that must be set on the host after write-back.
    pub(crate) fn waiting(&self) -> Option<Time> {
        self.modified
    }

    /// Records that the data and the modification time are on the host, where the status is now
    /// `stat`.
    pub(crate) fn settled(&mut self, stat: &Stat) {
        self.modified = None;
        if let Some(changed) = &mut self.changed {
            changed.host = Some(ctime(stat));
        }
        self.keep();
    }

    /// Returns the `(mtime, ctime)` to show for a file whose status on the host is `stat`.
    pub(crate) fn shown(&self, stat: &Stat) -> (Time, Time) {
        let changed = match &self.changed {
            Some(Changed { shown, host: None }) => *shown,
            Some(Changed { shown, host: Some(host) }) if *host == ctime(stat) => *shown,
            _ => ctime(stat),
        };
        (self.modified.unwrap_or_else(|| mtime(stat)), changed)
    }
}

pub(crate) fn mtime(stat: &Stat) -> Time {
    (stat.st_mtime, stat.st_mtime_nsec as i64)
}

pub(crate) fn ctime(stat: &Stat) -> Time {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

/// Returns the time that the host would give to a file now. It is taken from the coarse clock, so
/// that files written here and files written on the host can be ordered.
pub(crate) fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}
