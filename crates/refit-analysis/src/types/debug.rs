//! The debug information of a file, and its entries by their places.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, DwAt, UnitOffset};

use super::part::{Dwarf, Part, Reader, Sections, Unit};
use super::split::{NoUnit, Split};

pub(super) type Entry = gimli::DebuggingInformationEntry<Reader>;
pub(super) type Value = AttributeValue<Reader>;

/// The most entries within one that are read.
const MOST_CHILDREN: usize = 1 << 16;
/// The most entries that continue each other.
const MOST_ORIGINS: usize = 8;

/// Number of the part that is the file itself.
const OWN: u32 = 0;
/// Number of the part that several files share.
const SHARED: u32 = 1;

/// A place in debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// Number of the part.
    part: u32,
    /// Offset in the part.
    offset: usize,
}

/// Debug information.
pub(super) struct Debug {
    own: Rc<Part>,
    shared: Option<Rc<Part>>,
    split: Split,
    /// Parts in files of their own, as far as they were needed. Their numbers follow the others.
    others: RefCell<Vec<Rc<Part>>>,
    /// The parts of the skeletons that were followed.
    followed: RefCell<BTreeMap<At, Result<At, NoUnit>>>,
    /// The parts of types in the file with all parts, by their numbers there.
    packed: RefCell<BTreeMap<u32, Option<Rc<Part>>>>,
}

/// An entry, with its unit.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) unit: Rc<Unit>,
    pub(super) entry: Entry,
    part: Rc<Part>,
    /// Where its unit begins in the part.
    begin: usize,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Node").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Node {
    /// Returns the sections that the unit is in.
    pub(super) fn dwarf(&self) -> &Dwarf {
        &self.part.dwarf
    }

    /// Returns another entry of the unit.
    pub(super) fn with(&self, entry: Entry) -> Option<Self> {
        let offset = self.begin.checked_add(entry.offset().0)?;
        Some(Self { at: At { offset, ..self.at }, entry, ..self.clone() })
    }

    /// Returns the root of the unit.
    pub(super) fn root(&self) -> Option<Self> {
        self.with(self.unit.entry(self.unit.header.root_offset()).ok()?)
    }
}

impl std::fmt::Debug for Debug {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Debug").finish_non_exhaustive()
    }
}

impl Debug {
    /// Reads the file at `path`, and the one in which it shares debug information with others.
    /// `program` is the file whose debug information it is.
    pub(super) fn open(path: &Path, shared: Option<&Path>, program: &Path) -> Option<Self> {
        let open = |path: &Path, number| {
            let sections = Sections::read(path)?;
            let dwarf = sections.load(|id| Some(id.name()), |section| Dwarf::load(section))?;
            Part::new(number, dwarf, None).map(Rc::new)
        };
        let mut paths = vec![path.to_owned(), program.to_owned()];
        paths.dedup();
        Some(Self {
            own: open(path, OWN)?,
            shared: shared.and_then(|path| open(path, SHARED)),
            split: Split::new(paths),
            others: RefCell::default(),
            followed: RefCell::default(),
            packed: RefCell::default(),
        })
    }

    /// Returns the first reasons for which parts of the debug information are missing.
    pub(super) fn missing(&self) -> Vec<NoUnit> {
        self.split.errors()
    }

    fn part(&self, number: u32) -> Option<Rc<Part>> {
        match number {
            OWN => Some(Rc::clone(&self.own)),
            SHARED => self.shared.clone(),
            other => self.others.borrow().get(usize::try_from(other - SHARED).ok()? - 1).cloned(),
        }
    }

    /// Returns the number of the next part.
    fn next(&self) -> u32 {
        // Each part takes more than a byte of memory.
        SHARED + 1 + self.others.borrow().len() as u32
    }

    fn keep(&self, part: Part) -> Rc<Part> {
        let part = Rc::new(part);
        self.others.borrow_mut().push(Rc::clone(&part));
        part
    }

