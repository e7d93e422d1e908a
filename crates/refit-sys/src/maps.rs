//! The mappings of a process, from `/proc/PID/maps`: all of them ([`of`]), or the one at an address
//! ([`Maps`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux_raw_sys::general::{procmap_query, procmap_query_flags as flags};
use rustix::ioctl::{Opcode, opcode};

use crate::text;

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address range.
    pub range: Range<u64>,
    /// Whether the program may read it.
    pub readable: bool,
    /// Whether the program may write to it.
    pub writable: bool,
    /// Whether the program may execute it.
    pub executable: bool,
    /// Whether other mappings of the same file see what is written here.
    pub shared: bool,
    /// Offset in its file, in bytes.
    pub offset: u64,
    /// Device and inode of its file; zeros if there is none.
    pub file: (u64, u64),
    /// The name of its file as the process sees it, or the kernel's name for it (`[heap]`,
    /// `[vdso]`, `/memfd:name`); empty for anonymous memory.
    pub name: PathBuf,
    /// Whether the file has been deleted or replaced since it was mapped.
    pub deleted: bool,
}

/// The purpose of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Private memory of the process.
    Anonymous,
    /// Anonymous memory that the process shares with its children.
    SharedAnonymous,
    /// The heap that `brk` allocates.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// Code that the kernel provides to the process (`[vdso]`, `[vsyscall]`).
    KernelCode,
    /// The data of that code (`[vvar]`, `[vvar_vclock]`).
    KernelData,
    /// An anonymous file in memory (memfd_create(2)).
    Memfd,
    /// System V shared memory.
    SystemV,
    /// A file.
    File,
    /// Another mapping that has a name of the kernel's.
    Other,
}

impl Mapping {
    /// Returns the purpose of the mapping.
    pub fn kind(&self) -> Kind {
        let name = self.name.as_os_str().as_bytes();
        let starts = |with: &str| name.starts_with(with.as_bytes());
        match name {
            b"" => Kind::Anonymous,
            b"[heap]" => Kind::Heap,
            b"[stack]" => Kind::Stack,
            b"[vdso]" | b"[vsyscall]" => Kind::KernelCode,
            _ if starts("[vvar") => Kind::KernelData,
            // The names that programs give to anonymous memory (`PR_SET_VMA_ANON_NAME`, 5.17).
            _ if starts("[anon:") => Kind::Anonymous,
            _ if starts("[anon_shmem:") => Kind::SharedAnonymous,
            b"/dev/zero" if self.deleted => Kind::SharedAnonymous,
            _ if starts("/memfd:") && self.deleted => Kind::Memfd,
            _ if starts("/SYSV") && self.deleted => Kind::SystemV,
            _ if starts("/") => Kind::File,
            _ => Kind::Other,
        }
    }
}

/// Returns the mappings of a process, in the order of addresses.
///
/// # Errors
/// `ENOENT`: no such process. `EACCES`, `EPERM`: it belongs to another user. `EINVAL`: a line
/// cannot be parsed.
pub fn of(process: u32) -> io::Result<Vec<Mapping>> {
    let text = text::read(format!("/proc/{process}/maps"))?;
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| parse(line).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
        .collect()
}

/// `PROCMAP_QUERY` (`linux/fs.h`).
const QUERY: Opcode = opcode::read_write::<procmap_query>(b'f', 17);
/// Size of the buffer for names in bytes, the same as that of the kernel's own.
const NAME: usize = 4096;

/// Queries for single mappings of a process. A query takes microseconds, whereas reading the whole
/// file takes some for each mapping. The queries refer to the memory that the process has when this
/// is opened, not to that of a program that it executes later.
#[derive(Debug)]
pub struct Maps {
    file: File,
    process: u32,
}

impl Maps {
    /// Opens the mappings of a process.
    ///
    /// # Errors
    /// As [`of`].
    pub fn open(process: u32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{process}/maps"))?, process })
    }

