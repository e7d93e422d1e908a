//! Assembles an [`Image`] from a file: segments, ranges of code, and the tables of every source.

use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};

use super::elf::Elf;
use super::error::OpenError;
use super::go::Go;
use super::{Code, Image, Kind, LARGEST, Segment, Sequence};
use super::{contents, frames, relocations, separate, sequences, symbols, tracepoints};

impl Image {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no program or library for x86-64.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Read { path: path.to_owned(), source };
        // Opens without blocking: a pipe would block until somebody writes to it.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = std::fs::File::options()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)
            .map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(OpenError::Kind { path: path.to_owned(), what: "not a regular file" });
        }
        if meta.len() > LARGEST {
            let (path, size) = (path.to_owned(), meta.len());
            return Err(OpenError::TooLarge { path, size, limit: LARGEST });
        }
        let contents = contents::read(&file, meta.len() as usize).map_err(failed)?;
        let image = Self::parse(path, contents.data)?;
        Ok(Self { left_out: contents.left_out, ..image })
    }

    /// Reads `data` as the contents of the file at `path`.
    ///
    /// # Errors
    ///
    /// The data is no program or library for x86-64.
    pub fn parse(path: &Path, data: Vec<u8>) -> Result<Self, OpenError> {
        read(path, data)
    }
}

/// Reads a whole file.
fn read(path: &Path, data: Vec<u8>) -> Result<Image, OpenError> {
    let elf = Elf::parse(path, &data)?;
    let segments = segments(&elf);
    if !segments.iter().any(|s| s.executable) {
        let why = "it has no executable code".to_owned();
        return Err(OpenError::Malformed { path: path.to_owned(), why });
    }
    let mut image = Image {
        path: path.to_owned(),
        data: Vec::new(),
        left_out: Vec::new(),
        kind: kind(&elf),
        build_id: build_id(&elf),
        constant: constant(&elf),
        code: code(&elf, &segments),
        segments,
        starts: Vec::new(),
        symbols: symbols::read(&elf),
        frames: frames::read(&elf),
        go: Go::read(&elf),
        relocations: relocations::read(&elf),
        sequences: Vec::new(),
        tracepoints: tracepoints::read(&elf),
        distance_tables: OnceLock::new(),
    };
    let arrays = initialisers(&elf);
    let entry = elf.header.e_entry(LE);
    let descriptors = sequences::descriptors(&elf);
    if image.symbols.iter().all(|s| s.dynamic) {
        image.symbols.extend(separate::symbols(path, &image.build_id, &elf));
    }
    image.data = data;
    image.starts = arrays.iter().filter_map(|&at| image.pointer(at)).collect();
    image.starts.push(entry);
    image.sequences = descriptors.iter().filter_map(|&at| sequence(&image, at)).collect();
    image.sequences.sort_unstable_by_key(|one| one.addresses.start);
    drop_what_is_not_code(&mut image);
    if matches!(image.kind, Kind::Fixed | Kind::Static) {
        stored_without_relocations(&mut image);
    }
    Ok(image)
}

/// Drops symbols, frame descriptions, starts, Go's functions and resolvers outside of code. Also
/// drops the frame description that all stubs share, since it describes no function.
fn drop_what_is_not_code(image: &mut Image) {
    let code = std::mem::take(&mut image.code);
    let place = |address: u64| {
        let next = code.partition_point(|c| c.addresses.start <= address);
        code[..next].last().filter(|c| c.addresses.contains(&address))
    };
    image.symbols.retain(|s| place(s.address).is_some());
    image.symbols.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    image.frames.list.retain(|f| {
        place(f.addresses.start)
            .is_some_and(|c| c.stub.is_none() && f.addresses.end <= c.addresses.end)
    });
    image.starts.retain(|&s| place(s).is_some());
    image.go.functions.retain(|(s, _)| place(*s).is_some());
    image.relocations.resolvers.retain(|&s| place(s).is_some());
    image.starts.sort_unstable();
    image.starts.dedup();
    image.code = code;
}

/// Adds stored addresses that no relocation marks. At fixed addresses the linker stores addresses
/// as plain numbers, so every word that looks like an address of code counts.
fn stored_without_relocations(image: &mut Image) {
    let mut found = Vec::new();
    for segment in image.segments.iter().filter(|s| !s.executable) {
        let Some(bytes) = image.bytes_from(segment.addresses.start) else { continue };
        let skip = (segment.addresses.start.wrapping_neg() & 7) as usize;
        let words = bytes.get(skip..).unwrap_or_default().as_chunks::<8>().0;
        let values = words.iter().map(|word| u64::from_le_bytes(*word));
        found.extend(values.filter(|value| image.code_at(*value).is_some()));
    }
    let stored = &mut image.relocations.stored;
    stored.extend(found);
    stored.sort_unstable();
    stored.dedup();
}

