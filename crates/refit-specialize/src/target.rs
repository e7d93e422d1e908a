//! The function and the argument that are asked for, as text.

use std::str::FromStr;

/// A function, one of its arguments, and perhaps the value: `malloc(arg0)`, `libc:malloc(arg0=24)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The function, or file and function.
    pub function: String,
    /// The argument, counted from 0.
    pub argument: u8,
    /// The value, if it is given.
    pub value: Option<u64>,
}

/// Why a text names no argument of a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// The text has another form.
    #[error("{text:?} is not of the form FUNCTION(argN) or FUNCTION(argN=VALUE)")]
    Form {
        /// The text.
        text: String,
    },
    /// The argument is not in a register.
    #[error("{name:?} is no argument in a register: those are arg0 to arg5")]
    Argument {
        /// The argument.
        name: String,
    },
    /// The value is no number.
    #[error("{text:?} is no number of 64 bits")]
    Value {
        /// The text.
        text: String,
    },
}

impl FromStr for Target {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let form = || NoTarget::Form { text: text.to_owned() };
        let (function, inner) = text
            .trim()
            .strip_suffix(')')
            .and_then(|text| text.rsplit_once('('))
            .ok_or_else(form)?;
        let (name, value) = match inner.split_once('=') {
            Some((name, value)) => (name.trim(), Some(number(value.trim())?)),
            None => (inner.trim(), None),
        };
        let none = || NoTarget::Argument { name: name.to_owned() };
        let argument: u8 =
            name.strip_prefix("arg").and_then(|digits| digits.parse().ok()).ok_or_else(none)?;
        if argument >= 6 {
            return Err(none());
        }
        if function.trim().is_empty() {
            return Err(form());
        }
        Ok(Self { function: function.trim().to_owned(), argument, value })
    }
}

fn number(text: &str) -> Result<u64, NoTarget> {
    let found = match (text.strip_prefix("0x"), text.strip_prefix('-')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (_, Some(_)) => text.parse::<i64>().ok().map(i64::cast_unsigned),
        _ => text.parse().ok(),
    };
    found.ok_or_else(|| NoTarget::Value { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_understood_or_refused() {
        let target: Target = "libc:malloc(arg0 = 0x18)".parse().expect("a target");
        assert_eq!((target.function.as_str(), target.argument), ("libc:malloc", 0));
        assert_eq!(target.value, Some(24));
        let signed: Target = "f(int)(arg1=-1)".parse().expect("a target");
        assert_eq!((signed.function.as_str(), signed.value), ("f(int)", Some(u64::MAX)));
        for wrong in ["malloc", "malloc()", "(arg0)", "f(arg6)", "f(argc)", "f(arg0=x)", "f(arg0"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
