//! Types at a place: those of the file's debug information, those that the script declares, and the
//! numbers of C.
//!
//! A script's own definition of a structure is meant wherever the structure is, as in bpftrace.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

use refit_analysis::image::Tracepoint;
use refit_analysis::types::{Bits, Shape, TypeId, Types};

use crate::argument::Maps;
use crate::declarations::{self, Declarations};
use crate::type_name::TypeName;

/// The most pointers of a type that has a name.
const DEEPEST: usize = 8;
/// The most names that an error lists.
const TOLD: usize = 8;

/// Facts that formulas at a place have without the snippet.
#[derive(Clone, Copy)]
pub struct Facts<'f> {
    /// The maps that keep values.
    pub maps: &'f Maps,
    /// The types of the addresses that maps keep.
    pub kept_types: &'f KeptTypes,
    /// Address of the place in the program.
    pub address: u64,
    /// Address in its file.
    pub in_file: u64,
    /// Index of the file.
    pub file: usize,
    /// Name of the file.
    pub module: &'f str,
    /// The static tracepoint that the place is, if it is one.
    pub tracepoint: Option<&'f Tracepoint>,
    /// Finds the types of the file; `None` if it has no debug information.
    pub types: &'f dyn Fn() -> Option<&'f Types>,
    /// The types that the script declares.
    pub declared: &'f Declarations,
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, module, .. } = self;
        to.debug_struct("Facts")
            .field("address", address)
            .field("module", module)
            .finish_non_exhaustive()
    }
}

/// The types of the addresses that maps keep, by the names of the maps.
pub type KeptTypes = BTreeMap<String, KeptType>;

/// The type of the addresses that a map keeps, as it is where they are assigned.
#[derive(Clone, Debug)]
pub struct KeptType {
    /// The type itself.
    pub(crate) of: Type,
    /// Its name, if it has one that other files can have.
    pub(crate) named: Option<TypeName>,
    /// Index of the file where it is assigned.
    pub(crate) file: usize,
    /// Name of the file.
    pub(crate) module: String,
    /// The declarations of the script that assigns it.
    pub(crate) declared: Arc<Declarations>,
}

/// A type, of the program, of the script, or of C.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Known(TypeId),
    Declared(declarations::Type),
    Number { bytes: u8, signed: bool },
    Pointer(Box<Self>),
}

/// The structure of a type.
pub(crate) enum Form {
    Number { bytes: u8, signed: bool },
    Pointer(Option<Type>),
    Array { of: Type, stride: u64 },
    Structure(Record),
    Other(&'static str),
}

/// A structure or a union.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    Known(TypeId),
    /// By its index in the declarations.
    Declared(usize),
}

/// A member of a structure.
pub(crate) struct Part {
    /// Its distance in bytes from the begin of the structure.
    pub(crate) offset: u64,
    /// Which bits it is, if it is a bit field.
    pub(crate) bits: Option<Bits>,
    pub(crate) of: Type,
}

