//! Finds types by their names, and functions by their entries.

use gimli::{DW_AT_byte_size, DW_AT_declaration, DwTag};

use super::debug::{At, Debug, Entry, Node, Reader};
use super::{Kind, TypeId, Types};

/// The deepest namespaces and classes in which a type is looked for.
const DEEPEST: usize = 16;

impl Types {
    /// Finds a type by its name, such as `ngx_str_t` or `ns::request`; `None` if there is none.
    /// Types without name, and those of functions, are not found.
    pub fn named(&self, kind: Option<Kind>, name: &str) -> Option<TypeId> {
        let mut all = self.found.borrow_mut();
        let found = all.entry((kind, name.to_owned())).or_insert_with(|| {
            let parts: Vec<&str> = name.split("::").collect();
            let wanted = Wanted { debug: &self.debug, kind };
            let found = self.debug.roots().find_map(|root| wanted.within(&root, &parts, DEEPEST));
            found.map(TypeId::from)
        });
        *found
    }
}

/// A type that is looked for.
struct Wanted<'d> {
    debug: &'d Debug,
    kind: Option<Kind>,
}

impl Wanted<'_> {
    /// Finds the type with a name within an entry: a unit, a namespace or a class.
    fn within(&self, node: &Node, parts: &[&str], deepest: usize) -> Option<At> {
        let (first, rest) = parts.split_first()?;
        let deepest = deepest.checked_sub(1)?;
        let mut tree = node.unit.entries_tree(Some(node.entry.offset())).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            let opens = encloses(entry.tag());
            let fits = self.fits(entry.tag()) && rest.is_empty();
            if !fits && !opens {
                continue;
            }
            let Some(offset) = entry.offset().to_debug_info_offset(&node.unit.header) else {
                continue;
            };
            let at = At { offset: offset.0, ..node.at };
            let child = Node { at, unit: node.unit.clone(), entry: entry.clone() };
            let name = self.debug.own_name(&child);
            let named = name.as_deref() == Some(first);
            if named && fits && self.is_whole(&child) {
                return Some(at);
            }
            let found = match name {
                // A namespace without name, and one that is inline, are seen through.
                None if opens => self.within(&child, parts, deepest),
                Some(_) if opens && named => self.within(&child, rest, deepest),
                Some(_) if child.entry.has_attr(gimli::DW_AT_export_symbols) => {
                    self.within(&child, parts, deepest)
                }
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn fits(&self, tag: DwTag) -> bool {
        match self.kind {
            Some(kind) => Kind::of(tag) == Some(kind),
            None => {
                Kind::of(tag).is_some()
                    || matches!(tag, gimli::DW_TAG_typedef | gimli::DW_TAG_base_type)
            }
        }
    }

    /// Whether an entry is more than a declaration.
    fn is_whole(&self, node: &Node) -> bool {
        node.entry.tag() == gimli::DW_TAG_typedef
            || !node.entry.has_attr(DW_AT_declaration) && node.entry.has_attr(DW_AT_byte_size)
    }
}

/// Whether types can be within an entry of this kind.
fn encloses(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_namespace | gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type)
}

impl Debug {
    /// Returns the function that begins at an address of the file.
    pub(super) fn function(&self, entry: u64) -> Option<Node> {
        self.roots().find_map(|root| {
            let ranges = self.dwarf(&root).unit_ranges(&root.unit).ok()?;
            let covers = |range: gimli::Range| (range.begin..range.end).contains(&entry);
            if any(ranges, covers) { self.function_in(&root, entry) } else { None }
        })
    }

    /// Returns the function of a unit that begins at an address of the file.
    fn function_in(&self, root: &Node, entry: u64) -> Option<Node> {
        let mut entries = root.unit.entries();
        while let Ok(true) = entries.next_entry() {
            let Some(found) = entries.current() else { continue };
            if found.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let begins = found
                .attr_value(gimli::DW_AT_low_pc)
                .and_then(|value| self.dwarf(root).attr_address(&root.unit, value).ok().flatten());
            let begins =
                begins == Some(entry) || begins.is_none() && self.begins(root, found, entry);
            if begins {
                let offset = found.offset().to_debug_info_offset(&root.unit.header)?;
                let at = At { offset: offset.0, ..root.at };
                return Some(Node { at, unit: root.unit.clone(), entry: found.clone() });
            }
        }
        None
    }

    /// Whether one of the ranges of a function begins at an address.
    fn begins(&self, root: &Node, function: &Entry, entry: u64) -> bool {
        let ranges = self.dwarf(root).die_ranges(&root.unit, function);
        ranges.is_ok_and(|ranges| any(ranges, |range| range.begin == entry))
    }
}

/// Whether one of the ranges is as asked for. Damaged ranges are the last ones.
fn any(mut ranges: gimli::RangeIter<Reader>, holds: impl Fn(gimli::Range) -> bool) -> bool {
    while let Ok(Some(range)) = ranges.next() {
        if holds(range) {
            return true;
        }
    }
    false
}
