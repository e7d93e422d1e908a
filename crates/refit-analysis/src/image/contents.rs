//! Reads a file without its debug information, which may be most of the file and which the analysis
//! does not need.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::LittleEndian as LE;
use object::elf::{FileHeader64, SHF_ALLOC};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// The bytes of a file, as far as they were read.
pub(super) struct Contents {
    /// As long as the file; zeros where nothing was read.
    pub(super) data: Vec<u8>,
    /// Ranges that were not read: ascending, disjoint.
    pub(super) left_out: Vec<Range<usize>>,
}

/// Reads the `length` bytes of `file` except for debug information.
///
/// # Errors
/// The file cannot be read, or has become shorter.
pub(super) fn read(file: &File, length: usize) -> io::Result<Contents> {
    let mut data = vec![0; length];
    let left_out = debug_information(file, length).unwrap_or_default();
    let mut begin = 0;
    for gap in &left_out {
        file.read_exact_at(&mut data[begin..gap.start], begin as u64)?;
        begin = gap.end;
    }
    file.read_exact_at(&mut data[begin..], begin as u64)?;
    Ok(Contents { data, left_out })
}

/// Returns the ranges of debug information that share no byte with anything else; `None` if the
/// headers are inconsistent.
fn debug_information(file: &File, length: usize) -> Option<Vec<Range<usize>>> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<LE>::parse(&cache).ok()?;
    let sections = header.sections(LE, &cache).ok()?;
    let (mut debug, mut other) = (Vec::new(), Vec::new());
    let range = |begin: u64, size: u64| {
        let end = usize::try_from(begin.checked_add(size)?).ok()?;
        Some(usize::try_from(begin).ok()?..end)
    };
    for section in sections.iter() {
        let Some((begin, size)) = section.file_range(LE) else { continue };
        let name = sections.section_name(LE, section).unwrap_or_default();
        let is_debug = name.starts_with(b".debug_") || name.starts_with(b".zdebug_");
        let list = match is_debug && (section.sh_flags(LE) & SHF_ALLOC).0 == 0 {
            true => &mut debug,
            false => &mut other,
        };
        list.push(range(begin, size)?);
    }
    for program in header.program_headers(LE, &cache).ok()? {
        let (begin, size) = program.file_range(LE);
        other.push(range(begin, size)?);
    }
    let table = sections.len() as u64 * u64::from(header.e_shentsize(LE));
    other.push(range(header.e_shoff(LE), table)?);
    other.push(0..size_of_val(header));
    let shared = |one: &Range<usize>| other.iter().any(|o| o.start < one.end && one.start < o.end);
    debug.retain(|one| !one.is_empty() && one.end <= length && !shared(one));
    debug.sort_unstable_by_key(|one| one.start);
    let apart = debug.windows(2).all(|two| two[0].end <= two[1].start);
    apart.then_some(debug)
}
