//! Debug symbols that a distribution keeps apart from the file: by build id, or by the name in `.gnu_debuglink`.

use std::path::{Path, PathBuf};

use object::elf as constants;

use super::elf::Elf;
use super::symbols::{self, Symbol};

/// Where distributions keep them.
const ROOT: &str = "/usr/lib/debug";

/// Symbols of functions from the separate file, if there is one that belongs to this file.
pub(super) fn symbols(path: &Path, build_id: &[u8], elf: &Elf) -> Vec<Symbol> {
    for candidate in candidates(path, build_id, elf) {
        let Ok(meta) = std::fs::metadata(&candidate) else { continue };
        if !meta.is_file() || meta.len() > super::LARGEST {
            continue;
        }
        let Ok(data) = std::fs::read(&candidate) else { continue };
        let Ok(separate) = Elf::parse(&candidate, &data) else { continue };
        // Only what was made together has the addresses of this file.
        if !build_id.is_empty() && note(&separate).is_some_and(|id| id == build_id) {
            return symbols::table(&separate, constants::SHT_SYMTAB);
        }
    }
    Vec::new()
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
