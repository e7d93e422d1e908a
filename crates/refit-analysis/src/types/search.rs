//! Finds types by their names, and functions by their entries.

use gimli::{DW_AT_byte_size, DW_AT_declaration, DwTag};

use super::debug::{At, Debug, Entry, Node};
use super::part::Reader;
use super::split::NoUnit;
use super::{Kind, TypeId, Types};

/// The deepest namespaces and classes in which a type is looked for.
const DEEPEST: usize = 16;

impl Types {
    /// Finds a type by its name, such as `ngx_str_t` or `ns::request`; `None` if there is none.
    /// Types without name, and those of functions, are not found.
    pub fn named(&self, kind: Option<Kind>, name: &str) -> Option<TypeId> {
        self.remembered(kind, name, false)
    }

    /// Finds a type by its name, also if a function declares it: the one that is entered at an
    /// address of the file, or any other.
    pub fn named_at(&self, entry: u64, kind: Option<Kind>, name: &str) -> Option<TypeId> {
        if let Some(found) = self.named(kind, name) {
            return Some(found);
        }
        let wanted = Wanted { debug: &self.debug, kind, functions: true };
        let own = || {
            let function = self.debug.function(entry).ok().flatten()?;
            let origin = function.entry.attr_value(gimli::DW_AT_abstract_origin);
            let origin = origin.and_then(|origin| self.debug.target(&function, &origin));
            let origin = origin.and_then(|at| self.debug.node(at));
            let mut places = [Some(function), origin].into_iter().flatten();
            places.find_map(|place| wanted.within(&place, &[name], DEEPEST)).map(TypeId::from)
        };
        // Most types are in no function at all.
        let any = self.remembered(kind, name, true)?;
        Some(own().unwrap_or(any))
    }

    fn remembered(&self, kind: Option<Kind>, name: &str, functions: bool) -> Option<TypeId> {
        let key = (kind, name.to_owned(), functions);
        if let Some(known) = self.found.borrow().get(&key) {
            return *known;
        }
        let parts: Vec<&str> = name.split("::").collect();
        let wanted = Wanted { debug: &self.debug, kind, functions };
        let found = self.debug.roots().find_map(|root| wanted.within(&root, &parts, DEEPEST));
        let found = found.map(TypeId::from);
        self.found.borrow_mut().insert(key, found);
        found
    }

    /// Returns the first reasons for which parts of the debug information are missing.
    pub fn missing(&self) -> Vec<NoUnit> {
        self.debug.missing()
    }
}

/// A type that is looked for.
struct Wanted<'d> {
    debug: &'d Debug,
    kind: Option<Kind>,
    /// Whether types of functions count, too.
    functions: bool,
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
            let function = self.functions && is_function(entry.tag());
            let opens = function || encloses(entry.tag());
            let fits = self.fits(entry.tag()) && rest.is_empty();
            if !fits && !opens {
                continue;
            }
            let Some(child) = node.with(entry.clone()) else { continue };
            let name = self.debug.own_name(&child);
            let named = name.as_deref() == Some(first);
            if named && fits && self.is_whole(&child) {
                return Some(child.at);
            }
            let found = match name {
                _ if function => self.within(&child, parts, deepest),
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

/// Whether types can be within a function, or a block of one.
fn is_function(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_subprogram | gimli::DW_TAG_lexical_block)
}

impl Debug {
    /// Returns the function that begins at an address of the file.
    ///
    /// # Errors
    /// [`NoUnit`]: the file that describes it is missing.
    pub(super) fn function(&self, entry: u64) -> Result<Option<Node>, NoUnit> {
        for root in self.own_roots() {
            let Ok(ranges) = root.dwarf().unit_ranges(&root.unit) else { continue };
            if !any(ranges, |range| (range.begin..range.end).contains(&entry)) {
                continue;
            }
            let whole = self.follow(&root).transpose()?.unwrap_or(root);
            if let Some(found) = self.function_in(&whole, entry) {
                return Ok(Some(found));
            }
        }
        Ok(None)
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
                .and_then(|value| root.dwarf().attr_address(&root.unit, value).ok().flatten());
            let begins =
                begins == Some(entry) || begins.is_none() && self.begins(root, found, entry);
            if begins {
                return root.with(found.clone());
            }
        }
        None
    }

    /// Whether one of the ranges of a function begins at an address.
    fn begins(&self, root: &Node, function: &Entry, entry: u64) -> bool {
        let ranges = root.dwarf().die_ranges(&root.unit, function);
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