    /// Returns the mapping at an address or, if there is none, the first one after it.
    ///
    /// # Errors
    /// `ESRCH`: the process no longer has this memory.
    pub fn from(&self, address: u64) -> io::Result<Option<Mapping>> {
        let mut name = [0_u8; NAME];
        let mut query = procmap_query {
            size: size_of::<procmap_query>() as u64,
            query_flags: flags::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64,
            query_addr: address,
            vma_name_size: NAME as u32,
            vma_name_addr: name.as_mut_ptr() as u64,
            ..NOTHING
        };
        // SAFETY: the structure is that of the request, and holds the address and length of `name`,
        // which the kernel fills.
        match unsafe { crate::ioctl::ask(self.file.as_fd(), QUERY, &mut query) } {
            // The length includes the terminating zero.
            Ok(_) => Ok(Some(mapping_of(
                &query,
                &name[..(query.vma_name_size as usize).saturating_sub(1)],
            ))),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(None),
                // Kernels before 6.11 lack the request.
                Some(libc::ENOTTY) => {
                    Ok(of(self.process)?.into_iter().find(|one| one.range.end > address))
                }
                _ => Err(error),
            },
        }
    }
}

const NOTHING: procmap_query = procmap_query {
    size: 0,
    query_flags: 0,
    query_addr: 0,
    vma_start: 0,
    vma_end: 0,
    vma_flags: 0,
    vma_page_size: 0,
    vma_offset: 0,
    inode: 0,
    dev_major: 0,
    dev_minor: 0,
    vma_name_size: 0,
    build_id_size: 0,
    vma_name_addr: 0,
    build_id_addr: 0,
};

fn mapping_of(query: &procmap_query, name: &[u8]) -> Mapping {
    let may = |flag: flags| query.vma_flags & flag as u64 != 0;
    let (name, deleted) = named(name);
    Mapping {
        range: query.vma_start..query.vma_end,
        readable: may(flags::PROCMAP_QUERY_VMA_READABLE),
        writable: may(flags::PROCMAP_QUERY_VMA_WRITABLE),
        executable: may(flags::PROCMAP_QUERY_VMA_EXECUTABLE),
        shared: may(flags::PROCMAP_QUERY_VMA_SHARED),
        offset: query.vma_offset,
        file: ((u64::from(query.dev_major) << 32) | u64::from(query.dev_minor), query.inode),
        name,
        deleted,
    }
}

/// Splits a name as the kernel shows it into the path and whether the file has been deleted.
pub(crate) fn named(name: &[u8]) -> (PathBuf, bool) {
    let kept = name.strip_suffix(b" (deleted)");
    (Path::new(OsStr::from_bytes(kept.unwrap_or(name))).to_path_buf(), kept.is_some())
}

/// Parses a line of `/proc/PID/maps`; names may contain any bytes, a newline as `\012`.
pub(crate) fn parse(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        std::str::from_utf8(word).ok()
    };
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let (begin, end) = word()?.split_once('-')?;
    let range = hexadecimal(begin)?..hexadecimal(end)?;
    let &[read, write, run, share, ..] = word()?.as_bytes() else { return None };
    let offset = hexadecimal(word()?)?;
    let (major, minor) = word()?.split_once(':')?;
    let device = (hexadecimal(major)? << 32) | hexadecimal(minor)?;
    let inode = word()?.parse().ok()?;
    let (name, deleted) = named(rest.trim_ascii_start());
    Some(Mapping {
        range,
        readable: read == b'r',
        writable: write == b'w',
        executable: run == b'x',
        shared: share == b's',
        offset,
        file: (device, inode),
        name,
        deleted,
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

    #[test]
    fn one_mapping_is_told_as_among_all() {
        let all = of(std::process::id()).expect("our own");
        let maps = Maps::open(std::process::id()).expect("our own");
        // The mappings of other tests come and go.
        let lasting = all.iter().filter(|one| one.kind() == Kind::File);
        for mapping in lasting {
            let middle = mapping.range.start + (mapping.range.end - mapping.range.start) / 2;
            assert_eq!(maps.from(middle).expect("told").as_ref(), Some(mapping));
        }
        let first = all.first().expect("some");
        assert_eq!(maps.from(0).expect("told").as_ref(), Some(first));
        assert_eq!(maps.from(u64::MAX).expect("told"), None);
    }
}
