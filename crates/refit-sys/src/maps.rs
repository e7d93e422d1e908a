//! What a process has mapped where, as `/proc/PID/maps` tells it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// Whether the program may read, write and run it.
    pub readable: bool,
    /// See `readable`.
    pub writable: bool,
    /// See `readable`.
    pub executable: bool,
    /// Whether what is written there is seen by other mappings of the same file.
    pub shared: bool,
    /// Where in its file it begins, in bytes.
    pub offset: u64,
    /// Device and inode of its file; zeros where there is none.
    pub file: (u64, u64),
    /// Its file's name as the process sees it, or what the kernel calls it (`[heap]`, `[vdso]`, `/memfd:name`); empty for
    /// anonymous memory.
    pub name: PathBuf,
    /// Whether the file has been deleted, or replaced, since it was mapped.
    pub deleted: bool,
}

/// The mappings of a process, by address.
///
/// # Errors
/// `ENOENT`: no such process. `EACCES`, `EPERM`: it is somebody else's. `EINVAL`: a line that is none.
pub fn of(process: u32) -> io::Result<Vec<Mapping>> {
    // Names of files need not be text.
    let text = fs::read(format!("/proc/{process}/maps"))?;
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| parse(line).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
        .collect()
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let text = line.utf8_chunks().next()?.valid();
    let mut rest = text;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (begin, end) = word().split_once('-')?;
    let range = u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let allowed = word().as_bytes();
    let &[read, write, run, share, ..] = allowed else { return None };
    let offset = u64::from_str_radix(word(), 16).ok()?;
    let (major, minor) = word().split_once(':')?;
    let device =
        (u64::from_str_radix(major, 16).ok()? << 32) | u64::from_str_radix(minor, 16).ok()?;
    let inode = word().parse().ok()?;
    let name = &line[text.len() - rest.trim_start_matches(' ').len()..];
    let kept = name.strip_suffix(b" (deleted)");
    Some(Mapping {
        range,
        readable: read == b'r',
        writable: write == b'w',
        executable: run == b'x',
        shared: share == b's',
        offset,
        file: (device, inode),
        name: Path::new(OsStr::from_bytes(kept.unwrap_or(name))).to_path_buf(),
        deleted: kept.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = b"7f00-7f10 r-xp 00001000 fe:01 77                        /tmp/a b (deleted)";
        let found = parse(line).expect("a mapping");
        assert_eq!(found.range, 0x7f00..0x7f10);
        assert!(found.readable && found.executable && !found.writable && !found.shared);
        assert_eq!((found.offset, found.file), (0x1000, (0xfe_0000_0001, 77)));
        assert_eq!((found.name.as_path(), found.deleted), (Path::new("/tmp/a b"), true));
        let odd = parse(b"1000-2000 r--p 00000000 00:00 7 /tmp/\xff (deleted)").expect("a mapping");
        assert_eq!(odd.name.as_os_str().as_bytes(), b"/tmp/\xff");
        let anonymous = parse(b"1000-2000 rw-s 00000000 00:00 0 ").expect("a mapping");
        assert!(anonymous.name.as_os_str().is_empty() && anonymous.shared);
        assert_eq!(parse(b"not a mapping"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn this_process_is_where_it_says() {
        let here = this_process_is_where_it_says as fn() as usize as u64;
        let maps = of(std::process::id()).expect("our own");
        let code = maps.iter().find(|mapping| mapping.range.contains(&here)).expect("mapped");
        assert!(code.executable && !code.writable);
        assert_eq!(code.name, std::env::current_exe().expect("a path"));
    }
}
