//! Names of types in casts: `struct request *`, `unsigned int`, `ns::item *`.

use std::fmt;

use refit_analysis::types::Kind;
use refit_splice::Width;

/// A type, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// The word before the name.
    pub kind: Option<Kind>,
    /// The name.
    pub name: String,
    /// The number of `*` after it.
    pub pointers: u8,
}

const KINDS: [(&str, Kind); 4] = [
    ("struct", Kind::Structure),
    ("class", Kind::Structure),
    ("union", Kind::Union),
    ("enum", Kind::Enumeration),
];

/// The most `*` of a type.
const MOST_POINTERS: u8 = 8;

/// Numbers that need no debug information, with their bytes, and whether they have a sign: those of
/// C, of `stdint.h`, of bpftrace and of Rust.
const NUMBERS: [(&str, u8, bool); 48] = [
    ("char", 1, true),
    ("signed char", 1, true),
    ("unsigned char", 1, false),
    ("short", 2, true),
    ("short int", 2, true),
    ("unsigned short", 2, false),
    ("unsigned short int", 2, false),
    ("int", 4, true),
    ("signed int", 4, true),
    ("signed", 4, true),
    ("unsigned", 4, false),
    ("unsigned int", 4, false),
    ("long", 8, true),
    ("long int", 8, true),
    ("unsigned long", 8, false),
    ("unsigned long int", 8, false),
    ("long unsigned int", 8, false),
    ("long long", 8, true),
    ("unsigned long long", 8, false),
    ("size_t", 8, false),
    ("ssize_t", 8, true),
    ("uintptr_t", 8, false),
    ("bool", 1, false),
    ("_Bool", 1, false),
    ("int8_t", 1, true),
    ("int16_t", 2, true),
    ("int32_t", 4, true),
    ("int64_t", 8, true),
    ("uint8_t", 1, false),
    ("uint16_t", 2, false),
    ("uint32_t", 4, false),
    ("uint64_t", 8, false),
    ("int8", 1, true),
    ("int16", 2, true),
    ("int32", 4, true),
    ("int64", 8, true),
    ("uint8", 1, false),
    ("uint16", 2, false),
    ("uint32", 4, false),
    ("uint64", 8, false),
    ("i8", 1, true),
    ("i16", 2, true),
    ("i32", 4, true),
    ("i64", 8, true),
    ("u8", 1, false),
    ("u16", 2, false),
    ("u32", 4, false),
    ("u64", 8, false),
];

impl TypeName {
    /// Parses the text between the brackets of a cast; `None` if it is no name of a type.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        let mut pointers = 0;
        while let Some(before) = rest.strip_suffix('*') {
            rest = before.trim_end();
            pointers += 1;
        }
        rest = rest.strip_prefix("const ").unwrap_or(rest).trim_start();
        let kind = KINDS.iter().find_map(|(word, kind)| {
            let name = rest.strip_prefix(word)?;
            name.starts_with(char::is_whitespace).then(|| (*kind, name.trim_start()))
        });
        let (kind, name) = kind.map_or((None, rest), |(kind, name)| (Some(kind), name));
        let sign = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | ':');
        // What could be an expression otherwise is a type if it is said to be one.
        let template = |sign: char| matches!(sign, '<' | '>' | ',' | ' ' | '*');
        let certain = kind.is_some() || pointers > 0;
        let words = name.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_')
            && name.chars().all(|one| sign(one) || certain && template(one));
        let found = Self { kind, name: name.to_owned(), pointers };
        let reserved = KINDS.iter().any(|(word, _)| *word == name);
        let known = words && !reserved || found.number().is_some();
        (known && pointers <= MOST_POINTERS).then_some(found)
    }

    /// Returns the type of numbers of a width, or of their addresses.
    pub(crate) fn of(width: Width, pointers: u8) -> Self {
        let name = match width {
            Width::U8 => "u8",
            Width::U16 => "u16",
            Width::U32 => "u32",
            Width::Whole => "u64",
            Width::I8 => "i8",
            Width::I16 => "i16",
            Width::I32 => "i32",
        };
        Self { kind: None, name: name.to_owned(), pointers }
    }

    /// Returns the bytes of a number that needs no debug information, and whether it has a sign.
    /// The pointers do not count.
    pub(crate) fn number(&self) -> Option<(u8, bool)> {
        let found = NUMBERS.iter().find(|(name, ..)| *name == self.name);
        let found = found.map(|(_, bytes, signed)| (*bytes, *signed));
        found.filter(|_| self.kind.is_none())
    }

    /// Whether no expression can look like it.
    pub(crate) fn is_certain(&self) -> bool {
        self.kind.is_some() || self.pointers > 0 || self.number().is_some()
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = KINDS.iter().find(|(_, kind)| Some(*kind) == self.kind);
        if let Some((word, _)) = word {
            write!(to, "{word} ")?;
        }
        to.write_str(&self.name)?;
        match self.pointers {
            0 => Ok(()),
            count => write!(to, " {}", "*".repeat(count.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_understood_and_shown() {
        for (text, said, certain) in [
            ("struct request *", "struct request *", true),
            ("const char*", "char *", true),
            ("union u * *", "union u **", true),
            ("unsigned int", "unsigned int", true),
            ("uint64", "uint64", true),
            ("ngx_str_t", "ngx_str_t", false),
            ("std::vector<int, a> *", "std::vector<int, a> *", true),
            ("structure", "structure", false),
        ] {
            let name = TypeName::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((name.to_string().as_str(), name.is_certain()), (said, certain));
        }
        for text in ["", "*", "1", "a + b", "a b", "struct", "struct *", "a < b", "arg0 * 2"] {
            let name = TypeName::parse(text);
            assert!(name.as_ref().is_none_or(|name| !name.is_certain()), "{text}: {name:?}");
        }
    }

    #[test]
    fn numbers_of_c_need_no_debug_information() {
        let number = |text: &str| TypeName::parse(text).and_then(|name| name.number());
        assert_eq!(number("unsigned short *"), Some((2, false)));
        assert_eq!(number("long"), Some((8, true)));
        assert_eq!(number("struct int"), None);
        assert_eq!(number("u64"), Some((8, false)));
    }
}
