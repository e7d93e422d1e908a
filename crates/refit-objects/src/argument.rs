//! What a wrapper that does not know the interface sees of arguments and results, and what it may do to them.
//!
//! A number can become any other number of its type. Of something that has a length only the end can be cut off: what
//! is longer would have to be made up. Everything else is opaque.

/// What is seen of an argument or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Unsigned(u64),
    /// A number that can be negative.
    Signed(i64),
    /// Length of a slice, a string or a vector.
    Length(u64),
    /// Nothing.
    Opaque,
}

impl Value {
    /// As one number, if it is one; negative numbers count as 0.
    pub fn number(self) -> Option<u64> {
        match self {
            Value::Unsigned(n) | Value::Length(n) => Some(n),
            Value::Signed(n) => Some(u64::try_from(n).unwrap_or(0)),
            Value::Opaque => None,
        }
    }

    /// As a number of a type, if it is one of that type; a length is none.
    fn as_number<N: TryFrom<u64> + TryFrom<i64>>(self) -> Option<N> {
        match self {
            Value::Unsigned(n) => n.try_into().ok(),
            Value::Signed(n) => n.try_into().ok(),
            Value::Length(_) | Value::Opaque => None,
        }
    }
}

/// What sort of [`Value`] an argument shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// The length of something.
    Length,
    /// Nothing.
    Opaque,
}

/// A type whose values wrappers can see without knowing the interface. Types without it are opaque to them.
pub trait Argument {
    /// What is seen.
    const KIND: Kind;

    /// The value.
    fn value(&self) -> Value;

    /// Takes another value, if it is one that this type can have; whether it did. What cannot be changed says no.
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

/// What has a length, and how it is cut off at one that is not beyond its end.
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

/// What is in it counts; an error shows nothing.
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
