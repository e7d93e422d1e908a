//! Checks of a plugin file before the dynamic linker sees it: constructors run inside `dlopen`, so
//! a later check is too late, and the linker trusts the file.
//!
//! First the file is checked as an ELF library: every part that the linker follows blindly has to
//! lie within the file. Then its note is checked. Both are read from the bytes that are loaded
//! afterwards. This detects files that are truncated, damaged, or not built for this host; it
//! cannot detect malice: loaded code may do whatever the host may.

use object::Endianness;
use object::elf;
use object::read::elf::{
    Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _,
};

use super::error::Obstacle;
use super::note::{self, Manifest, TARGET, Unreadable};

type Header = elf::FileHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;

/// The maximum memory of a plugin.
const MAX_MEMORY: u64 = 1 << 30;

/// A file that has passed the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The contents of its note.
    pub manifest: Manifest,
    /// The bytes of the note, for a comparison with memory.
    pub(crate) note: Vec<u8>,
    /// The linker's build id; a hash of the file if there is none.
    pub build_id: String,
    /// The memory that it will take, in bytes.
    pub mapped: u64,
}

fn damaged(what: impl Into<String>) -> Obstacle {
    Obstacle::Damaged(what.into())
}

/// Checks the bytes of a file.
///
/// # Errors
/// The first fault.
pub fn check(bytes: &[u8]) -> Result<Checked, Obstacle> {
    let header = Header::parse(bytes).map_err(|e| Obstacle::NotALibrary(e.to_string()))?;
    let endian = header.endian().map_err(|e| Obstacle::NotALibrary(e.to_string()))?;
    if header.e_type.get(endian) != elf::ET_DYN {
        return Err(Obstacle::NotALibrary("it is an executable, or an object file".into()));
    }
    let (machine, native) = machine();
    if header.e_machine.get(endian) != machine || endian != native {
        let has = format!("ELF machine {}", header.e_machine.get(endian).0);
        return Err(Obstacle::Target { has, wants: TARGET.into() });
    }
    let segments = header.program_headers(endian, bytes).map_err(|e| damaged(e.to_string()))?;
    let library = Library { bytes, endian, segments };
    library.sections(header)?;
    let mapped = library.segments()?;
    library.dynamic()?;
    let (content, build_id) = library.notes()?;
    let content = content.ok_or(Obstacle::NoNote)?;
    let manifest = note::read(content).map_err(|unreadable| match unreadable {
        Unreadable::Format(has) => Obstacle::Format { has, wants: super::foreign::FORMAT },
        Unreadable::Malformed(what) => Obstacle::BadNote(what),
    })?;
    if manifest.target != TARGET {
        return Err(Obstacle::Target { has: manifest.target, wants: TARGET.into() });
    }
    if !manifest.unwinds {
        return Err(Obstacle::Aborts);
    }
    let build_id = build_id.unwrap_or_else(|| {
        format!("{:016x}{:x}", crate::fnv::fnv1a(bytes, crate::fnv::FNV), bytes.len())
    });
    Ok(Checked { manifest, note: content.to_vec(), build_id, mapped })
}

/// Returns this machine and its byte order in terms of ELF.
fn machine() -> (elf::Machine, Endianness) {
    let machine = if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64
    } else if cfg!(target_arch = "riscv64") {
        elf::EM_RISCV
    } else {
        elf::EM_X86_64
    };
    (machine, if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little })
}

struct Library<'a> {
    bytes: &'a [u8],
    endian: Endianness,
    segments: &'a [Segment],
}

impl<'a> Library<'a> {
    fn loaded(&self) -> impl Iterator<Item = &'a Segment> + '_ {
        self.segments.iter().filter(|s| s.p_type(self.endian) == elf::PT_LOAD)
    }

    /// Checks that the section table, which linkers put at the end, is present, so that the file is
    /// complete. A stripped file may have none.
    fn sections(&self, header: &Header) -> Result<(), Obstacle> {
        let sections = header.section_headers(self.endian, self.bytes);
        let sections = sections.map_err(|e| damaged(e.to_string()))?;
        let outside = |section: &elf::SectionHeader64<Endianness>| {
            section.data(self.endian, self.bytes).is_err()
        };
        if sections.iter().any(outside) {
            return Err(damaged("a section lies outside of it"));
        }
        Ok(())
    }

    /// Checks that segments lie within the file, in order, and do not overlap. Returns the memory
    /// that they take together.
    fn segments(&self) -> Result<u64, Obstacle> {
        let (endian, length) = (self.endian, self.bytes.len() as u64);
        for segment in self.segments {
            let end = segment.p_offset(endian).checked_add(segment.p_filesz(endian));
            if end.is_none_or(|end| end > length) {
                let what = format!("a segment ends at {end:?}, the file at {length}");
                return Err(damaged(what));
            }
        }
        let (mut first, mut end) = (None, 0);
        for segment in self.loaded() {
            let (at, file, memory) =
                (segment.p_vaddr(endian), segment.p_filesz(endian), segment.p_memsz(endian));
            let align = segment.p_align(endian);
            let apart = first.is_none() || at >= end;
            let congruent = align.is_power_of_two()
                && at % align.min(4096) == segment.p_offset(endian) % align.min(4096);
            let after = at.checked_add(memory).filter(|_| file <= memory);
            let Some(after) = after.filter(|_| apart && congruent && align <= MAX_MEMORY) else {
                return Err(damaged("its segments overlap, or are out of order"));
            };
            first.get_or_insert(at);
            end = after;
        }
        let Some(first) = first else { return Err(damaged("it has no loadable segment")) };
        let mapped = (end - first).next_multiple_of(4096);
        if mapped > MAX_MEMORY {
            let (what, limit) = ("the memory that it needs", MAX_MEMORY);
            return Err(Obstacle::TooLarge { what, bytes: mapped, limit });
        }
        Ok(mapped)
    }

