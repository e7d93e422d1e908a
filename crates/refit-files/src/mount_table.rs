//! The tables of mounts of this process and of others (`/proc/PID/mountinfo`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns whether the topmost mount at `path` is a FUSE file system.
pub(crate) fn is_fuse_mount(path: &Path) -> bool {
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else { return false };
    // Later lines cover earlier ones.
    let topmost = mounts.split(|&c| c == b'\n').rev().find_map(|line| {
        let fields: Vec<_> = line.split(|&c| c == b' ').collect();
        let kind = fields.iter().position(|field| field == b"-").map(|dash| dash + 1)?;
        (unescape(fields.get(4)?) == path.as_os_str().as_bytes()).then(|| fields.get(kind).copied())
    });
    topmost.flatten().is_some_and(|kind| kind == b"fuse" || kind.starts_with(b"fuse."))
}

/// Returns whether a table of mounts (`/proc/PID/mountinfo`) contains the file system with this
/// device number.
pub(crate) fn has_file_system(table: &[u8], (major, minor): (u32, u32)) -> bool {
    let number = format!("{major}:{minor}");
    let is = |line: &[u8]| line.split(|&c| c == b' ').nth(2) == Some(number.as_bytes());
    table.split(|&c| c == b'\n').any(is)
}

/// Returns the source and the mount point of each mount of refit in a table of mounts.
pub(crate) fn refit_mounts(table: &str) -> Vec<(PathBuf, PathBuf)> {
    let mounts = std::fs::read(table).unwrap_or_default();
    let path = |field: &[u8]| PathBuf::from(OsStr::from_bytes(&unescape(field)));
    let served = |line: &[u8]| {
        let fields: Vec<_> = line.split(|&c| c == b' ').collect();
        let dash = fields.iter().position(|field| field == b"-")?;
        let (kind, source) = (*fields.get(dash + 1)?, *fields.get(dash + 2)?);
        if kind != b"fuse.refit" {
            return None;
        }
        Some((path(source), path(fields.get(4)?)))
    };
    mounts.split(|&c| c == b'\n').filter_map(served).collect()
}

/// Decodes a field of a table of mounts, in which blanks and other special characters are written
/// as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(first);
                rest = after;
            }
        }
    }
    path
}

/// Returns a path as the table of mounts shows it as the source of a mount.
pub(crate) fn display_name(path: &Path) -> String {
    // A comma would end the mount option.
    OsStr::to_string_lossy(path.as_os_str()).replace(',', "_")
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn the_table_of_mounts_is_unescaped() {
        assert_eq!(unescape(b"/a\\040b\\134c\\"), b"/a b\\c\\");
        assert_eq!(unescape(b"/\\01"), b"/\\01");
    }
}
