//! Records: state as fields with names, so that versions of a struct can hand it to each other in both directions.
//!
//! `#[derive(Transfer)]` writes the two functions. What happens to a field that only one side has, is said by the side
//! that imports, since it is the one that must be able to go on:
//!
//! | the record has | the struct has | what happens |
//! |---|---|---|
//! | `f: T` | `f: T` | it is taken |
//! | `f: T` | `f: U` | [`FieldError::Type`] names both types |
//! | `f: T` | `#[transfer(was = "f")] g: T` | it is taken; on the way back, `g` is also known as `f` |
//! | `f: T` | nothing of that name | dropped, with a note in the change's report |
//! | nothing | `#[transfer(default)]` or `default = …` | the default, with a note |
//! | nothing | a plain field | [`FieldError::Missing`] names it |

use super::TransferError;
use super::notes::note;
use super::value::{Mismatch, Storable, Value};

/// A struct as fields with names. A good canonical state for an interface: `#[interface(…, state = Record)]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Name of the struct it was made from; for messages.
    pub name: String,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// A field of a [`Record`].
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name, then the names it had in earlier versions.
    pub names: Vec<String>,
    /// [`Storable::type_name`] of its type.
    pub type_name: String,
    /// What is in it.
    pub value: Value,
}

/// Why a struct cannot be made of a record.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FieldError {
    /// It is not in the record, and there is no default.
    #[error(
        "{into}.{field} ({type_name}) is not in the state of {from}; \
         give it #[transfer(default)] or a default of its own"
    )]
    Missing {
        /// The struct that is to be made.
        into: &'static str,
        /// The struct that the record was made from.
        from: String,
        /// The field.
        field: &'static str,
        /// Its type.
        type_name: String,
    },
    /// It has another type.
    #[error(
        "{into}.{field} is {expected}, and {found} in the state of {from}; give the new one another name and a default"
    )]
    Type {
        /// The struct that is to be made.
        into: &'static str,
        /// The struct that the record was made from.
        from: String,
        /// The field.
        field: &'static str,
        /// Its type in the struct.
        expected: String,
        /// Its type in the record.
        found: String,
    },
    /// Its value is not what its type promises: the record is damaged, or of a build that lies.
    #[error("{into}.{field} cannot be read: {mismatch}")]
    Value {
        /// The struct that is to be made.
        into: &'static str,
        /// The field.
        field: &'static str,
        /// What is wrong.
        mismatch: Mismatch,
    },
}

impl From<FieldError> for TransferError {
    fn from(error: FieldError) -> Self {
        TransferError(error.to_string())
    }
}

/// Plain state that can be handed over field by field. Derive it.
pub trait Transfer: Sized {
    /// Name of the struct.
    const NAME: &'static str;
    /// All fields that are to be handed over.
    fn to_record(&self) -> Record;
    /// Takes what it knows out of a record. What is dropped or defaulted is [noted](super::note()).
    ///
    /// # Errors
    /// A field is missing or has another type.
    fn from_record(record: Record) -> Result<Self, FieldError>;
}

/// For the [`Storable`] that `#[derive(Transfer)]` writes beside: a struct is a field of another struct as a record.
/// Called by derived code.
#[doc(hidden)]
pub fn nested<T: Transfer>(value: Value) -> Result<T, Mismatch> {
    let Value::Record(record) = value else { return Err(Mismatch::Shape(T::NAME.to_owned())) };
    T::from_record(record).map_err(|error| Mismatch::Within(Box::new(error)))
}

impl Record {
    /// Adds a field; `names` are its name and those it had. Called by derived code.
    pub fn put<T: Storable>(&mut self, names: &[&str], value: &T) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.fields.push(Field { names, type_name: T::type_name(), value: value.to_value() });
    }

    /// Takes a field out by any of its names: exact before former. `Ok(None)` if there is none. Called by derived code.
    ///
    /// # Errors
    /// It has another type, or its value is damaged.
    pub fn take<T: Storable>(
        &mut self,
        into: &'static str,
        field: &'static str,
        former: &[&str],
    ) -> Result<Option<T>, FieldError> {
        let current = |f: &Field| f.names.first().is_some_and(|name| name == field);
        let once = |f: &Field| f.names.iter().any(|n| n == field || former.contains(&n.as_str()));
        let place = self.fields.iter().position(current);
        let Some(place) = place.or_else(|| self.fields.iter().position(once)) else {
            return Ok(None);
        };
        let Field { type_name: found, value, .. } = self.fields.swap_remove(place);
        let expected = T::type_name();
        if found != expected {
            let from = self.name.clone();
            return Err(FieldError::Type { into, from, field, expected, found });
        }
        T::from_value(value).map(Some).map_err(|m| FieldError::Value { into, field, mismatch: m })
    }

    /// A field that is not there and has a default. Called by derived code.
    #[doc(hidden)]
    pub fn defaulted<T>(&self, into: &str, field: &str, value: T) -> T {
        note(format!(
            "{into}.{field} is not in the state of {}: it starts with its default",
            self.name
        ));
        value
    }

    /// A field that is not there and must be. Called by derived code.
    #[doc(hidden)]
    pub fn missing<T: Storable>(&self, into: &'static str, field: &'static str) -> FieldError {
        FieldError::Missing { into, from: self.name.clone(), field, type_name: T::type_name() }
    }

    /// What nobody took is dropped. Called by derived code.
    #[doc(hidden)]
    pub fn dropped(self, into: &str) {
        for field in &self.fields {
            let name = field.names.first().map_or("", String::as_str);
            note(format!(
                "{}.{name} ({}) is dropped: {into} has no such field",
                self.name, field.type_name
            ));
        }
    }
}
