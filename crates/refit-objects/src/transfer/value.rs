//! Self-describing values and records, without the Rust types that they come from.
//!
//! A small closed set on purpose: anything that it cannot express (locks, handles, references) is
//! not state that another build of another implementation could read. Types are compared strictly,
//! by the name that [`Storable::type_name`](super::Storable::type_name) returns: a `u32` is not a
//! `u64`, since the way back would lose bits.

/// A value without its Rust type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `()`, `None`.
    Nothing,
    /// `bool`.
    Bool(bool),
    /// Unsigned integers, `char`.
    Unsigned(u64),
    /// Signed integers.
    Signed(i64),
    /// Floating-point numbers, exactly.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Vectors, sets, arrays, tuples, `Some`; maps as lists of pairs.
    List(Vec<Value>),
    /// A struct within a struct.
    Record(Record),
}

/// The error that a value does not fit a type.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// The value is of another kind, or out of range.
    #[error("the value is not a {0}")]
    Shape(String),
    /// A field of a nested struct.
    #[error(transparent)]
    Within(#[from] Box<FieldError>),
}

/// A struct as named fields. A good canonical state for an interface: `#[interface(…, state =
/// Record)]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The name of the struct it was created from, for messages.
    pub name: String,
    /// The fields.
    pub fields: Vec<Field>,
}

/// A field of a [`Record`].
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name, then the names it had in earlier versions.
    pub names: Vec<String>,
    /// The [`Storable::type_name`](super::Storable::type_name) of its type.
    pub type_name: String,
    /// Its value.
    pub value: Value,
}

/// The reason that a struct cannot be created from a record.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FieldError {
    /// A field is not in the record, and has no default.
    #[error(
        "{into}.{field} ({type_name}) is not in the state of {from}; \
         give it #[transfer(default)] or a default of its own"
    )]
    Missing {
        /// The struct to create.
        into: &'static str,
        /// The struct that the record was created from.
        from: String,
        /// The field.
        field: &'static str,
        /// The type of the field.
        type_name: String,
    },
    /// A field has another type.
    #[error(
        "{into}.{field} is {expected}, and {found} in the state of {from}; give the new field another name and a default"
    )]
    Type {
        /// The struct to create.
        into: &'static str,
        /// The struct that the record was created from.
        from: String,
        /// The field.
        field: &'static str,
        /// Its type in the struct.
        expected: String,
        /// Its type in the record.
        found: String,
    },
    /// The value of a field does not agree with its type: the record is damaged, or from a faulty
    /// build.
    #[error("{into}.{field} cannot be read: {mismatch}")]
    Value {
        /// The struct to create.
        into: &'static str,
        /// The field.
        field: &'static str,
        /// The mismatch.
        mismatch: Mismatch,
    },
}