impl<'f> Facts<'f> {
    /// Returns the types of the file.
    pub(crate) fn types(&self) -> Result<&'f Types, String> {
        (self.types)().ok_or_else(|| {
            format!(
                "{} has no debug information (install the package with its debug symbols, or compile it with -g)",
                self.module
            )
        })
    }

    /// Returns the type with a name.
    pub(crate) fn named(&self, name: &TypeName) -> Result<Type, String> {
        let declared = || self.declared.named(name.kind, &name.name).map(Type::Declared);
        let plain = match (name.number(), &*name.name) {
            (Some((bytes, signed)), _) => Type::Number { bytes, signed },
            // What `void *` points to is read byte by byte.
            (None, "void") => Type::Number { bytes: 1, signed: false },
            (None, _) => match declared() {
                Some(declared) => declared,
                None => Type::Known(self.known(name)?),
            },
        };
        Ok((0..name.pointers).fold(plain, |of, _| Type::Pointer(Box::new(of))))
    }

    /// Returns the type of the addresses that a map keeps; `None` if it keeps numbers.
    pub(crate) fn kept_type(&self, map: &str) -> Result<Option<Type>, String> {
        let Some(kept) = self.kept_types.get(map) else { return Ok(None) };
        let KeptType { of, named, file, module, declared } = kept;
        match named {
            _ if *file == self.file && ptr::eq(&raw const **declared, self.declared) => {
                Ok(Some(of.clone()))
            }
            Some(name) => self.named(name).map(Some),
            None => Err(format!("the type of @{map} has no name outside of {module}")),
        }
    }

    /// Names a type, if other files can have one of this name.
    pub(crate) fn name_of(&self, of: &Type) -> Option<TypeName> {
        self.name_within(of, DEEPEST)
    }

    fn name_within(&self, of: &Type, deepest: usize) -> Option<TypeName> {
        let named = |kind, name: &str| {
            let name = (!name.is_empty()).then(|| name.to_owned());
            name.map(|name| TypeName { kind, name, pointers: 0 })
        };
        match self.form(of).ok()? {
            Form::Number { bytes, signed } => {
                let sign = if signed { 'i' } else { 'u' };
                named(None, &format!("{sign}{}", u32::from(bytes) * 8))
            }
            Form::Pointer(None) => Some(TypeName { pointers: 1, ..named(None, "void")? }),
            Form::Pointer(Some(of)) => {
                let inner = self.name_within(&of, deepest.checked_sub(1)?)?;
                Some(TypeName { pointers: inner.pointers + 1, ..inner })
            }
            Form::Structure(Record::Known(id)) => {
                let (kind, name) = self.types().ok()?.tag(id)?;
                named(Some(kind), &name)
            }
            Form::Structure(Record::Declared(index)) => {
                let structure = self.declared.structure(index)?;
                named(Some(structure.kind), &structure.name)
            }
            Form::Array { .. } | Form::Other(_) => None,
        }
    }

    /// Returns the type with a name that the debug information has.
    fn known(&self, name: &TypeName) -> Result<TypeId, String> {
        let alone = TypeName { pointers: 0, ..name.clone() };
        let types = self.types().map_err(|why| match self.declared.is_empty() {
            true => why,
            false => format!("the script does not declare `{alone}`, and {why}"),
        })?;
        types.named_at(self.in_file, name.kind, &name.name).ok_or_else(|| {
            let missing = types.missing().first().map_or(String::new(), |why| format!("; {why}"));
            format!("the debug information of {} has no type `{alone}`{missing}", self.module)
        })
    }

    /// Returns the structure of a type.
    pub(crate) fn form(&self, of: &Type) -> Result<Form, String> {
        Ok(match of {
            Type::Number { bytes, signed } => Form::Number { bytes: *bytes, signed: *signed },
            Type::Pointer(of) => Form::Pointer(Some((**of).clone())),
            Type::Known(id) => match self.types()?.shape(*id) {
                Shape::Number { bytes, signed } => Form::Number { bytes, signed },
                Shape::Pointer(of) => Form::Pointer(of.map(Type::Known)),
                Shape::Array { of, stride } => Form::Array { of: Type::Known(of), stride },
                Shape::Structure => Form::Structure(match self.redefined(*id)? {
                    Some(index) => Record::Declared(index),
                    None => Record::Known(*id),
                }),
                Shape::Other(what) => Form::Other(what),
            },
            Type::Declared(of) => return self.form_of_declared(of),
        })
    }

    fn form_of_declared(&self, of: &declarations::Type) -> Result<Form, String> {
        use declarations::Type as Declared;
        Ok(match of {
            Declared::Number { bytes, signed } => Form::Number { bytes: *bytes, signed: *signed },
            Declared::Other(what, _) => Form::Other(what),
            Declared::Nothing => Form::Other("of no type (void)"),
            Declared::Function => Form::Other("a function"),
            Declared::Pointer(of) if **of == Declared::Nothing => Form::Pointer(None),
            Declared::Pointer(of) => Form::Pointer(Some(Type::Declared((**of).clone()))),
            Declared::Array(of, _) => {
                let of = Type::Declared((**of).clone());
                Form::Array { stride: self.size(&of)?, of }
            }
            Declared::Structure(index) => match self.elsewhere(*index) {
                Some(name) => return self.form(&self.named(&name)?),
                None => Form::Structure(Record::Declared(*index)),
            },
        })
    }

    /// Returns the name of a structure that the script uses and does not define.
    fn elsewhere(&self, index: usize) -> Option<TypeName> {
        let structure = self.declared.structure(index)?;
        let name =
            || TypeName { kind: Some(structure.kind), name: structure.name.clone(), pointers: 0 };
        (!self.declared.is_defined(index)).then(name)
    }

    /// Returns the script's own definition of a structure of the file.
    fn redefined(&self, id: TypeId) -> Result<Option<usize>, String> {
        if self.declared.is_empty() {
            return Ok(None);
        }
        let tag = self.types()?.tag(id);
        let declared = tag.and_then(|(kind, name)| self.declared.named(Some(kind), &name));
        Ok(match declared {
            Some(declarations::Type::Structure(index)) => Some(index),
            _ => None,
        })
    }

    /// Returns the size of a type in bytes.
    pub(crate) fn size(&self, of: &Type) -> Result<u64, String> {
        let size = match of {
            Type::Number { bytes, .. } => Some((*bytes).into()),
            Type::Pointer(_) => Some(8),
            Type::Known(id) => match self.redefined(*id)? {
                Some(index) => self.declared.size(&declarations::Type::Structure(index)),
                None => self.types()?.size(*id),
            },
            Type::Declared(declarations::Type::Nothing) => Some(1),
            Type::Declared(of) => match (self.declared.size(of), of) {
                (None, declarations::Type::Structure(index)) => match self.elsewhere(*index) {
                    Some(name) => return self.size(&self.named(&name)?),
                    None => None,
                },
                (size, _) => size,
            },
        };
        let size = size.filter(|size| *size > 0);
        size.ok_or_else(|| "the size of its elements is not known".to_owned())
    }

    /// Finds a member of a structure by its name.
    pub(crate) fn member(&self, of: Record, name: &str) -> Result<Part, String> {
        let found = match of {
            Record::Known(id) => self.types()?.member(id, name).map(|found| Part {
                offset: found.offset,
                bits: found.bits,
                of: Type::Known(found.of),
            }),
            Record::Declared(index) => self.declared.member(index, name).map(|found| Part {
                offset: found.offset,
                bits: found.bits,
                of: Type::Declared(found.of),
            }),
        };
        found.ok_or_else(|| format!("no member `{name}`{}", self.members(of)))
    }

    /// Lists the members of a structure.
    pub(crate) fn members(&self, of: Record) -> String {
        let all = match of {
            Record::Known(id) => self.types().map(|types| types.members(id)).unwrap_or_default(),
            Record::Declared(index) => self.declared.members(index),
        };
        let more = if all.len() > TOLD { ", …" } else { "" };
        let first = all.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
        if first.is_empty() { String::new() } else { format!("; it has: {first}{more}") }
    }
}
