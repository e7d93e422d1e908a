//! The debug information of a file, and its entries by their offsets.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{AttributeValue, DebugInfoOffset, DwAt, LittleEndian, SectionId, UnitType};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::image::LARGEST;

pub(super) type Reader = gimli::EndianArcSlice<LittleEndian>;
pub(super) type Dwarf = gimli::Dwarf<Reader>;
pub(super) type Unit = gimli::Unit<Reader>;
pub(super) type Entry = gimli::DebuggingInformationEntry<Reader>;
pub(super) type Value = AttributeValue<Reader>;

/// The most entries within one that are read.
const MOST_CHILDREN: usize = 1 << 16;
/// The most entries that continue each other.
const MOST_ORIGINS: usize = 8;

/// A place in debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// Whether it is in the file in which several files share debug information.
    pub(super) shared: bool,
    /// Offset in `.debug_info`.
    pub(super) offset: usize,
}

/// Debug information.
pub(super) struct Debug {
    own: Part,
    shared: Option<Part>,
}

/// The debug information of one file.
struct Part {
    dwarf: Dwarf,
    /// Its units, by their offsets.
    headers: Vec<gimli::UnitHeader<Reader>>,
    /// The units that were read.
    units: RefCell<BTreeMap<usize, Option<Rc<Unit>>>>,
    /// Units of one type each, by its signature.
    signatures: OnceCell<BTreeMap<u64, usize>>,
}

/// An entry, with its unit.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) unit: Rc<Unit>,
    pub(super) entry: Entry,
}

impl std::fmt::Debug for Debug {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Debug").finish_non_exhaustive()
    }
}

impl Debug {
    /// Reads the file at `path`, and the one in which it shares debug information with others.
    pub(super) fn open(path: &Path, shared: Option<&Path>) -> Option<Self> {
        Some(Self { own: Part::open(path)?, shared: shared.and_then(Part::open) })
    }

    fn part(&self, shared: bool) -> Option<&Part> {
        if shared { self.shared.as_ref() } else { Some(&self.own) }
    }

    /// Returns the sections of a node.
    pub(super) fn dwarf(&self, node: &Node) -> &Dwarf {
        self.part(node.at.shared).map_or(&self.own.dwarf, |part| &part.dwarf)
    }

    /// Returns the roots of all units, those of the file itself first.
    pub(super) fn roots(&self) -> impl Iterator<Item = Node> + '_ {
        let parts = [(false, Some(&self.own)), (true, self.shared.as_ref())];
        let parts = parts.into_iter().filter_map(|(shared, part)| Some((shared, part?)));
        parts.flat_map(|(shared, part)| {
            (0..part.headers.len()).filter_map(move |index| part.root(shared, index))
        })
    }

    /// Returns the entry at a place.
    pub(super) fn node(&self, at: At) -> Option<Node> {
        let part = self.part(at.shared)?;
        let offset = DebugInfoOffset(at.offset);
        let before = |header: &gimli::UnitHeader<Reader>| {
            header.debug_info_offset().is_some_and(|begin| begin <= offset)
        };
        let index = part.headers.partition_point(before).checked_sub(1)?;
        let unit = part.unit(index)?;
        let entry = unit.entry(offset.to_unit_offset(&unit.header)?).ok()?;
        Some(Node { at, unit, entry })
    }

    /// Returns the entries directly within one.
    pub(super) fn children(&self, node: &Node) -> Vec<Node> {
        let mut found = Vec::new();
        let Ok(mut tree) = node.unit.entries_tree(Some(node.entry.offset())) else { return found };
        let Ok(root) = tree.root() else { return found };
        let mut children = root.children();
        // Damaged information yields what could be read.
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry().clone();
            let offset = entry.offset().to_debug_info_offset(&node.unit.header);
            let Some(offset) = offset.filter(|_| found.len() < MOST_CHILDREN) else { break };
            let at = At { offset: offset.0, ..node.at };
            found.push(Node { at, unit: Rc::clone(&node.unit), entry });
        }
        found
    }

    /// Returns an attribute of an entry, or of those that it continues: a function has what its
    /// declaration, or the function that was inlined, says.
    pub(super) fn attribute(&self, node: &Node, name: DwAt) -> Option<(Node, Value)> {
        let mut node = node.clone();
        for _ in 0..MOST_ORIGINS {
            if let Some(value) = node.entry.attr_value(name) {
                return Some((node, value));
            }
            let origins = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
            let origin = origins.iter().find_map(|origin| node.entry.attr_value(*origin))?;
            node = self.node(self.target(&node, &origin)?)?;
        }
        None
    }

    /// Returns the place that the attribute of a node refers to.
    pub(super) fn target(&self, node: &Node, value: &Value) -> Option<At> {
        let shared = node.at.shared;
        match *value {
            AttributeValue::UnitRef(offset) => {
                let offset = offset.to_debug_info_offset(&node.unit.header)?;
                Some(At { shared, offset: offset.0 })
            }
            AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => Some(At { shared, offset }),
            AttributeValue::DebugInfoRefSup(DebugInfoOffset(offset)) => {
                Some(At { shared: true, offset })
            }
            AttributeValue::DebugTypesRef(signature) => {
                let offset = *self.part(shared)?.signatures().get(&signature.0)?;
                Some(At { shared, offset })
            }
            _ => None,
        }
    }

    /// Returns the name of an entry, or of those that it continues.
    pub(super) fn name(&self, node: &Node) -> Option<String> {
        let (named, value) = self.attribute(node, gimli::DW_AT_name)?;
        self.text(&named, value)
    }

    /// Returns the own name of an entry.
    pub(super) fn own_name(&self, node: &Node) -> Option<String> {
        self.text(node, node.entry.attr_value(gimli::DW_AT_name)?)
    }

    fn text(&self, node: &Node, value: Value) -> Option<String> {
        use gimli::Reader as _;
        let text = match value {
            AttributeValue::DebugStrRefSup(offset) => {
                self.shared.as_ref()?.dwarf.debug_str.get_str(offset).ok()?
            }
            value => self.dwarf(node).attr_string(&node.unit, value).ok()?,
        };
        Some(text.to_string_lossy().ok()?.into_owned())
    }

    /// Returns a number that an entry, or one that it continues, has.
    pub(super) fn number(&self, node: &Node, name: DwAt) -> Option<u64> {
        self.attribute(node, name)?.1.udata_value()
    }

    /// Returns the entry of the type of an entry.
    pub(super) fn type_of(&self, node: &Node) -> Option<At> {
        let (typed, value) = self.attribute(node, gimli::DW_AT_type)?;
        self.target(&typed, &value)
    }
}

