//! The maps of a script that keep functions and addresses of structures, as far as its text says.

use std::collections::BTreeSet;

use crate::argument::Argument;
use crate::arithmetic;
use crate::expression::{self, call, split};
use crate::quotes::Quotes;

/// The maps of a script to which something else than plain numbers is assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapKinds {
    /// Maps that keep functions.
    pub(crate) functions: BTreeSet<String>,
    /// Maps that may keep addresses whose type is known.
    pub(crate) typed: BTreeSet<String>,
}

impl MapKinds {
    /// Finds the assignments in a text: `@name[tid] = func`, `@name[tid] = (struct request *)arg0`.
    pub(crate) fn of(text: &str) -> Self {
        let mut quotes = Quotes::default();
        let begins = text.char_indices().filter(|&(_, sign)| {
            quotes.pass(sign);
            sign == '@' && !quotes.within
        });
        let mut found = Self::default();
        for (at, _) in begins {
            let rest = &text[at + 1..];
            let end = rest.find([';', '{', '}']).unwrap_or(rest.len());
            let assignment = split(&rest[..end]).next().unwrap_or_default();
            let [map, ..] = arithmetic::split_at(assignment, "=")[..] else { continue };
            let Some(value) = assignment.get(map.len() + 1..).map(str::trim) else { continue };
            let Ok((name, _)) = expression::map(map) else { continue };
            if value == "func" || call(value, "usym").is_some() {
                found.functions.insert(name);
            } else if Argument::parse(value).is_ok_and(|value| value.typed() > 0) {
                found.typed.insert(name);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_found_by_their_assignments() {
        let text = "uprobe:a:b /@n == $x/ { @f[tid, comm]=func; @u = usym(arg0); @n = arg0 == func; printf(\"@t = func\"); @[func] = count() }
            uprobe:a:c { @p[tid] = (struct a *)arg0, @q = $x; @r += $y; @s = nsecs }";
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let found = MapKinds::of(text);
        let wanted = MapKinds { functions: names(&["f", "u"]), typed: names(&["p", "q"]) };
        assert_eq!(found, wanted);
    }
}
