//! Debug symbols that a distribution keeps apart from the file: by build id, or by the name in `.gnu_debuglink`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::elf::{self as constants, SectionHeader64};
use object::read::elf::SectionHeader;

use super::Image;
use super::elf::Elf;
use super::symbols::{self, Symbol};

/// Where distributions keep them.
const ROOT: &str = "/usr/lib/debug";

/// Symbols of functions from the separate file, if there is one that belongs to this file.
pub(super) fn symbols(path: &Path, build_id: &[u8], elf: &Elf) -> Vec<Symbol> {
    let table = |_: &Path, separate: &Elf| symbols::table(separate, constants::SHT_SYMTAB);
    read(path, build_id, elf, table).unwrap_or_default()
}

impl Image {
    /// The file that has debug information for this one, itself or a separate one, and the file that this one shares
    /// some of it with others in (`.gnu_debugaltlink`).
    pub fn debug_file(&self) -> Option<(PathBuf, Option<PathBuf>)> {
        lines(self)
    }
}

/// The file with debug information for `image`, and the one that it shares some of it with others in.
fn lines(image: &Image) -> Option<(PathBuf, Option<PathBuf>)> {
    // The image is without what is looked for.
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

/// Whether no section says that it is larger without compression than it can be: who unpacks it makes room for what it says.
fn unpacks_well(elf: &Elf) -> bool {
    elf.sections.iter().all(|section| {
        let Some((packed, unpacked)) = packed(elf, section) else { return true };
        unpacked <= packed.saturating_mul(TIMES)
    })
}

/// How much longer deflate makes anything, at the most (zlib's technical details); zstd does not go as far with what is in these.
const TIMES: u64 = 1032;

/// Bytes of a compressed section, and how many they say that they are without compression; `None` if it is not compressed.
fn packed(elf: &Elf, section: &SectionHeader64<LE>) -> Option<(u64, u64)> {
    if let Ok(Some((header, _, size))) = section.compression(LE, elf.data) {
        return Some((size, header.ch_size.get(LE)));
    }
    // As it was done before ELF knew of it.
    let old = elf.sections.section_name(LE, section).is_ok_and(|name| name.starts_with(b".zdebug"));
    let bytes = section.data(LE, elf.data).ok().filter(|_| old)?;
    let (size, bytes) = bytes.strip_prefix(b"ZLIB")?.split_first_chunk()?;
    Some((bytes.len() as u64, u64::from_be_bytes(*size)))
}

/// What `look` finds in the separate file, if there is one that belongs to this file.
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
        // Only what was made together has the addresses of this file.
        if !build_id.is_empty() && note(&separate).is_some_and(|id| id == build_id) {
            return Some(look(&candidate, &separate));
        }
    }
    None
}

/// The file that `.gnu_debugaltlink` names: its path, a zero, its build id.
fn alternative(path: &Path, elf: &Elf) -> Option<PathBuf> {
    let (_, link) = elf.section(".gnu_debugaltlink")?;
    let name = link.split(|byte| *byte == 0).next()?;
    let name = Path::new(OsStr::from_bytes(name));
    // Seen from the folder of the file; what is absolute stays so.
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
        candidates.push(PathBuf::from(format!("{ROOT}/.build-id/{first:02x}/{rest}.debug")));
    }
    let Some((_, link)) = elf.section(".gnu_debuglink") else { return candidates };
    let name: Vec<u8> = link.iter().copied().take_while(|b| *b != 0).collect();
    let Ok(name) = String::from_utf8(name) else { return candidates };
    // A name, not a way to somewhere else.
    if name.is_empty() || name.contains('/') {
        return candidates;
    }
    if let Some(directory) = path.canonicalize().ok().as_deref().and_then(Path::parent) {
        candidates.push(directory.join(".debug").join(&name));
        let inside = directory.strip_prefix("/").unwrap_or(directory);
        candidates.push(Path::new(ROOT).join(inside).join(&name));
    }
    candidates
}

/// The build id of the separate file, whose segments have no bytes: it is in a section.
fn note(elf: &Elf) -> Option<Vec<u8>> {
    let (_, bytes) = elf.section(".note.gnu.build-id")?;
    // Sizes of name and description, type, "GNU\0", description.
    bytes.get(16..).map(<[u8]>::to_vec)
}
