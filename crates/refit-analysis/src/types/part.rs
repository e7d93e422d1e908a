//! The debug information of one file, or of one unit that is in a file of its own.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{DwoId, LittleEndian, Section, SectionId, UnitOffset, UnitType};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::image::{LARGEST, MOST_UNPACKED};

pub(super) type Reader = gimli::EndianArcSlice<LittleEndian>;
pub(super) type Dwarf = gimli::Dwarf<Reader>;
pub(super) type Unit = gimli::Unit<Reader>;

/// Debug information with units.
pub(super) struct Part {
    /// Its number among those of the file.
    pub(super) number: u32,
    pub(super) dwarf: Dwarf,
    /// Its units, with the places at which they begin: those in `.debug_types` follow the bytes of
    /// `.debug_info`.
    headers: Vec<(usize, gimli::UnitHeader<Reader>)>,
    /// The units that were read.
    units: RefCell<BTreeMap<usize, Option<Rc<Unit>>>>,
    /// Units of one type each, by its signature.
    signatures: OnceCell<BTreeMap<u64, usize>>,
    /// The unit of the file that names this part.
    skeleton: Option<Rc<Unit>>,
}

impl Part {
    /// Takes the units of a file, or those that a `skeleton` names.
    pub(super) fn new(number: u32, dwarf: Dwarf, skeleton: Option<Rc<Unit>>) -> Option<Self> {
        let (mut headers, mut units) = (Vec::new(), dwarf.units());
        while let Ok(Some(header)) = units.next() {
            let begin = header.debug_info_offset().map(|offset| offset.0);
            headers.extend(begin.map(|begin| (begin, header)));
        }
        let behind = gimli::Reader::len(dwarf.debug_info.reader());
        let mut units = dwarf.type_units();
        while let Ok(Some(header)) = units.next() {
            let begin = header.debug_types_offset().and_then(|at| at.0.checked_add(behind));
            headers.extend(begin.map(|begin| (begin, header)));
        }
        (!headers.is_empty()).then(|| Self {
            number,
            dwarf,
            headers,
            units: RefCell::default(),
            signatures: OnceCell::new(),
            skeleton,
        })
    }

    /// Returns the number of its units.
    pub(super) fn count(&self) -> usize {
        self.headers.len()
    }

    /// Returns a unit and where it begins.
    pub(super) fn unit(&self, index: usize) -> Option<(usize, Rc<Unit>)> {
        let mut units = self.units.borrow_mut();
        let (begin, header) = self.headers.get(index)?;
        let read = || {
            let mut unit = self.dwarf.unit(header.clone()).ok()?;
            if let Some(skeleton) = &self.skeleton {
                unit.copy_relocated_attributes(skeleton);
            }
            Some(Rc::new(unit))
        };
        Some((*begin, units.entry(index).or_insert_with(read).clone()?))
    }

    /// Returns the unit that a place is in.
    pub(super) fn unit_at(&self, offset: usize) -> Option<(usize, Rc<Unit>)> {
        let index = self.headers.partition_point(|(begin, _)| *begin <= offset).checked_sub(1)?;
        self.unit(index)
    }

    /// Returns the index of the unit that continues a skeleton with this number.
    pub(super) fn split_unit(&self, id: DwoId) -> Option<usize> {
        (0..self.headers.len()).find(|index| {
            let fits = |(_, unit): (_, Rc<Unit>)| unit.dwo_id == Some(id);
            // Units of types have no number of their own in DWARF 4, and another meaning of it.
            !is_type(&self.headers[*index].1) && self.unit(*index).is_some_and(fits)
        })
    }

    /// Returns the place of a type with a unit of its own, by its signature.
    pub(super) fn signed(&self, signature: u64) -> Option<usize> {
        let all = self.signatures.get_or_init(|| {
            let found = self.headers.iter().filter_map(|(begin, header)| match header.type_() {
                UnitType::Type { type_signature, type_offset: UnitOffset(at) }
                | UnitType::SplitType { type_signature, type_offset: UnitOffset(at) } => {
                    Some((type_signature.0, begin.checked_add(at)?))
                }
                _ => None,
            });
            found.collect()
        });
        all.get(&signature).copied()
    }
}

fn is_type(header: &gimli::UnitHeader<Reader>) -> bool {
    matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. })
}

/// A file with debug information.
pub(super) struct Sections {
    data: Vec<u8>,
}

impl Sections {
    /// Reads a file; `None` if it is none that can be read, or too large.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        // Files of the kernel, some of which block, have no size.
        let fits = meta.is_file() && (1..=LARGEST).contains(&meta.len());
        let data = fits.then(|| fs::read(path).ok()).flatten()?;
        Some(Self { data })
    }

    /// Loads its sections: all of a name one after the other, since each type has one of its own in
    /// an object file.
    pub(super) fn load<T>(
        &self,
        name: fn(SectionId) -> Option<&'static str>,
        build: impl FnOnce(&mut dyn FnMut(SectionId) -> gimli::Result<Reader>) -> gimli::Result<T>,
    ) -> Option<T> {
        let elf = ElfFile64::<object::LittleEndian>::parse(&*self.data).ok()?;
        let mut found = BTreeMap::<&str, Vec<_>>::new();
        for section in elf.sections() {
            let Ok(name) = section.name() else { continue };
            if name.starts_with(".debug_") || name.starts_with(".zdebug_") {
                found.entry(name).or_default().push(section);
            }
        }
        let mut section = |id: SectionId| {
            let unread = matches!(
                id,
                SectionId::DebugAranges
                    | SectionId::DebugMacinfo
                    | SectionId::DebugMacro
                    | SectionId::DebugNames
            );
            let mut bytes = Vec::new();
            if let Some(name) = name(id).filter(|_| !unread) {
                let old = name.replacen(".debug_", ".zdebug_", 1);
                let all = found.get(name).or_else(|| found.get(&*old));
                for one in all.into_iter().flatten() {
                    // The reader allocates what the section claims.
                    let packed = one.compressed_data().ok();
                    let packed = packed.filter(|packed| {
                        packed.uncompressed_size
                            <= (packed.data.len() as u64).saturating_mul(MOST_UNPACKED)
                    });
                    let data = packed.and_then(|packed| packed.decompress().ok());
                    bytes.extend_from_slice(&data.unwrap_or_default());
                }
            }
            let bytes: Arc<[u8]> = bytes.into();
            Ok(gimli::EndianArcSlice::new(bytes, LittleEndian))
        };
        build(&mut section).ok()
    }
}
