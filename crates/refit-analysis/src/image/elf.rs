//! Checked headers of an ELF file, and its sections by name.

use std::path::Path;

use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable};

use super::error::OpenError;

/// An ELF file for x86-64 whose headers are consistent.
pub(super) struct Elf<'data> {
    pub(super) data: &'data [u8],
    pub(super) header: &'data FileHeader64<LE>,
    pub(super) programs: &'data [ProgramHeader64<LE>],
    /// Sections; empty where the file has none that can be read.
    pub(super) sections: SectionTable<'data, FileHeader64<LE>>,
}

impl<'data> Elf<'data> {
    /// Checks the headers of `data`.
    pub(super) fn parse(path: &Path, data: &'data [u8]) -> Result<Self, OpenError> {
        let path = || path.to_owned();
        let malformed = |why: &str| OpenError::Malformed { path: path(), why: why.to_owned() };
        if !data.starts_with(&elf::ELFMAG) {
            return Err(malformed("it does not begin with an ELF header"));
        }
        let machine = |machine: &str| OpenError::Machine { path: path(), machine: machine.into() };
        match (data.get(4), data.get(5)) {
            (Some(2), Some(1)) => {}
            (Some(1), _) => return Err(machine("a 32-bit processor")),
            (Some(2), Some(2)) => return Err(machine("a big-endian processor")),
            _ => return Err(malformed("its identification is damaged")),
        }
        let header = FileHeader64::<LE>::parse(data).map_err(|e| malformed(&e.to_string()))?;
        let which = header.e_machine(LE);
        if which != elf::EM_X86_64 {
            return Err(machine(&format!("machine {}", which.0)));
        }
        match header.e_type(LE) {
            elf::ET_EXEC | elf::ET_DYN => {}
            elf::ET_REL => return Err(OpenError::Kind { path: path(), what: "an object file" }),
            elf::ET_CORE => return Err(OpenError::Kind { path: path(), what: "a core dump" }),
            _ => return Err(malformed("its type is unknown")),
        }
        let programs = header.program_headers(LE, data).map_err(|e| malformed(&e.to_string()))?;
        let sections = header.sections(LE, data).unwrap_or_default();
        Ok(Self { data, header, programs, sections })
    }

    /// Returns a section by its name, with its bytes.
    pub(super) fn section(&self, name: &str) -> Option<(&'data SectionHeader64<LE>, &'data [u8])> {
        let (_, section) = self.sections.section_by_name(LE, name.as_bytes())?;
        Some((section, section.data(LE, self.data).ok()?))
    }

    /// Returns the name of a section; empty where it has none that can be read.
    pub(super) fn name(&self, section: &SectionHeader64<LE>) -> &'data str {
        let name = self.sections.section_name(LE, section).unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }
}
