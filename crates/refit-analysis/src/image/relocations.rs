//! Addresses that the loader stores: those of this file, and those of functions of other files.

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{Rela, SectionHeader, Sym};

use super::elf::Elf;
use super::names::Names;

/// The places that the loader fills; each list ascends by place.
#[derive(Debug, Default)]
pub(super) struct Relocations {
    /// Places, and the addresses of this file that are stored there.
    pub(super) pointers: Vec<(u64, u64)>,
    /// All stored addresses, ascending.
    pub(super) stored: Vec<u64>,
    /// Places, and the names that other files have to provide.
    pub(super) imports: Vec<(u64, Box<str>)>,
    /// Places, and the resolvers that the loader calls to obtain the values to store there.
    pub(super) picked: Vec<(u64, u64)>,
    /// All resolvers, ascending.
    pub(super) resolvers: Vec<u64>,
}

/// Reads all relocations that a loader would apply.
pub(super) fn read(elf: &Elf) -> Relocations {
    let mut found = Relocations::default();
    let mut names = Names::of(elf);
    // Each relocation has bytes of its own: linkers make no sections that share them.
    let mut left = elf.data.len() / size_of::<elf::Rela64<LE>>();
    for section in elf.sections.iter() {
        // Sections without an address are for linkers and debuggers.
        if section.sh_addr(LE) == 0 {
            continue;
        }
        let Ok(Some((relas, link))) = section.rela(LE, elf.data) else { continue };
        let symbols = elf.sections.symbol_table_by_index(LE, elf.data, link).ok();
        for rela in &relas[..relas.len().min(left)] {
            left -= 1;
            let (place, addend) = (rela.r_offset(LE), rela.r_addend(LE));
            let symbol = || {
                let table = symbols.as_ref()?;
                Some((table, table.symbol(rela.symbol(LE, false)?).ok()?))
            };
            match rela.r_type(LE, false) {
                elf::R_X86_64_RELATIVE => found.pointers.push((place, addend as u64)),
                elf::R_X86_64_IRELATIVE => {
                    found.resolvers.push(addend as u64);
                    found.picked.push((place, addend as u64));
                }
                elf::R_X86_64_64 => {
                    if let Some((_, symbol)) = symbol().filter(|(_, s)| !s.is_undefined(LE)) {
                        let value = symbol.st_value(LE).wrapping_add(addend as u64);
                        found.pointers.push((place, value));
                    }
                }
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => {
                    let name = || symbol().and_then(|(table, s)| table.symbol_name(LE, s).ok());
                    if let Some(name) = names.read(name) {
                        found.imports.push((place, String::from_utf8_lossy(name).into()));
                    }
                }
                _ => {}
            }
        }
    }
    found.pointers.sort_unstable();
    found.pointers.dedup_by_key(|p| p.0);
    found.stored = found.pointers.iter().map(|p| p.1).collect();
    found.stored.sort_unstable();
    found.imports.sort_unstable();
    found.imports.dedup_by(|a, b| a.0 == b.0);
    found.picked.sort_unstable();
    found.resolvers.sort_unstable();
    found.resolvers.dedup();
    found
}
