//! Self-describing values, of which the fields of a [`Record`](super::Record) consist.
//!
//! A small closed set on purpose: anything that it cannot express (locks, handles, references) is
//! not state that another build of another implementation could read. Types are compared strictly,
//! by the name that [`Storable::type_name`] returns: a `u32` is not a `u64`, since the way back
//! would lose bits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;

use super::record::{FieldError, Record};

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

/// A type that a field of a record can have.
pub trait Storable: Sized {
    /// Returns the name of the type, the same in every build.
    fn type_name() -> String;
    /// Converts to a value.
    fn to_value(&self) -> Value;
    /// Converts from a value.
    ///
    /// # Errors
    /// It is not a value of this type.
    fn from_value(value: Value) -> Result<Self, Mismatch>;
}

fn shape<T: Storable>() -> Mismatch {
    Mismatch::Shape(T::type_name())
}

macro_rules! integers {
    ($variant:ident, $wide:ty: $($type:ty),*) => {$(
        impl Storable for $type {
            fn type_name() -> String {
                stringify!($type).to_owned()
            }
            fn to_value(&self) -> Value {
                Value::$variant(*self as $wide)
            }
            fn from_value(value: Value) -> Result<Self, Mismatch> {
                let Value::$variant(n) = value else { return Err(shape::<Self>()) };
                Self::try_from(n).map_err(|_| shape::<Self>())
            }
        }
    )*};
}

integers!(Unsigned, u64: u8, u16, u32, u64, usize);
integers!(Signed, i64: i8, i16, i32, i64, isize);

macro_rules! plain {
    ($($type:ty, $name:literal: $to:expr, $from:pat => $value:expr;)*) => {$(
        impl Storable for $type {
            fn type_name() -> String {
                $name.to_owned()
            }
            fn to_value(&self) -> Value {
                $to(self)
            }
            fn from_value(value: Value) -> Result<Self, Mismatch> {
                match value {
                    $from => $value,
                    _ => Err(shape::<Self>()),
                }
            }
        }
    )*};
}

plain! {
    (), "nothing": |_: &()| Value::Nothing, Value::Nothing => Ok(());
    bool, "bool": |b: &bool| Value::Bool(*b), Value::Bool(b) => Ok(b);
    char, "char": |c: &char| Value::Unsigned(u64::from(*c)), Value::Unsigned(n) =>
        u32::try_from(n).ok().and_then(char::from_u32).ok_or_else(shape::<char>);
    f64, "f64": |x: &f64| Value::Float(*x), Value::Float(x) => Ok(x);
    f32, "f32": |x: &f32| Value::Float(f64::from(*x)), Value::Float(x) => Ok(x as f32);
    String, "text": |s: &String| Value::Text(s.clone()), Value::Text(s) => Ok(s);
    std::time::Duration, "duration": |d: &std::time::Duration| Value::List(vec![
        Value::Unsigned(d.as_secs()), Value::Unsigned(u64::from(d.subsec_nanos()))]),
        Value::List(parts) => match parts[..] {
            [Value::Unsigned(s), Value::Unsigned(n @ 0..1_000_000_000)] =>
                Ok(std::time::Duration::new(s, n as u32)),
            _ => Err(shape::<std::time::Duration>()),
        };
}

/// Converts bytes, which are stored as bytes instead of a list of small numbers.
fn bytes_to_list(bytes: Vec<u8>) -> Vec<Value> {
    bytes.into_iter().map(|b| Value::Unsigned(u64::from(b))).collect()
}

fn list<T: Storable>(value: Value) -> Result<Vec<Value>, Mismatch> {
    match value {
        Value::List(items) => Ok(items),
        Value::Bytes(bytes) => Ok(bytes_to_list(bytes)),
        _ => Err(shape::<T>()),
    }
}

fn listed<'a, T: Storable + 'a>(items: impl Iterator<Item = &'a T>) -> Value {
    let items: Vec<Value> = items.map(Storable::to_value).collect();
    if T::type_name() == "u8" {
        let byte =
            |v: &Value| if let Value::Unsigned(b) = v { u8::try_from(*b).ok() } else { None };
        return Value::Bytes(items.iter().filter_map(byte).collect());
    }
    Value::List(items)
}

