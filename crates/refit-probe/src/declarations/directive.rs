//! Parses lines of the C preprocessor: `#define NAME constant`.

use super::constant;
use super::declared::{Declarations, MOST_PARTS};
use super::tokens::{Token, Tokens, Wrong};

/// Parses a directive that begins with the next token, which is `#`.
///
/// # Errors
/// The part that is wrong, or a directive that is not possible.
pub(super) fn parse(tokens: &mut Tokens<'_>, known: &mut Declarations) -> Result<(), Wrong> {
    let mut line = tokens.line();
    let sign = line.take();
    let word = line.take().filter(Token::is_word).or(sign);
    let Some(word) = word else { return Err(tokens.ends("directive")) };
    match word.text {
        "define" => define(&mut line, known)?,
        "include" => {
            return Err(word.wrong(
                "`#include` is not possible: types are those of the debug information; declare what it lacks here (struct, typedef, #define)",
            ));
        }
        other => {
            return Err(word.wrong(format!("`{other}` is not possible (known: #define)")));
        }
    }
    tokens.pass(line);
    Ok(())
}

fn define(line: &mut Tokens<'_>, known: &mut Declarations) -> Result<(), Wrong> {
    let name = line.name("name of a constant")?;
    if line.touches("(") {
        return Err(name.wrong(format!(
            "`{}` is a macro with parameters, which is not possible; write its expression where it is used",
            name.text
        )));
    }
    // Code that includes headers defines names without a value for them.
    if line.peek().is_none() {
        return Ok(());
    }
    let only = |mut wrong: Wrong| {
        wrong
            .what
            .push_str("; `#define` can name a constant only, a number or what is computed of some");
        wrong
    };
    let number = constant::evaluate(line, known).map_err(only)?;
    if let Some(more) = line.peek() {
        return Err(only(more.wrong(format!("`{}` after a number", more.text))));
    }
    if known.constants.len() >= MOST_PARTS {
        return Err(name.wrong(format!("more than {MOST_PARTS} constants")));
    }
    match known.constants.insert(name.text.to_owned(), number) {
        Some(before) if before != number => {
            Err(name.wrong(format!("`{}` is another constant already", name.text)))
        }
        _ => Ok(()),
    }
}
