//! Arguments and results as a wrapper that does not know the interface sees and changes them.
//!
//! A number can be replaced by any other number of its type. A slice, a string or a vector can only
//! be shortened at its end, since a longer one would need invented contents. All other types are
//! opaque.

/// The visible value of an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Unsigned(u64),
    /// A number that can be negative.
    Signed(i64),
    /// The length of a slice, a string or a vector.
    Length(u64),
    /// No visible value.
    Opaque,
}

impl Value {
    /// Returns the value if it is a number; negative numbers count as 0.
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Unsigned(n) | Value::Length(n) => Some(n),
            Value::Signed(n) => Some(u64::try_from(n).unwrap_or(0)),
            Value::Opaque => None,
        }
    }

    /// Returns the value as a number of a type, if it is one of that type; a length is not.
    fn as_number<N: TryFrom<u64> + TryFrom<i64>>(self) -> Option<N> {
        match self {
            Value::Unsigned(n) => n.try_into().ok(),
            Value::Signed(n) => n.try_into().ok(),
            Value::Length(_) | Value::Opaque => None,
        }
    }
}

/// The kind of [`Value`] that an argument has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A length.
    Length,
    /// No visible value.
    Opaque,
}

/// A type whose values wrappers can see without knowing the interface. Other types are opaque to
/// them.
pub trait Argument {
    /// The kind of value.
    const KIND: Kind;

    /// Returns the value.
    fn value(&self) -> Value;

    /// Replaces the value if this type can have the new one. Returns whether it did; a type that
    /// cannot be changed returns false.
    fn set(&mut self, value: Value) -> bool {
        let _ = value;
        false
    }
}

macro_rules! numbers {
    ($($ty:ty => $variant:ident as $wide:ty),*) => {$(
        impl Argument for $ty {
            const KIND: Kind = Kind::Number;
            #[inline]
            fn value(&self) -> Value {
                Value::$variant(*self as $wide)
            }
            fn set(&mut self, value: Value) -> bool {
                value.as_number().map(|number| *self = number).is_some()
            }
        }
    )*};
}

numbers!(u8 => Unsigned as u64, u16 => Unsigned as u64, u32 => Unsigned as u64, u64 => Unsigned as u64,
    usize => Unsigned as u64, i8 => Signed as i64, i16 => Signed as i64, i32 => Signed as i64, i64 => Signed as i64,
    isize => Signed as i64);

impl Argument for bool {
    const KIND: Kind = Kind::Number;
    fn value(&self) -> Value {
        Value::Unsigned(u64::from(*self))
    }
    fn set(&mut self, value: Value) -> bool {
        let number: Option<u8> = value.as_number();
        number.filter(|n| *n <= 1).map(|n| *self = n == 1).is_some()
    }
}

/// Implements `Argument` for types that have a length and can be shortened.
macro_rules! lengths {
    ($([$($parameter:ident)?] $ty:ty, |$this:ident, $length:ident| $cut:expr;)*) => {$(
        impl$(<$parameter>)? Argument for $ty {
            const KIND: Kind = Kind::Length;
            #[inline]
            fn value(&self) -> Value {
                Value::Length(self.len() as u64)
            }
            fn set(&mut self, value: Value) -> bool {
                let Value::Length(length) = value else { return false };
                let Ok($length) = usize::try_from(length) else { return false };
                let $this = self;
                if $length > $this.len() {
                    return false;
                }
                $cut
            }
        }
    )*};
}

lengths! {
    [T] &[T], |this, length| { *this = &this[..length]; true };
    [T] &mut [T], |this, length| { *this = &mut std::mem::take(this)[..length]; true };
    [T] Vec<T>, |this, length| { this.truncate(length); true };
    [T] &Vec<T>, |this, length| length == this.len();
    [T] &mut Vec<T>, |this, length| { this.truncate(length); true };
    [] &str, |this, length| this.get(..length).map(|start| *this = start).is_some();
    [] String, |this, length| {
        let whole = this.is_char_boundary(length);
        if whole { this.truncate(length) }
        whole
    };
    [] &String, |this, length| length == this.len();
}

/// Shows the contained value; an error shows nothing.
impl<T: Argument, E> Argument for Result<T, E> {
    const KIND: Kind = T::KIND;
    #[inline]
    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Opaque, Argument::value)
    }
    fn set(&mut self, value: Value) -> bool {
        self.as_mut().is_ok_and(|inner| inner.set(value))
    }
}

/// As for results.
impl<T: Argument> Argument for Option<T> {
    const KIND: Kind = T::KIND;
    #[inline]
    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Opaque, Argument::value)
    }
    fn set(&mut self, value: Value) -> bool {
        self.as_mut().is_some_and(|inner| inner.set(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after<A: Argument + Clone>(mut argument: A, value: Value) -> (bool, A) {
        (argument.set(value), argument)
    }

    #[test]
    fn numbers_take_what_their_type_can_hold() {
        assert_eq!(after(1_u8, Value::Unsigned(255)), (true, 255));
        assert_eq!(after(1_u8, Value::Unsigned(256)), (false, 1));
        assert_eq!(after(1_u64, Value::Signed(-1)), (false, 1));
        assert_eq!(after(1_i8, Value::Signed(-128)), (true, -128));
        assert_eq!(after(1_usize, Value::Length(3)), (false, 1));
        assert_eq!(after(false, Value::Unsigned(1)), (true, true));
        assert_eq!(after(false, Value::Unsigned(2)), (false, false));
    }

    #[test]
    fn what_has_a_length_is_cut_off_and_never_made_longer() {
        assert_eq!(after(&[1, 2, 3][..], Value::Length(2)), (true, &[1, 2][..]));
        assert_eq!(after(&[1][..], Value::Length(2)), (false, &[1][..]));
        assert_eq!(after(vec![1, 2], Value::Length(0)), (true, vec![]));
        assert_eq!(after("häh", Value::Length(3)), (true, "hä"));
        assert_eq!(after("häh", Value::Length(2)), (false, "häh"), "not within a character");
        assert_eq!(after("häh".to_owned(), Value::Length(2)), (false, "häh".to_owned()));
        assert_eq!(after("ha", Value::Unsigned(1)), (false, "ha"));
        let (mut bytes, whole) = ([1, 2, 3], vec![1, 2]);
        let mut start = &mut bytes[..];
        assert!(start.set(Value::Length(1)));
        assert_eq!(start, [1]);
        assert_eq!(after(&whole, Value::Length(1)), (false, &whole), "it is somebody else's");
    }

    #[test]
    fn of_results_what_is_in_them_counts() {
        assert_eq!(Ok::<_, ()>(3_u32).value(), Value::Unsigned(3));
        assert_eq!(Err::<u32, _>(()).value(), Value::Opaque);
        assert_eq!(after(Ok::<_, ()>(3_u32), Value::Unsigned(4)), (true, Ok(4)));
        assert_eq!(after(Err::<u32, _>(7), Value::Unsigned(4)), (false, Err(7)));
        assert_eq!(after(None::<u8>, Value::Unsigned(4)), (false, None));
    }
}