/// Reads the descriptor of a restartable sequence; `None` if the kernel would refuse it.
fn sequence(image: &Image, at: u64) -> Option<Sequence> {
    let word = |offset: u64| image.pointer(at.checked_add(offset)?);
    let (start, length, abort) = (word(8)?, word(16)?, word(24)?);
    let code = image.code_at(start)?;
    let addresses = start..start.checked_add(length)?;
    let fits = addresses.end <= code.addresses.end && image.code_at(abort).is_some();
    let version = image.offset32(at)?;
    let sound = version == 0 && length > 0 && fits && !addresses.contains(&abort);
    sound.then_some(Sequence { addresses, abort })
}

fn segments(elf: &Elf) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut loads: Vec<_> = elf.programs.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD).collect();
    loads.sort_by_key(|p| p.p_vaddr(LE));
    for program in loads {
        let (offset, start) = (program.p_offset(LE), program.p_vaddr(LE));
        // Zeroed memory after the bytes of the file holds neither code nor tables.
        let size = program.p_filesz(LE).min(program.p_memsz(LE));
        let there = (elf.data.len() as u64).saturating_sub(offset);
        let end = start.saturating_add(size.min(there));
        // Linkers make no overlapping segments; of those that overlap the first one counts.
        let free = segments.last().map_or(0, |s| s.addresses.end);
        if start >= end || start < free {
            continue;
        }
        let flags = program.p_flags(LE);
        segments.push(Segment {
            addresses: start..end,
            offset,
            executable: flags.contains(elf::PF_X),
            writable: flags.contains(elf::PF_W),
        });
    }
    segments
}

fn constant(elf: &Elf) -> Vec<Range<u64>> {
    let relro = elf.programs.iter().filter(|p| p.p_type(LE) == elf::PT_GNU_RELRO);
    relro.map(|p| p.p_vaddr(LE)..p.p_vaddr(LE).saturating_add(p.p_memsz(LE))).collect()
}

/// Returns the executable sections, or the executable segments if there are no sections.
fn code(elf: &Elf, segments: &[Segment]) -> Vec<Code> {
    let mut code: Vec<Code> = Vec::new();
    for section in elf.sections.iter() {
        let flags = section.sh_flags(LE);
        let in_file = section.sh_type(LE) != elf::SHT_NOBITS;
        if !flags.contains(elf::SHF_EXECINSTR) || !flags.contains(elf::SHF_ALLOC) || !in_file {
            continue;
        }
        let start = section.sh_addr(LE);
        let end = start.saturating_add(section.sh_size(LE));
        let within =
            |s: &&Segment| s.executable && s.addresses.start <= start && end <= s.addresses.end;
        if start < end && segments.iter().find(within).is_some() {
            code.push(Code { addresses: start..end, stub: stub_size(elf.name(section)) });
        }
    }
    if code.is_empty() {
        let executable = segments.iter().filter(|s| s.executable);
        code.extend(executable.map(|s| Code { addresses: s.addresses.clone(), stub: None }));
    }
    code.sort_by_key(|c| c.addresses.start);
    let mut free = 0;
    code.retain(|c| {
        let fits = c.addresses.start >= free;
        free = free.max(c.addresses.end);
        fits
    });
    code
}

fn stub_size(section: &str) -> Option<u64> {
    match section {
        ".plt" | ".plt.sec" | ".iplt" | ".plt.bnd" => Some(16),
        ".plt.got" => Some(8),
        _ => None,
    }
}

fn kind(elf: &Elf) -> Kind {
    let interpreter = elf.programs.iter().any(|p| p.p_type(LE) == elf::PT_INTERP);
    let entries = elf.programs.iter().filter_map(|p| p.dynamic(LE, elf.data).ok().flatten());
    let (mut pie, mut named, mut dynamic) = (false, false, false);
    for entry in entries.flatten() {
        dynamic = true;
        let value: u64 = entry.d_val(LE);
        match entry.d_tag(LE) {
            elf::DT_FLAGS_1 => pie = value & 0x0800_0000 != 0,
            elf::DT_SONAME => named = true,
            _ => {}
        }
    }
    let fixed = elf.header.e_type(LE) == elf::ET_EXEC;
    match (fixed, interpreter) {
        (true, true) => Kind::Fixed,
        (true, false) if dynamic => Kind::Fixed,
        (true, false) => Kind::Static,
        (false, true) if pie || !named => Kind::Pie,
        (false, false) if pie => Kind::StaticPie,
        (false, _) => Kind::Shared,
    }
}

fn build_id(elf: &Elf) -> Vec<u8> {
    for program in elf.programs {
        let Ok(Some(mut notes)) = program.notes(LE, elf.data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                // No hash is longer, so the rest belongs to no build id.
                return note.desc().iter().copied().take(64).collect();
            }
        }
    }
    Vec::new()
}

/// Returns the addresses of pointers to initialisers and finalisers.
fn initialisers(elf: &Elf) -> Vec<u64> {
    let mut places = Vec::new();
    for name in [".preinit_array", ".init_array", ".fini_array"] {
        let Some((section, bytes)) = elf.section(name) else { continue };
        let start = section.sh_addr(LE);
        places.extend((0..bytes.len() as u64 / 8).filter_map(|i| start.checked_add(8 * i)));
    }
    places
}
