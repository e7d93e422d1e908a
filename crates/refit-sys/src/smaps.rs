//! The memory use of a process's mappings, and the kernel's flags for them: proc_pid_smaps(5).
//!
//! To compute this the kernel walks all pages with the process's memory locked, so it must not be
//! read often.

use std::io;

use crate::maps::{self, Mapping};

/// A mapping and its use of memory, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The mapping.
    pub mapping: Mapping,
    /// Bytes in memory.
    pub resident: u64,
    /// Bytes in memory that are not of a file: written to, or never of one.
    pub anonymous: u64,
    /// Bytes written since they were read, by this process or another.
    pub dirty: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// The kernel's flags.
    pub flags: Flags,
}

/// The kernel's flags of a mapping, words of two letters (3.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(Vec<[u8; 2]>);

impl Flags {
    /// Returns whether the mapping has a flag: `sh` shared, `gd` grows down, `lo` locked, `dc` not
    /// copied on fork, `wf` wiped on fork, `dd` not dumped, `ht` huge pages, `um`, `uw`, `ui`
    /// missing, protected and minor pages served by user space, …
    pub fn has(&self, flag: [u8; 2]) -> bool {
        self.0.contains(&flag)
    }
}

/// Returns the mappings of a process, in the order of addresses.
///
/// # Errors
/// As [`maps::of`].
pub fn of(process: u32) -> io::Result<Vec<Usage>> {
    let text = std::fs::read(format!("/proc/{process}/smaps"))?;
    parse(&text).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

fn parse(text: &[u8]) -> Option<Vec<Usage>> {
    let mut found: Vec<Usage> = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let word_end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (name, rest) = line.split_at(word_end);
        let Some(name) = name.strip_suffix(b":") else {
            let mapping = maps::parse(line)?;
            let (resident, anonymous, dirty, swapped) = (0, 0, 0, 0);
            let flags = Flags::default();
            found.push(Usage { mapping, resident, anonymous, dirty, swapped, flags });
            continue;
        };
        let one = found.last_mut()?;
        let rest = std::str::from_utf8(rest).ok()?.trim();
        let bytes = || Some(rest.strip_suffix(" kB")?.parse::<u64>().ok()? << 10);
        match name {
            b"Rss" => one.resident = bytes()?,
            b"Anonymous" => one.anonymous = bytes()?,
            b"Shared_Dirty" | b"Private_Dirty" => one.dirty += bytes()?,
            b"Swap" => one.swapped = bytes()?,
            b"VmFlags" => {
                let words = rest.split_ascii_whitespace();
                one.flags.0 = words.filter_map(|word| word.as_bytes().try_into().ok()).collect();
            }
            _ => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_flags_belong_to_the_line_above_them() {
        let text = b"1000-3000 rw-p 00000000 00:00 0                          [heap]\n\
            Size:                  8 kB\nRss:                   8 kB\nShared_Dirty:          0 kB\n\
            Private_Dirty:         4 kB\nAnonymous:             4 kB\nSwap:                  0 kB\n\
            VmFlags: rd wr mr um \n4000-5000 r--s 00000000 00:01 7                          /a\n\
            Swap:                  4 kB\nVmFlags: sh\n";
        let found = parse(text).expect("two mappings");
        let [heap, file] = &found[..] else { panic!("{found:?}") };
        assert_eq!((heap.resident, heap.dirty, heap.anonymous), (8192, 4096, 4096));
        assert!(heap.flags.has(*b"um") && !heap.flags.has(*b"sh"));
        assert_eq!((file.swapped, file.resident), (4096, 0));
        assert!(file.flags.has(*b"sh") && file.mapping.shared);
        assert_eq!(parse(b"Rss: 4 kB\n"), None);
    }
}
