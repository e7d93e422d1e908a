//! The journal of changes that commands make: they concern programs that no instance serves.
//!
//! It is one file of the user, with the report of a change as JSON in each line. A command appends
//! its line in one write, while it has the directory locked. The file is bounded: the older half is
//! dropped when it is full. Changes have numbers of their own, from 1.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refit_change::{Change, ChangeId, Report};
use refit_splice::process::Program;
use refit_sys::private_file::{self, Base};
use refit_sys::status::Status;

/// Size in bytes at which the older half is dropped; some hundred changes.
const FULL: u64 = 256 << 10;
/// Size in bytes above which it is not read: no version of refit writes so much.
const LARGEST: u64 = 16 * FULL;
/// The interval at which a follower looks for new changes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the path of the journal; `None` if the user has no directory for state.
fn path() -> Option<PathBuf> {
    private_file::directory(Base::State, "journal").map(|directory| directory.join("changes"))
}

/// Appends the report that `report` makes of a change of a program's code, from one state to
/// another. If that fails, the user is told: the change itself has ended.
pub(crate) fn record(
    program: &Program,
    [from, to]: [&str; 2],
    report: impl FnOnce(Change) -> Report,
) {
    let Some(path) = path() else { return };
    let status = Status::of(program.face()).unwrap_or_default();
    let name = status.line("Name").unwrap_or("?");
    let target = format!("process {} ({name})", program.id());
    let own = std::process::id();
    let owner = format!("uid {}, pid {own}", rustix::process::geteuid().as_raw());
    let appended = append(&path, |id| report(Change::new(id, "splice", &target, from, to, &owner)));
    if let Err(why) = appended {
        say!("refit: the change is not in the journal: {}: {why}", path.display());
    }
}

fn append(path: &Path, report: impl FnOnce(ChangeId) -> Report) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let _lock = private_file::lock(directory)?;
    let old = match private_file::read(path, LARGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let last = parsed(&old).map(|report| report.change.id).max().unwrap_or(0);
    let mut line = serde_json::to_vec(&report(last.saturating_add(1)))?;
    line.push(b'\n');
    if (old.len() + line.len()) as u64 > FULL {
        return private_file::replace(path, &[newer_half(&old), &line]);
    }
    // A writer that ran out of space may have left a part of a line.
    if !old.is_empty() && !old.ends_with(b"\n") {
        line.insert(0, b'\n');
    }
    private_file::options().append(true).create(true).open(path)?.write_all(&line)
}

/// Returns the lines of the newer half, which may be empty.
fn newer_half(bytes: &[u8]) -> &[u8] {
    let half = &bytes[bytes.len() / 2..];
    let begin = half.iter().position(|&byte| byte == b'\n').map_or(half.len(), |at| at + 1);
    let lines = half.iter().rposition(|&byte| byte == b'\n').map_or(begin, |at| at + 1);
    half.get(begin..lines).unwrap_or_default()
}

/// Returns the reports in the lines of a journal; what is no report is left out.
fn parsed(bytes: &[u8]) -> impl Iterator<Item = Report> + '_ {
    bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// Returns all changes that are kept, oldest first.
pub(crate) fn read() -> Vec<Report> {
    Follower::default().read()
}

/// A reader that returns each change once.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// The last change that was returned.
    last: ChangeId,
    /// Inode and size of the file as it was read.
    seen: Option<(u64, u64)>,
}

impl Follower {
    /// Returns the changes since the last call, oldest first.
    pub(crate) fn read(&mut self) -> Vec<Report> {
        path().map(|path| self.read_from(&path)).unwrap_or_default()
    }

    /// Waits for changes and returns them, oldest first.
    pub(crate) fn wait(&mut self) -> Vec<Report> {
        loop {
            let new = self.read();
            if !new.is_empty() {
                return new;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn read_from(&mut self, path: &Path) -> Vec<Report> {
        let seen = fs::metadata(path).ok().map(|meta| (meta.ino(), meta.len()));
        if seen == self.seen {
            return Vec::new();
        }
        self.seen = seen;
        let bytes = private_file::read(path, LARGEST).unwrap_or_default();
        let last = self.last;
        let new: Vec<Report> = parsed(&bytes).filter(|report| report.change.id > last).collect();
        self.last = new.iter().map(|report| report.change.id).max().unwrap_or(last);
        new
    }
}

#[cfg(test)]
mod tests {
    use refit_change::End;

    use super::*;

    fn written(path: &Path, effect: &str) {
        let report = |id| Report {
            end: End::Committed,
            effect: effect.to_owned(),
            ..Report::refused(Change::new(id, "splice", "process 1 (a)", "x", "y", "me"), "")
        };
        append(path, report).expect("written");
    }

    fn ids(reports: &[Report]) -> Vec<ChangeId> {
        reports.iter().map(|report| report.change.id).collect()
    }

    #[test]
    fn concurrent_writers_lose_nothing_and_a_follower_sees_each_change_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal/changes");
        let mut follower = Follower::default();
        assert_eq!(follower.read_from(&path), []);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..25).for_each(|_| written(&path, "+1 %")));
            }
        });
        assert_eq!(ids(&follower.read_from(&path)), (1..=100).collect::<Vec<_>>());
        assert_eq!(follower.read_from(&path), []);
        written(&path, "");
        assert_eq!(ids(&follower.read_from(&path)), [101]);
    }

    #[test]
    fn the_file_is_bounded_and_numbers_go_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("changes");
        let long = "x".repeat(10_000);
        for _ in 0..60 {
            written(&path, &long);
            assert!(fs::metadata(&path).expect("a file").len() <= FULL);
        }
        let kept = ids(&Follower::default().read_from(&path));
        assert!(kept.len() > 10 && kept.len() < 30, "{kept:?}");
        assert_eq!(kept, (61 - kept.len() as u64..=60).collect::<Vec<_>>());
    }

    #[test]
    fn a_part_of_a_line_spoils_no_other_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("changes");
        written(&path, "");
        let good = fs::read(&path).expect("a file");
        let bytes = [&good[..], b"{\"change\":\xff\n[]\n", &good[..40]].concat();
        private_file::replace(&path, &[&bytes]).expect("written");
        written(&path, "");
        assert_eq!(ids(&Follower::default().read_from(&path)), [1, 2]);
    }
}
