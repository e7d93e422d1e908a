//! The words of which the names of C's numbers consist, in any order.

use super::declared::Type;
use super::tokens::Token;

/// Words of which the names of numbers consist.
pub(super) const WORDS: [&str; 11] = [
    "void", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "_Bool",
    "__int128",
];

/// Returns the type that some words name together.
pub(super) fn number(words: &[Token<'_>]) -> Option<Type> {
    let count = |word: &str| words.iter().filter(|token| token.text == word).count();
    let [unsigned, signed, long] = ["unsigned", "signed", "long"].map(count);
    let plain = unsigned + signed == 0;
    let rest: Vec<&str> = words.iter().map(|token| token.text).collect();
    let rest = rest.into_iter().filter(|word| !matches!(*word, "unsigned" | "signed" | "long"));
    let mut rest: Vec<&str> = rest.collect();
    if unsigned + signed > 1 || long > 2 {
        return None;
    }
    // `short int`, in any order.
    if rest.len() == 2 && rest.contains(&"short") {
        rest.retain(|word| *word != "int");
    }
    let bytes = match (&rest[..], long) {
        (["void"], 0) if plain => return Some(Type::Nothing),
        (["_Bool"], 0) if plain => return Some(Type::Number { bytes: 1, signed: false }),
        (["float"], 0) if plain => return Some(Type::Other("a floating-point number", 4)),
        (["double"], 0) if plain => return Some(Type::Other("a floating-point number", 8)),
        (["double"], 1) if plain => return Some(Type::Other("a floating-point number", 16)),
        (["__int128"], 0) => return Some(Type::Other("a number of more than 8 bytes", 16)),
        (["char"], 0) => 1,
        (["short"], 0) => 2,
        ([] | ["int"], 0) => 4,
        ([] | ["int"], _) => 8,
        _ => return None,
    };
    Some(Type::Number { bytes, signed: unsigned == 0 })
}
