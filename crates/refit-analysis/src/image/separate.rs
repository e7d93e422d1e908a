//! Debug symbols that a distribution ships separately: found by build id, or by the name in
//! `.gnu_debuglink`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::elf::{self as constants, SectionHeader64};
use object::read::elf::SectionHeader;

use super::Image;
use super::elf::Elf;
use super::symbols::{self, Symbol};

/// Directory in which distributions install them.
pub(crate) const DEBUG_ROOT: &str = "/usr/lib/debug";

/// Reads symbols of functions from the separate file, if one belongs to this file.
pub(super) fn symbols(path: &Path, build_id: &[u8], elf: &Elf) -> Vec<Symbol> {
    let table = |_: &Path, separate: &Elf| symbols::table(separate, constants::SHT_SYMTAB);
    read(path, build_id, elf, table).unwrap_or_default()
}

impl Image {
    /// Returns the path of the file that has debug information for this one, itself or a separate
    /// one, and the path of the file in which it shares some with others (`.gnu_debugaltlink`).
    pub fn debug_file(&self) -> Option<(PathBuf, Option<PathBuf>)> {
        lines(self)
    }
}

/// Implements [`Image::debug_file`].
fn lines(image: &Image) -> Option<(PathBuf, Option<PathBuf>)> {
    // The image was read without debug information.
    let data = std::fs::read(image.path()).ok()?;
    let elf = Elf::parse(image.path(), &data).ok()?;
    let found = |path: &Path, elf: &Elf| {
        unpacks_well(elf).then(|| (path.to_owned(), alternative(path, elf)))
    };
    if elf.section(".debug_info").is_some() {
        return found(image.path(), &elf);
    }
    read(image.path(), image.build_id(), &elf, found).flatten()
}

/// Whether no section claims an uncompressed size that its compressed bytes cannot have: the reader
/// allocates what the section claims.
fn unpacks_well(elf: &Elf) -> bool {
    elf.sections.iter().all(|section| {
        let Some((packed, unpacked)) = packed(elf, section) else { return true };
        unpacked <= packed.saturating_mul(MOST_UNPACKED)
    })
}

/// Largest ratio of deflate (zlib's technical details); zstd stays below it for the content of
/// these sections.
pub(crate) const MOST_UNPACKED: u64 = 1032;

/// Returns the bytes of a compressed section and the uncompressed size that it claims; `None` if it
/// is not compressed.
fn packed(elf: &Elf, section: &SectionHeader64<LE>) -> Option<(u64, u64)> {
    if let Ok(Some((header, _, size))) = section.compression(LE, elf.data) {
        return Some((size, header.ch_size.get(LE)));
    }
    // The format that precedes ELF's own.
    let old = elf.sections.section_name(LE, section).is_ok_and(|name| name.starts_with(b".zdebug"));
    let bytes = section.data(LE, elf.data).ok().filter(|_| old)?;
    let (size, bytes) = bytes.strip_prefix(b"ZLIB")?.split_first_chunk()?;
    Some((bytes.len() as u64, u64::from_be_bytes(*size)))
}

/// Calls `look` on the separate file, if one belongs to this file.
fn read<T>(
    path: &Path,
    build_id: &[u8],
    elf: &Elf,
    look: impl FnOnce(&Path, &Elf) -> T,
) -> Option<T> {
    for candidate in candidates(path, build_id, elf) {
        let Ok(meta) = std::fs::metadata(&candidate) else { continue };
        if !meta.is_file() || meta.len() > super::LARGEST {
            continue;
        }
        let Ok(data) = std::fs::read(&candidate) else { continue };
        let Ok(separate) = Elf::parse(&candidate, &data) else { continue };
        // Only files of the same build have the same addresses.
        if !build_id.is_empty() && note(&separate).is_some_and(|id| id == build_id) {
            return Some(look(&candidate, &separate));
        }
    }
    None
}

/// Returns the path of the file that `.gnu_debugaltlink` names: a path, a zero, a build id.
fn alternative(path: &Path, elf: &Elf) -> Option<PathBuf> {
    let (_, link) = elf.section(".gnu_debugaltlink")?;
    let name = link.split(|byte| *byte == 0).next()?;
    let name = Path::new(OsStr::from_bytes(name));
    // A relative path starts at the folder of the file.
    let found = path.parent()?.join(name);
    let there = std::fs::metadata(&found).ok()?;
    let bytes = (there.is_file() && there.len() <= super::LARGEST).then(|| std::fs::read(&found));
    let bytes = bytes?.ok()?;
    Elf::parse(&found, &bytes).is_ok_and(|elf| unpacks_well(&elf)).then_some(found)
}

fn candidates(path: &Path, build_id: &[u8], elf: &Elf) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let [first, rest @ ..] = build_id {
        let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
        candidates.push(PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{first:02x}/{rest}.debug")));
    }
    let Some((_, link)) = elf.section(".gnu_debuglink") else { return candidates };
    let name: Vec<u8> = link.iter().copied().take_while(|b| *b != 0).collect();
    let Ok(name) = String::from_utf8(name) else { return candidates };
    // A bare name only: a path could lead anywhere.
    if name.is_empty() || name.contains('/') {
        return candidates;
    }
    if let Some(directory) = path.canonicalize().ok().as_deref().and_then(Path::parent) {
        candidates.push(directory.join(".debug").join(&name));
        let inside = directory.strip_prefix("/").unwrap_or(directory);
        candidates.push(Path::new(DEBUG_ROOT).join(inside).join(&name));
    }
    candidates
}

/// Returns the build id of the separate file; it is in a section, since the segments of such a file
/// have no bytes.
fn note(elf: &Elf) -> Option<Vec<u8>> {
    let (_, bytes) = elf.section(".note.gnu.build-id")?;
    // Sizes of name and description, type, "GNU\0", description.
    bytes.get(16..).map(<[u8]>::to_vec)
}
