//! Frame descriptions (`.eh_frame`), which delimit functions and parts of functions, in stripped
//! files as well.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, Pointer, UnwindSection};
use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{ProgramHeader, SectionHeader};

use super::elf::Elf;

/// A frame description: unwinding rules for a range of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The code that it describes.
    pub addresses: Range<u64>,
    /// Address of the language-specific data: call sites and landing pads ([`super::landing`]).
    pub language_data: Option<u64>,
    /// Whether a personality routine runs when an exception passes.
    pub personality: bool,
    /// Whether, at its first byte, the stack pointer is where a call leaves it. Otherwise the
    /// description is of a part of a function.
    pub whole: bool,
    /// Offset of the description in its section.
    offset: usize,
}

/// All frame descriptions of a file.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Descriptions by ascending address.
    pub(super) list: Vec<Frame>,
    /// Addresses of the section.
    section: Range<u64>,
    bases: BaseAddresses,
}

impl Frame {
    /// Returns the offset of the description in its section.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }
}

impl Frames {
    /// Whether, at `address` within `frame`, the stack pointer is where a call leaves it, so that
    /// the function holds nothing on the stack. `None` if the description does not say. `bytes` are
    /// those of the section.
    pub(super) fn is_empty_at(&self, bytes: &[u8], frame: &Frame, address: u64) -> Option<bool> {
        let table = EhFrame::new(bytes, gimli::LittleEndian);
        let at = gimli::EhFrameOffset(frame.offset);
        let fde = table.fde_from_offset(&self.bases, at, EhFrame::cie_from_offset).ok()?;
        let mut context = gimli::UnwindContext::new();
        let row = fde.unwind_info_for_address(&table, &self.bases, &mut context, address).ok()?;
        match row.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } => {
                Some(register.0 == 7 && *offset == 8)
            }
            gimli::CfaRule::Expression(_) => None,
        }
    }

    /// Returns the addresses that encoded addresses may be relative to.
    pub(super) fn bases(&self) -> &BaseAddresses {
        &self.bases
    }

    /// Returns the addresses of the section.
    pub(super) fn section(&self) -> Range<u64> {
        self.section.clone()
    }
}

type Bytes<'a> = EndianSlice<'a, gimli::LittleEndian>;

/// Reads the frame descriptions of a file, by ascending address; of those that overlap, the first.
pub(super) fn read(elf: &Elf) -> Frames {
    let Some((bytes, address)) = section(elf) else { return Frames::default() };
    let mut bases = BaseAddresses::default().set_eh_frame(address);
    if let Some((text, _)) = elf.section(".text") {
        bases = bases.set_text(text.sh_addr(LE));
    }
    if let Some((got, _)) = elf.section(".got") {
        bases = bases.set_got(got.sh_addr(LE));
    }
    let table = EhFrame::new(bytes, gimli::LittleEndian);
    let mut frames = Vec::new();
    let mut entries = table.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        // A description that cannot be read is skipped; the next one may be readable.
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let (mut start, end) = (fde.initial_address(), fde.end_address());
        // Unwinders look up the byte before a return address. Code that signal handlers return to
        // was never called, so its description begins a byte early.
        if fde.is_signal_trampoline() {
            start = start.saturating_add(1);
        }
        if start == 0 || start >= end {
            continue;
        }
        frames.push(Frame {
            addresses: start..end,
            language_data: fde.lsda().and_then(direct),
            personality: fde.personality().is_some(),
            whole: fde.is_signal_trampoline() || begins_after_call(&fde, &table, &bases),
            offset: fde.offset(),
        });
    }
    frames.sort_by_key(|f: &Frame| f.addresses.start);
    let mut free = 0;
    frames.retain(|f| {
        let fits = f.addresses.start >= free;
        free = free.max(f.addresses.end);
        fits
    });
    Frames { list: frames, section: address..address.saturating_add(bytes.len() as u64), bases }
}

fn direct(pointer: Pointer) -> Option<u64> {
    match pointer {
        Pointer::Direct(0) | Pointer::Indirect(_) => None,
        Pointer::Direct(address) => Some(address),
    }
}

/// Returns the bytes and the address of the section, by name or by the program headers.
fn section<'data>(elf: &Elf<'data>) -> Option<(&'data [u8], u64)> {
    if let Some((section, bytes)) = elf.section(".eh_frame") {
        return Some((bytes, section.sh_addr(LE)));
    }
    let header = elf.programs.iter().find(|p| p.p_type(LE) == elf::PT_GNU_EH_FRAME)?;
    let at = header.p_vaddr(LE);
    let bytes = header.data(LE, elf.data).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(at);
    let parsed = EhFrameHdr::new(bytes, gimli::LittleEndian).parse(&bases, 8).ok()?;
    let start = direct(parsed.eh_frame_ptr())?;
    // The section extends to its terminator, or to the end of its segment.
    let segment = elf.programs.iter().find(|p| {
        let from = p.p_vaddr(LE);
        p.p_type(LE) == elf::PT_LOAD && from <= start && start - from < p.p_filesz(LE)
    })?;
    let bytes = segment.data(LE, elf.data).ok()?;
    let skip = usize::try_from(start - segment.p_vaddr(LE)).ok()?;
    Some((bytes.get(skip..)?, start))
}

/// Whether the first row places the frame right above the return address.
fn begins_after_call(
    fde: &gimli::FrameDescriptionEntry<Bytes>,
    table: &EhFrame<Bytes>,
    bases: &BaseAddresses,
) -> bool {
    use gimli::CallFrameInstruction as I;
    let mut instructions = fde.instructions(table, bases);
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            I::DefCfa { register, offset } => return register.0 == 7 && offset == 8,
            I::DefCfaOffset { offset } => return offset == 8,
            I::DefCfaRegister { register } => return register.0 == 7,
            I::DefCfaExpression { .. } => return false,
            I::AdvanceLoc { .. } | I::SetLoc { .. } => break,
            _ => {}
        }
    }
    true
}
