//! Divides the ways to members of structures: `args->request->uri`,
//! `((struct request *)arg0)->tries[2]`.
//!
//! ```text
//! path := '&' path | '*' argument | '(' type ')' argument
//!       | 'args' ('->' | '.') NAME | argument ('->' NAME | '.' NAME | '[' argument ']')
//! ```

use crate::quotes;
use crate::type_name::TypeName;

/// The last step of a way, and what is before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path<'t> {
    /// The address of a member.
    Address(&'t str),
    /// The value at an address.
    Deref(&'t str),
    /// A number as a value of a type.
    Cast(TypeName, &'t str),
    /// A parameter of the function.
    Parameter(&'t str),
    /// The member of the structure at an address.
    Arrow(&'t str, &'t str),
    /// The member of a structure.
    Dot(&'t str, &'t str),
    /// An element of an array.
    Index(&'t str, &'t str),
}

/// Divides a text that has no operator outside of brackets; `None` if it is no such way.
pub(crate) fn divide(text: &str) -> Option<Path<'_>> {
    let text = text.trim();
    if let Some(of) = text.strip_prefix('&') {
        return Some(Path::Address(of));
    }
    if let Some(of) = text.strip_prefix('*') {
        return Some(Path::Deref(of));
    }
    cast(text).or_else(|| element(text)).or_else(|| member(text))
}

fn cast(text: &str) -> Option<Path<'_>> {
    let inner = text.strip_prefix('(')?;
    // The first sign that is outside of brackets closes the first of these.
    let (end, _) = quotes::outside(text).next()?;
    let name = TypeName::parse(inner.get(..end - 1)?)?;
    let of = text[end..].strip_prefix(')').filter(|of| !of.trim().is_empty())?;
    Some(Path::Cast(name, of))
}

fn element(text: &str) -> Option<Path<'_>> {
    let inner = text.strip_suffix(']')?;
    let outside: Vec<_> = quotes::outside(text).collect();
    let (_, before) = outside.split_last()?;
    let &(at, sign) = before.last()?;
    let (array, index) = inner.split_at_checked(at + sign.len_utf8())?;
    let array = array.trim_end();
    // The key of a map is in brackets, too.
    let named = |rest: &str| rest.chars().all(|sign| sign.is_alphanumeric() || sign == '_');
    let map = array.strip_prefix('@').is_some_and(named);
    let index = index.strip_prefix('[').filter(|_| !map)?;
    Some(Path::Index(array, index))
}

fn member(text: &str) -> Option<Path<'_>> {
    let begin = text.rfind(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_')? + 1;
    let (before, name) = text.split_at_checked(begin)?;
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    let before = before.trim_end();
    let arrow = before.strip_suffix("->");
    let of = arrow.or_else(|| before.strip_suffix('.'))?.trim_end();
    match (of, arrow) {
        ("", _) => None,
        ("args", _) => Some(Path::Parameter(name)),
        (of, Some(_)) => Some(Path::Arrow(of, name)),
        (of, None) => Some(Path::Dot(of, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_divided_at_their_last_step() {
        let request = || TypeName::parse("struct request *").expect("a type");
        for (text, path) in [
            ("args->size", Path::Parameter("size")),
            (" args.size ", Path::Parameter("size")),
            ("args->a->b", Path::Arrow("args->a", "b")),
            ("$p -> a . b", Path::Dot("$p -> a", "b")),
            ("((struct request *)arg0)->uri", Path::Arrow("((struct request *)arg0)", "uri")),
            ("(struct request *)arg0", Path::Cast(request(), "arg0")),
            ("(struct request *)$p->a", Path::Cast(request(), "$p->a")),
            ("*$p->a", Path::Deref("$p->a")),
            ("&$p->a[1]", Path::Address("$p->a[1]")),
            ("$p->a[@x[1]]", Path::Index("$p->a", "@x[1]")),
            ("(*$p)[1][arg0 + 2]", Path::Index("(*$p)[1]", "arg0 + 2")),
            ("@x[tid][0]", Path::Index("@x[tid]", "0")),
        ] {
            assert_eq!(divide(text), Some(path), "{text}");
        }
        for text in [
            "",
            "a",
            "arg0",
            "@x[1]",
            "@[a, b]",
            "(arg0)",
            "->a",
            ".a",
            "1.5",
            "a]",
            "é]",
            "é.é",
            "\"a->b\"",
            "str(a->b)",
            "[0]",
            "(u32)",
            "]",
        ] {
            assert_eq!(divide(text), None, "{text}");
        }
    }
}