    /// Returns the roots of all units, those of the file itself first. A unit that is in a file of
    /// its own is that one, if it is there.
    pub(super) fn roots(&self) -> impl Iterator<Item = Node> + '_ {
        let parts = [Some(&self.own), self.shared.as_ref()].into_iter().flatten();
        let own = parts.flat_map(|part| {
            let all = (0..part.count()).filter_map(|index| root(part, index));
            all.flat_map(|root| self.whole(root))
        });
        let packed = (1..=self.split.packed_types()).filter_map(|index| self.packed(index));
        own.chain(packed.flat_map(|part| all(&part)))
    }

    /// Returns the roots of the units of the file itself, also of those that are elsewhere.
    pub(super) fn own_roots(&self) -> impl Iterator<Item = Node> + '_ {
        all(&self.own)
    }

    /// Returns the roots of the units that a root of the file stands for.
    fn whole(&self, root: Node) -> Vec<Node> {
        match self.follow(&root) {
            Some(Ok(main)) => {
                let others = all(&main.part).filter(|one| one.at != main.at);
                let others: Vec<Node> = others.collect();
                [vec![main], others].concat()
            }
            Some(Err(_)) => Vec::new(),
            None => vec![root],
        }
    }

    /// Returns the root of the unit that a skeleton stands for; `None` if the root is of no
    /// skeleton.
    pub(super) fn follow(&self, root: &Node) -> Option<Result<Node, NoUnit>> {
        if root.at.part != OWN || root.unit.dwo_id.is_none() {
            return None;
        }
        let known = self.followed.borrow().get(&root.at).cloned();
        let found = known.unwrap_or_else(|| {
            let part = self.split.part(self.next(), &self.own.dwarf, &root.unit);
            let found = part.and_then(|(part, index)| {
                let part = self.keep(part);
                self::root(&part, index).map(|root| root.at).ok_or(NoUnit::NoName)
            });
            self.followed.borrow_mut().insert(root.at, found.clone());
            found
        });
        Some(found.and_then(|at| self.node(at).ok_or(NoUnit::NoName)))
    }

    /// Returns the part of a type in the file with all parts.
    fn packed(&self, index: u32) -> Option<Rc<Part>> {
        let known = self.packed.borrow().get(&index).cloned();
        known.unwrap_or_else(|| {
            let part = self.split.packed_type(self.next(), index, &self.own.dwarf);
            let part = part.map(|part| self.keep(part));
            self.packed.borrow_mut().insert(index, part.clone());
            part
        })
    }

    /// Returns the entry at a place.
    pub(super) fn node(&self, at: At) -> Option<Node> {
        let part = self.part(at.part)?;
        let (begin, unit) = part.unit_at(at.offset)?;
        let entry = unit.entry(UnitOffset(at.offset.checked_sub(begin)?)).ok()?;
        Some(Node { at, unit, entry, part, begin })
    }

    /// Returns the entries directly within one.
    pub(super) fn children(&self, node: &Node) -> Vec<Node> {
        let mut found = Vec::new();
        let Ok(mut tree) = node.unit.entries_tree(Some(node.entry.offset())) else { return found };
        let Ok(root) = tree.root() else { return found };
        let mut children = root.children();
        // Damaged information yields what could be read.
        while let Ok(Some(child)) = children.next() {
            let child = node.with(child.entry().clone());
            let Some(child) = child.filter(|_| found.len() < MOST_CHILDREN) else { break };
            found.push(child);
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
        let part = node.at.part;
        match *value {
            AttributeValue::UnitRef(UnitOffset(offset)) => {
                Some(At { part, offset: node.begin.checked_add(offset)? })
            }
            AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => Some(At { part, offset }),
            AttributeValue::DebugInfoRefSup(DebugInfoOffset(offset)) => {
                Some(At { part: SHARED, offset })
            }
            AttributeValue::DebugTypesRef(signature) => self.signed(node, signature.0),
            _ => None,
        }
    }

    /// Returns the place of a type by its signature.
    fn signed(&self, node: &Node, signature: u64) -> Option<At> {
        if let Some(offset) = node.part.signed(signature) {
            return Some(At { part: node.at.part, offset });
        }
        let part = self.packed(self.split.packed_signature(signature)?)?;
        Some(At { part: part.number, offset: part.signed(signature)? })
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
            value => node.dwarf().attr_string(&node.unit, value).ok()?,
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

/// Returns the root of a unit.
fn root(part: &Rc<Part>, index: usize) -> Option<Node> {
    let (begin, unit) = part.unit(index)?;
    let entry = unit.entry(unit.header.root_offset()).ok()?;
    let offset = begin.checked_add(entry.offset().0)?;
    let at = At { part: part.number, offset };
    Some(Node { at, unit, entry, part: Rc::clone(part), begin })
}

/// Returns the roots of all units of a part.
fn all(part: &Rc<Part>) -> impl Iterator<Item = Node> + use<> {
    let part = Rc::clone(part);
    (0..part.count()).filter_map(move |index| root(&part, index))
}