    /// Returns whether these addresses are in memory that comes from the file.
    fn holds(&self, at: u64, length: u64) -> bool {
        let endian = self.endian;
        let within = |s: &Segment| {
            let (start, size) = (s.p_vaddr(endian), s.p_memsz(endian));
            at >= start && at.checked_add(length).is_some_and(|end| end <= start + size)
        };
        self.loaded().any(within)
    }

    /// Returns the bytes of the file at these addresses.
    fn at(&self, at: u64, length: u64) -> Option<&'a [u8]> {
        let read = |s: &Segment| s.data_range(self.endian, self.bytes, at, length).ok().flatten();
        self.loaded().find_map(read)
    }

    /// Checks what the linker follows: tables lie within the file, and relocations change only
    /// writable memory.
    fn dynamic(&self) -> Result<(), Obstacle> {
        let endian = self.endian;
        let entries = self.segments.iter().find_map(|s| s.dynamic(endian, self.bytes).transpose());
        let entries = entries.ok_or_else(|| damaged("it has no dynamic section"))?;
        let entries = entries.map_err(|e| damaged(e.to_string()))?;
        if !entries.iter().any(|entry| entry.tag(endian) == elf::DT_NULL) {
            return Err(damaged("its dynamic section has no end"));
        }
        let before_end = || entries.iter().take_while(|entry| entry.tag(endian) != elf::DT_NULL);
        let value = |tag| before_end().find(|e| e.tag(endian) == tag).map(|e| e.val(endian));
        let tables = [
            ("symbols", elf::DT_SYMTAB, None, 24),
            ("strings", elf::DT_STRTAB, Some(elf::DT_STRSZ), 1),
            ("relocations", elf::DT_RELA, Some(elf::DT_RELASZ), 24),
            ("relocations of calls", elf::DT_JMPREL, Some(elf::DT_PLTRELSZ), 24),
            ("constructors", elf::DT_INIT_ARRAY, Some(elf::DT_INIT_ARRAYSZ), 8),
            ("destructors", elf::DT_FINI_ARRAY, Some(elf::DT_FINI_ARRAYSZ), 8),
            ("hashes", elf::DT_GNU_HASH, None, 16),
            ("versions", elf::DT_VERSYM, None, 2),
            ("version needs", elf::DT_VERNEED, None, 16),
            ("constructor", elf::DT_INIT, None, 1),
            ("destructor", elf::DT_FINI, None, 1),
        ];
        for (what, tag, size, least) in tables {
            let Some(at) = value(tag) else { continue };
            let length = match size {
                Some(size) => value(size).unwrap_or(u64::MAX),
                None => least,
            };
            if !length.is_multiple_of(least) || !self.holds(at, length) {
                return Err(damaged(format!("its {what} lie outside of it")));
            }
        }
        if value(elf::DT_SYMTAB).is_none() || value(elf::DT_STRTAB).is_none() {
            return Err(damaged("it has no symbols"));
        }
        let strings = value(elf::DT_STRSZ).unwrap_or(0);
        let names = before_end().filter(|e| e.tag(endian) == elf::DT_NEEDED);
        if names.map(|entry| entry.val(endian)).any(|at| at >= strings) {
            return Err(damaged("the name of a library it needs lies outside of it"));
        }
        for (at, size) in [(elf::DT_RELA, elf::DT_RELASZ), (elf::DT_JMPREL, elf::DT_PLTRELSZ)] {
            if let (Some(at), Some(size)) = (value(at), value(size)) {
                self.relocations(at, size)?;
            }
        }
        Ok(())
    }

    fn relocations(&self, at: u64, size: u64) -> Result<(), Obstacle> {
        let outside = || damaged("its relocations lie outside of it");
        let bytes = self.at(at, size).ok_or_else(outside)?;
        let count = bytes.len() / size_of::<elf::Rela64<Endianness>>();
        let (table, _) = object::slice_from_bytes::<elf::Rela64<Endianness>>(bytes, count)
            .map_err(|()| outside())?;
        let writable = |at: u64| {
            let mut segments =
                self.loaded().filter(|s| s.p_flags(self.endian).0 & elf::PF_W.0 != 0);
            segments.any(|s| {
                let start = s.p_vaddr(self.endian);
                at >= start && at.saturating_add(8) <= start + s.p_memsz(self.endian)
            })
        };
        if table.iter().any(|rela| !writable(rela.r_offset(self.endian))) {
            return Err(damaged("a relocation changes memory outside of the library"));
        }
        Ok(())
    }

    /// Returns the contents of the refit note, and the build id.
    fn notes(&self) -> Result<(Option<&'a [u8]>, Option<String>), Obstacle> {
        let (mut content, mut build_id) = (None, None);
        for segment in self.segments {
            let notes = segment.notes(self.endian, self.bytes);
            let Some(mut notes) = notes.map_err(|e| damaged(e.to_string()))? else { continue };
            // The note after an unreadable one cannot be found, so the segment has no more notes.
            while let Ok(Some(note)) = notes.next() {
                if note.name() == note::OWNER && note.n_type(self.endian).0 == note::KIND {
                    content.get_or_insert(note.desc());
                } else if note.name() == b"GNU"
                    && note.n_type(self.endian).0 == 3
                    && !note.desc().is_empty()
                {
                    let hex = note.desc().iter().take(32).map(|byte| format!("{byte:02x}"));
                    build_id.get_or_insert(hex.collect());
                }
            }
        }
        Ok((content, build_id))
    }
}
