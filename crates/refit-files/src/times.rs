//! The times of a file whose data is still on its way to the host.
//!
//! The host stamps a file when the data reaches it; a program expects the time at which it wrote. So the server
//! remembers the program's time from the first write until the data is on the host, shows that, and then puts it on
//! the host. The change time cannot be set on the host: there, what was shown before write-back stays shown for as
//! long as nothing else changes the file.

use rustix::fs::Stat;

/// Seconds and nanoseconds since 1970.
pub(crate) type Time = (i64, i64);

/// What differs from the host's times.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Modification time that the host does not have yet.
    modified: Option<Time>,
    changed: Option<Changed>,
}

#[derive(Debug)]
struct Changed {
    shown: Time,
    /// The host's change time that `shown` stands for; none while data is on its way.
    host: Option<Time>,
}

impl Times {
    /// The file was written at `now`. With `keep` a modification time that waits already is left alone: the write
    /// comes from the kernel's cache, and the kernel tells the time of it separately.
    pub(crate) fn written(&mut self, now: Time, keep: bool) {
        if !keep || self.modified.is_none() {
            self.modified = Some(now);
        }
        self.changed = Some(Changed { shown: now, host: None });
    }

    /// Somebody set the modification time, and the host has it already. It is set again after write-back if data is
    /// still on its way.
    pub(crate) fn modified_set(&mut self, mtime: Time) {
        if self.modified.is_some() {
            self.modified = Some(mtime);
        }
    }

    /// Sets a modification time that can wait for the data; whether there is data, or the time must reach the host
    /// now. With `gone` it need not reach the host unless it is synced.
    pub(crate) fn modified_later(&mut self, mtime: Time, gone: bool) -> bool {
        let waits = gone || self.modified.is_some();
        if waits {
            self.modified = Some(mtime);
        }
        waits
    }

    /// The host's times are right: the file was cut or grown there, and no data is on its way.
    pub(crate) fn as_on_host(&mut self) {
        *self = Self::default();
    }

    /// Something besides the data was changed on the host at `now`.
    pub(crate) fn metadata_changed(&mut self, now: Time) {
        if let Some(Changed { shown, host: None }) = &mut self.changed {
            *shown = now;
        }
    }

    /// The modification time that has to be put on the host after write-back.
    pub(crate) fn waiting(&self) -> Option<Time> {
        self.modified
    }

    /// The data and the modification time are on the host, which says `stat` now.
    pub(crate) fn settled(&mut self, stat: &Stat) {
        self.modified = None;
        if let Some(changed) = &mut self.changed {
            changed.host = Some(ctime(stat));
        }
    }

    /// `(mtime, ctime)` to show for a file of which the host says `stat`.
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

/// The time that the host would stamp a file with now: its coarse clock, so that a file written here and one
/// written there can be ordered.
pub(crate) fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}
