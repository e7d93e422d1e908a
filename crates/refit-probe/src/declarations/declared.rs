//! The types that a script declares, by their names and indices.

use std::collections::BTreeMap;

use refit_analysis::types::{Bits, Kind};

/// The most structures without name within each other.
pub(super) const DEEPEST: usize = 32;
/// The most members of a structure, and constants of a script.
pub(super) const MOST_PARTS: usize = 1 << 16;
/// The largest size of a type in bytes.
pub(super) const LARGEST: u64 = 1 << 40;

/// The types that a script declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    pub(super) structures: Vec<Structure>,
    /// Structures, unions and enumerations, by the names after these words.
    pub(super) tags: BTreeMap<String, Tag>,
    /// Types with a name of their own (`typedef`).
    pub(super) names: BTreeMap<String, Type>,
    /// The constants of enumerations, and those that `#define` names.
    pub(super) constants: BTreeMap<String, i64>,
}

/// A type that a script declares, or uses to declare another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// An integer, a character, a truth value, or an enumeration.
    Number { bytes: u8, signed: bool },
    /// A type whose values are no numbers of 64 bits, in words, with its size.
    Other(&'static str, u64),
    /// No type: `void`.
    Nothing,
    /// A function.
    Function,
    /// An address of a value of a type.
    Pointer(Box<Self>),
    /// Values of one type, one after the other.
    Array(Box<Self>, u64),
    /// A structure or a union, by its index in [`Declarations`].
    Structure(usize),
}

/// A structure, union or enumeration with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Structure(usize),
    Enumeration { bytes: u8, signed: bool },
}

/// A structure or a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Structure {
    pub(crate) kind: Kind,
    /// Its name; empty if it has none.
    pub(crate) name: String,
    /// Its members; `None` if it is not defined (yet).
    pub(super) body: Option<Body>,
}

/// The members of a structure, and their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) size: u64,
    pub(super) align: u64,
    pub(super) fields: Vec<Field>,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name; `None` if its members are those of the structure.
    pub(super) name: Option<String>,
    /// Its distance in bytes from the begin of the structure; of a bit field, that of what is read.
    pub(crate) offset: u64,
    /// Which bits it is, if it is a bit field.
    pub(crate) bits: Option<Bits>,
    /// Its type; of a bit field, that of what is read.
    pub(crate) of: Type,
}

impl Declarations {
    /// Whether nothing is declared.
    pub(crate) fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.names.is_empty()
    }

    /// Returns the type with a name, if the script defines it.
    pub(crate) fn named(&self, kind: Option<Kind>, name: &str) -> Option<Type> {
        let tag = match self.tags.get(name) {
            Some(Tag::Structure(index)) => {
                let structure = self.structures.get(*index);
                let defined = structure.filter(|one| one.body.is_some());
                let fits = defined.filter(|one| kind.is_none_or(|kind| kind == one.kind));
                fits.map(|_| Type::Structure(*index))
            }
            Some(&Tag::Enumeration { bytes, signed }) => {
                let fits = kind.is_none_or(|kind| kind == Kind::Enumeration);
                fits.then_some(Type::Number { bytes, signed })
            }
            None => None,
        };
        let named = self.names.get(name).filter(|_| kind.is_none());
        named.cloned().or(tag)
    }

    /// Returns a structure by its index.
    pub(crate) fn structure(&self, index: usize) -> Option<&Structure> {
        self.structures.get(index)
    }

    /// Whether a structure is defined.
    pub(crate) fn is_defined(&self, index: usize) -> bool {
        self.body(index).is_some()
    }

    fn body(&self, index: usize) -> Option<&Body> {
        self.structures.get(index)?.body.as_ref()
    }

    /// Finds a member of a structure by its name, also in structures without name within it.
    pub(crate) fn member(&self, index: usize, name: &str) -> Option<Field> {
        self.member_of(index, name, DEEPEST)
    }

    fn member_of(&self, index: usize, name: &str, deepest: usize) -> Option<Field> {
        let deepest = deepest.checked_sub(1)?;
        self.body(index)?.fields.iter().find_map(|field| match (&field.name, &field.of) {
            (Some(own), _) => (own == name).then(|| field.clone()),
            (None, Type::Structure(inner)) => {
                let found = self.member_of(*inner, name, deepest)?;
                Some(Field { offset: field.offset.checked_add(found.offset)?, ..found })
            }
            (None, _) => None,
        })
    }

    /// Returns the names of the members of a structure.
    pub(crate) fn members(&self, index: usize) -> Vec<String> {
        let mut found = Vec::new();
        self.add_members(index, &mut found, DEEPEST);
        found
    }

    fn add_members(&self, index: usize, found: &mut Vec<String>, deepest: usize) {
        let (Some(body), Some(deepest)) = (self.body(index), deepest.checked_sub(1)) else {
            return;
        };
        for field in &body.fields {
            match (&field.name, &field.of) {
                (Some(name), _) => found.push(name.clone()),
                (None, Type::Structure(inner)) => self.add_members(*inner, found, deepest),
                (None, _) => {}
            }
        }
    }

    /// Returns the size of a type in bytes; `None` if it has none, or is not defined.
    pub(crate) fn size(&self, of: &Type) -> Option<u64> {
        match of {
            Type::Number { bytes, .. } => Some((*bytes).into()),
            Type::Other(_, bytes) => Some(*bytes),
            Type::Nothing | Type::Function => None,
            Type::Pointer(_) => Some(8),
            Type::Array(of, count) => self.size(of)?.checked_mul(*count),
            Type::Structure(index) => Some(self.body(*index)?.size),
        }
        .filter(|size| *size <= LARGEST)
    }

    /// Returns the alignment of a type whose size is known.
    pub(super) fn align(&self, of: &Type) -> u64 {
        match of {
            Type::Number { bytes, .. } => (*bytes).into(),
            Type::Other(_, bytes) => *bytes,
            Type::Nothing | Type::Function => 1,
            Type::Pointer(_) => 8,
            Type::Array(of, _) => self.align(of),
            Type::Structure(index) => self.body(*index).map_or(1, |body| body.align),
        }
    }
}
