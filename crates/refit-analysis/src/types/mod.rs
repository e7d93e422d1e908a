//! Types of a program's data, from debug information: members of structures, and where parameters
//! of functions are.
//!
//! Debug information is read on demand only, as by [`lines`](crate::lines). That of C and C++ is
//! complete; of Rust and Go, structures, arrays and pointers are known.

mod classes;
mod debug;
mod layout;
mod parameter;
mod part;
mod search;
mod split;

use std::cell::RefCell;
use std::collections::HashMap;

use debug::{At, Debug};
pub use parameter::{NoParameter, Parameter, Whereabouts};
pub use split::NoUnit;

use crate::image::Image;

/// The types in the debug information of a file: its own, or that which a distribution ships
/// separately.
#[derive(Debug)]
pub struct Types {
    debug: Debug,
    /// The types that were looked for by name. Finding one takes a search of all units, and many
    /// places may name the same.
    found: RefCell<HashMap<Name, Option<TypeId>>>,
}

/// The word before the name of a type that is looked for, the name, and whether it may be declared
/// in a function.
type Name = (Option<Kind>, String, bool);

/// A type of [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId {
    at: At,
    /// The dimension of an array that is meant: rows of a table are arrays, too.
    dimension: u8,
}

/// The word before the name of a type in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `struct`, or `class`
    Structure,
    /// `union`
    Union,
    /// `enum`
    Enumeration,
}

/// The structure of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An integer, a character, a truth value, or an enumeration.
    Number {
        /// Size in bytes: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether it can be negative.
        signed: bool,
    },
    /// An address of a value of a type, or of anything (`void *`).
    Pointer(Option<TypeId>),
    /// Values of one type, one after the other.
    Array {
        /// Their type.
        of: TypeId,
        /// Distance in bytes from one to the next.
        stride: u64,
    },
    /// A structure, union or class: it has members.
    Structure,
    /// Anything else, in words: `a floating-point number`.
    Other(&'static str),
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its distance in bytes from the begin of the structure; of a bit field, that of its unit.
    pub offset: u64,
    /// Which bits of the unit it is, if it is a bit field.
    pub bits: Option<Bits>,
    /// Its type; that of the unit of a bit field.
    pub of: TypeId,
}

/// The bits of a bit field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Number of the lowest one in the unit.
    pub first: u8,
    /// Their number.
    pub count: u8,
}

impl Types {
    /// Reads the debug information that belongs to `image`; `None` if there is none or it cannot be
    /// read.
    pub fn of(image: &Image) -> Option<Self> {
        let (path, shared) = image.debug_file()?;
        let debug = Debug::open(&path, shared.as_deref(), image.path())?;
        Some(Self { debug, found: RefCell::default() })
    }
}

impl From<At> for TypeId {
    fn from(at: At) -> Self {
        Self { at, dimension: 0 }
    }
}