impl<T: Storable> Storable for Option<T> {
    fn type_name() -> String {
        format!("optional {}", T::type_name())
    }
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Nothing, |item| Value::List(vec![item.to_value()]))
    }
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        match value {
            Value::Nothing => Ok(None),
            Value::List(mut items) if items.len() == 1 => T::from_value(items.remove(0)).map(Some),
            _ => Err(shape::<Self>()),
        }
    }
}

impl<T: Storable> Storable for Box<T> {
    fn type_name() -> String {
        T::type_name()
    }
    fn to_value(&self) -> Value {
        (**self).to_value()
    }
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        T::from_value(value).map(Box::new)
    }
}

impl<T: Storable, const N: usize> Storable for [T; N] {
    fn type_name() -> String {
        format!("{N} of {}", T::type_name())
    }
    fn to_value(&self) -> Value {
        listed(self.iter())
    }
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        let items: Vec<T> =
            list::<Self>(value)?.into_iter().map(T::from_value).collect::<Result<_, _>>()?;
        items.try_into().map_err(|_| shape::<Self>())
    }
}

macro_rules! collections {
    ($($type:ident $(where $bound:ident)*: $name:literal;)*) => {$(
        impl<T: Storable $(+ $bound)* + Eq> Storable for $type<T> {
            fn type_name() -> String {
                format!(concat!($name, " of {}"), T::type_name())
            }
            fn to_value(&self) -> Value {
                listed(self.iter())
            }
            fn from_value(value: Value) -> Result<Self, Mismatch> {
                list::<Self>(value)?.into_iter().map(T::from_value).collect()
            }
        }
    )*};
}

// Sets may become other sets, since their elements are the same.
collections! {
    BTreeSet where Ord: "set";
    HashSet where Hash: "set";
}

macro_rules! sequences {
    ($($type:ident),*) => {$(
        impl<T: Storable> Storable for $type<T> {
            fn type_name() -> String {
                format!("list of {}", T::type_name())
            }
            fn to_value(&self) -> Value {
                listed(self.iter())
            }
            fn from_value(value: Value) -> Result<Self, Mismatch> {
                list::<Self>(value)?.into_iter().map(T::from_value).collect()
            }
        }
    )*};
}

sequences!(Vec, VecDeque);

macro_rules! maps {
    ($($type:ident where $($bound:ident)*;)*) => {$(
        impl<K: Storable $(+ $bound)*, V: Storable> Storable for $type<K, V> {
            fn type_name() -> String {
                format!("map of {} to {}", K::type_name(), V::type_name())
            }
            fn to_value(&self) -> Value {
                let pair = |(k, v): (&K, &V)| Value::List(vec![k.to_value(), v.to_value()]);
                Value::List(self.iter().map(pair).collect())
            }
            fn from_value(value: Value) -> Result<Self, Mismatch> {
                list::<Self>(value)?.into_iter().map(<(K, V)>::from_value).collect()
            }
        }
    )*};
}

maps! {
    BTreeMap where Ord;
    HashMap where Eq Hash;
}

macro_rules! tuples {
    ($($($type:ident $item:ident),+;)*) => {$(
        impl<$($type: Storable),+> Storable for ($($type,)+) {
            fn type_name() -> String {
                format!("({})", [$($type::type_name()),+].join(", "))
            }
            fn to_value(&self) -> Value {
                let ($($item,)+) = self;
                Value::List(vec![$($item.to_value()),+])
            }
            fn from_value(value: Value) -> Result<Self, Mismatch> {
                let mut items = list::<Self>(value)?.into_iter();
                $(let $item = $type::from_value(items.next().ok_or_else(shape::<Self>)?)?;)+
                if items.next().is_some() { Err(shape::<Self>()) } else { Ok(($($item,)+)) }
            }
        }
    )*};
}

tuples! {
    A a;
    A a, B b;
    A a, B b, C c;
    A a, B b, C c, D d;
}