impl Part {
    fn open(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok().filter(|meta| meta.len() <= LARGEST)?;
        let data = fs::read(path).ok().filter(|_| meta.is_file())?;
        let elf = ElfFile64::<object::LittleEndian>::parse(&*data).ok()?;
        let section = |id: SectionId| {
            let unread = matches!(
                id,
                SectionId::DebugAranges
                    | SectionId::DebugMacinfo
                    | SectionId::DebugMacro
                    | SectionId::DebugNames
            );
            let section = elf.section_by_name(id.name()).filter(|_| !unread);
            let data = section.and_then(|section| section.uncompressed_data().ok());
            let data: Arc<[u8]> = data.unwrap_or_default().into();
            Ok::<_, ()>(gimli::EndianArcSlice::new(data, LittleEndian))
        };
        let dwarf = Dwarf::load(section).ok()?;
        let (mut headers, mut units) = (Vec::new(), dwarf.units());
        while let Ok(Some(header)) = units.next() {
            headers.push(header);
        }
        (!headers.is_empty()).then(|| Self {
            dwarf,
            headers,
            units: RefCell::default(),
            signatures: OnceCell::new(),
        })
    }

    fn unit(&self, index: usize) -> Option<Rc<Unit>> {
        let mut units = self.units.borrow_mut();
        let header = self.headers.get(index)?;
        let read = || self.dwarf.unit(header.clone()).ok().map(Rc::new);
        units.entry(index).or_insert_with(read).clone()
    }

    fn root(&self, shared: bool, index: usize) -> Option<Node> {
        let unit = self.unit(index)?;
        let entry = unit.entry(unit.header.root_offset()).ok()?;
        let offset = entry.offset().to_debug_info_offset(&unit.header)?;
        Some(Node { at: At { shared, offset: offset.0 }, unit, entry })
    }

    /// Returns where the types of type units are, by their signatures.
    fn signatures(&self) -> &BTreeMap<u64, usize> {
        self.signatures.get_or_init(|| {
            let found = self.headers.iter().filter_map(|header| match header.type_() {
                UnitType::Type { type_signature, type_offset } => {
                    let offset = type_offset.to_debug_info_offset(header)?;
                    Some((type_signature.0, offset.0))
                }
                _ => None,
            });
            found.collect()
        })
    }
}
