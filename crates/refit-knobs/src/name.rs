//! Names of knobs: `FUNCTION+0xOFFSET:USE`.

use std::fmt;
use std::str::FromStr;

/// The knob that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// By a function, the distance from its entry, and the use, which may be left out.
    Offset {
        /// Name of the function.
        function: String,
        /// Distance of the instruction from the entry.
        offset: i64,
        /// The word for the use.
        usage: Option<String>,
    },
    /// By the address of the instruction.
    Address(u64),
}

/// A text is not the name of a knob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the name of a knob: that is FUNCTION+0xOFFSET:USE, or an address, 0xADDRESS"
)]
pub struct NoName {
    /// The text.
    pub text: String,
}

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let wrong = || NoName { text: text.to_owned() };
        if let Some(digits) = text.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).map(Self::Address).map_err(|_| wrong());
        }
        let at = text.rfind("+0x").max(text.rfind("-0x")).filter(|&at| at > 0).ok_or_else(wrong)?;
        let (function, rest) = text.split_at(at);
        let (digits, usage) = match rest[3..].split_once(':') {
            Some((digits, usage)) if !usage.is_empty() => (digits, Some(usage.to_owned())),
            Some(_) => return Err(wrong()),
            None => (&rest[3..], None),
        };
        let offset = u32::from_str_radix(digits, 16).map_err(|_| wrong())?;
        let offset = if rest.starts_with('-') { -i64::from(offset) } else { i64::from(offset) };
        Ok(Self::Offset { function: function.to_owned(), offset, usage })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Offset { function, offset, usage } => {
                let sign = if *offset < 0 { '-' } else { '+' };
                write!(f, "{function}{sign}{:#x}", offset.unsigned_abs())?;
                usage.as_ref().map_or(Ok(()), |usage| write!(f, ":{usage}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were() {
        for text in
            ["work+0x1f:spin", "a::b+c+0x2", "cold-0x40:limit", "0x401000", "x+0x0:argument3"]
        {
            let name: Name = text.parse().expect("a name");
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_no_names() {
        for text in ["", "work", "+0x1", "0x", "0xg", "a+0x", "a+0x1:", "a+0x1ffffffff", "a+0x-1"] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }
}
