//! Records: state as named fields, so that versions of a struct can transfer it to each other in
//! both directions.
//!
//! `#[derive(Transfer)]` generates the two functions. The importing side decides what happens to a
//! field that only one side has, since that side must be able to continue:
//!
//! | the record has | the struct has | what happens |
//! |---|---|---|
//! | `f: T` | `f: T` | it is taken |
//! | `f: T` | `f: U` | [`FieldError::Type`] names both types |
//! | `f: T` | `#[transfer(was = "f")] g: T` | it is taken; on the way back, `g` is also `f` |
//! | `f: T` | nothing of that name | dropped, with a note in the change's report |
//! | nothing | `#[transfer(default)]` or `default = …` | the default, with a note |
//! | nothing | a plain field | [`FieldError::Missing`] names it |

use super::TransferError;
use super::notes::note;
use super::storable::Storable;
use super::value::{Field, FieldError, Mismatch, Record, Value};

impl From<FieldError> for TransferError {
    fn from(error: FieldError) -> Self {
        TransferError(error.to_string())
    }
}

/// Plain state that can be transferred field by field. Derive it.
pub trait Transfer: Sized {
    /// The name of the struct.
    const NAME: &'static str;
    /// Returns a record of all fields that are transferred.
    fn to_record(&self) -> Record;
    /// Creates the struct from the fields that it knows. Fields that are dropped or defaulted are
    /// [noted](super::note()).
    ///
    /// # Errors
    /// A field is missing or has another type.
    fn from_record(record: Record) -> Result<Self, FieldError>;
}

/// Converts a nested struct, for the [`Storable`] that `#[derive(Transfer)]` generates as well: a
/// struct is a field of another struct as a record. Called by derived code.
#[doc(hidden)]
pub fn nested<T: Transfer>(value: Value) -> Result<T, Mismatch> {
    let Value::Record(record) = value else { return Err(Mismatch::Shape(T::NAME.to_owned())) };
    T::from_record(record).map_err(|error| Mismatch::Within(Box::new(error)))
}

impl Record {
    /// Adds a field; `names` are its name and its former ones. Called by derived code.
    pub fn put<T: Storable>(&mut self, names: &[&str], value: &T) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.fields.push(Field { names, type_name: T::type_name(), value: value.to_value() });
    }

    /// Removes a field by any of its names: the current one before former ones. `Ok(None)` if there
    /// is none. Called by derived code.
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

    /// Handles a missing field that has a default. Called by derived code.
    #[doc(hidden)]
    pub fn defaulted<T>(&self, into: &str, field: &str, value: T) -> T {
        note(format!(
            "{into}.{field} is not in the state of {}: it starts with its default",
            self.name
        ));
        value
    }

    /// Handles a missing field that has no default. Called by derived code.
    #[doc(hidden)]
    pub fn missing<T: Storable>(&self, into: &'static str, field: &'static str) -> FieldError {
        FieldError::Missing { into, from: self.name.clone(), field, type_name: T::type_name() }
    }

    /// Drops the fields that were not taken. Called by derived code.
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
