//! The processes that use a file, as `/proc` shows them.

use std::fs;
use std::io;
use std::path::Path;

use refit_sys::maps;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev};
use serde::Serialize;

/// A process that has a file open or mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Opener {
    pub(super) pid: u32,
    pub(super) command: String,
    /// The number of descriptors that refer to the file.
    pub(super) descriptors: u64,
    /// Whether the file is mapped into its memory.
    pub(super) mapped: bool,
}

/// Device and inode number.
pub(super) type FileId = (u64, u64);

/// Returns the device and the inode number of a file, following links.
///
/// # Errors
/// As statx(2).
pub(super) fn id(path: &Path) -> io::Result<FileId> {
    Ok(identify(path, AtFlags::empty())?)
}

fn identify(path: &Path, flags: AtFlags) -> rustix::io::Result<FileId> {
    let status = rustix::fs::statx(CWD, path, flags, StatxFlags::INO)?;
    Ok((makedev(status.stx_dev_major, status.stx_dev_minor), status.stx_ino))
}

/// Returns the processes that use the file, sorted by number: those that this user may look into,
/// of this PID namespace.
pub(super) fn of(file: FileId) -> Vec<Opener> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<Opener> = numbers.filter_map(|pid| opener(pid, file)).collect();
    found.sort_by_key(|opener| opener.pid);
    found
}

fn opener(pid: u32, file: FileId) -> Option<Opener> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    // No file system is asked, since one that hangs would hang this process, too.
    let same = |path: &Path| identify(path, AtFlags::STATX_DONT_SYNC) == Ok(file);
    let descriptors = descriptors.filter(|entry| same(&entry.path())).count() as u64;
    let mapped = maps::of(pid).is_ok_and(|all| all.iter().any(|mapping| mapping.file == file));
    if descriptors == 0 && !mapped {
        return None;
    }
    let command = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let command = String::from_utf8_lossy(command.trim_ascii_end()).into_owned();
    Some(Opener { pid, command, descriptors, mapped })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process;

    use super::*;

    fn own(file: FileId) -> Option<Opener> {
        of(file).into_iter().find(|opener| opener.pid == process::id())
    }

    #[test]
    fn descriptors_are_counted() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let id = id(file.path()).expect("it exists");
        assert_eq!(own(id).expect("it is open").descriptors, 1);
        let again = File::open(file.path()).expect("it opens again");
        let both = own(id).expect("it is open");
        assert_eq!((both.descriptors, both.mapped), (2, false));
        drop((file, again));
        assert_eq!(own(id), None);
    }
}
