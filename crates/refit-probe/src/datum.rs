//! Turns the words that snippets have gathered into the arguments of messages and the parts of
//! keys.

use std::io;

use refit_splice::{Installed, Item, Text, text};
use refit_sys::{clock, printable};

use crate::argument::{Argument, PlaceKind};
use crate::stacks::{Images, StackFrame};

/// An argument of a message, or a part of a key, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Datum {
    /// A number.
    Number(u64),
    /// A text. Control characters that a program's text has are escaped.
    Text(String),
    /// A stack, the innermost frame first.
    Stack(Vec<StackFrame>),
    /// A stack for which there was no room, or that is not complete yet.
    NoStack,
}

impl Datum {
    /// Returns the frames of a stack.
    pub fn frames(&self) -> Option<&[StackFrame]> {
        match self {
            Self::Stack(frames) => Some(frames),
            _ => None,
        }
    }
}

/// Facts about a place and a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// Reads stacks.
    pub(crate) installed: &'a Installed,
    /// Names frames and functions.
    pub(crate) images: Option<&'a Images>,
    /// The name of the place's file.
    pub(crate) module: &'a str,
    /// The name of the place.
    pub(crate) name: &'a str,
    /// The kind of the place.
    pub(crate) kind: PlaceKind,
    /// The moment.
    pub(crate) moment: Moment,
}

/// A moment, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// Since the system was started.
    pub(crate) monotonic: u64,
    /// Since the probes were installed.
    pub(crate) elapsed: u64,
    /// Since 1970.
    pub(crate) wall: u64,
}

/// Returns an argument that needs no program; `None` if it needs one.
pub(crate) fn constant(argument: &Argument) -> Option<Datum> {
    match argument {
        Argument::Quoted(text) => Some(Datum::Text(text.clone())),
        Argument::Number(number) => Some(Datum::Number(number.cast_unsigned())),
        Argument::Clock(format) => Some(Datum::Text(local(format, clock::wall()))),
        Argument::Computed(left, operator, right) => match (constant(left)?, constant(right)?) {
            (Datum::Number(left), Datum::Number(right)) => {
                Some(Datum::Number(operator.apply(left, right)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Formats a time, in nanoseconds since 1970, as `strftime` does, in the local time zone.
fn local(format: &str, wall: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(wall.into()).unwrap_or_default();
    let zoned = moment.to_zoned(jiff::tz::TimeZone::system());
    jiff::fmt::strtime::format(format, &zoned).unwrap_or_default()
}

impl Context<'_> {
    /// Decodes arguments from their words.
    ///
    /// # Errors
    /// The error of reading a stack.
    pub(crate) fn decode(&self, arguments: &[Argument], words: &[u64]) -> io::Result<Vec<Datum>> {
        let mut rest = words;
        arguments.iter().map(|argument| self.datum(argument, &mut rest)).collect()
    }

    /// Decodes an argument from the first of these words, and takes them.
    fn datum(&self, argument: &Argument, rest: &mut &[u64]) -> io::Result<Datum> {
        if let Argument::Computed(left, operator, right) = argument {
            let numbers = [self.datum(left, rest)?, self.datum(right, rest)?];
            let [Datum::Number(left), Datum::Number(right)] = numbers else {
                return Ok(Datum::Number(0));
            };
            return Ok(Datum::Number(operator.apply(left, right)));
        }
        let length: usize = argument.items().iter().map(Item::words).sum();
        let (words, behind) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        *rest = behind;
        let word = words.first().copied().unwrap_or_default();
        Ok(match argument {
            Argument::Value(operand) if operand.is_stack() => self.stack(word)?,
            Argument::Value(_) | Argument::Local(..) => Datum::Number(word),
            Argument::Text(_, most) => Datum::Text(shown(text(words), usize::from(*most))),
            Argument::ThreadName => Datum::Text(shown(text(words), usize::MAX)),
            Argument::Symbol(_) => name(&self.symbol(word)),
            Argument::Function => name(self.name),
            Argument::Probe => {
                let kind = self.kind;
                name(&format!("{kind}:{}:{}", self.module, self.name))
            }
            Argument::Time => Datum::Number(self.moment.monotonic),
            Argument::Elapsed => Datum::Number(self.moment.elapsed),
            Argument::Clock(format) => Datum::Text(local(format, self.moment.wall)),
            // Numbers that snippets compute are locals by now.
            _ => constant(argument).unwrap_or(Datum::Number(0)),
        })
    }

    /// Returns the stack with this number.
    fn stack(&self, number: u64) -> io::Result<Datum> {
        let frames = self.installed.stack(number)?;
        let named = frames.zip(self.images).map(|(frames, images)| images.name(&frames));
        Ok(named.map_or(Datum::NoStack, Datum::Stack))
    }

    /// Names the function at an address.
    fn symbol(&self, address: u64) -> String {
        let frames = self.images.map(|images| images.name(&[address]));
        let function = frames.and_then(|frames| frames.last()?.function.clone());
        function.unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// Returns a name, which comes from a file and may have any characters.
fn name(name: &str) -> Datum {
    Datum::Text(printable::line(name).into_owned())
}

/// Returns a text of a program as it is shown, with at most `most` of its bytes.
fn shown(text: Text, most: usize) -> String {
    match text {
        Text::Unreadable(0) => "(null)".to_owned(),
        Text::Unreadable(address) => format!("(bad address {address:#x})"),
        Text::Whole(bytes) if bytes.len() <= most => printable::text(&bytes),
        Text::Whole(bytes) | Text::Cut(bytes) => {
            // A character that is cut in two is left out.
            let kept = &bytes[..most.min(bytes.len())];
            let whole =
                kept.utf8_chunks().last().filter(|last| (1..4).contains(&last.invalid().len()));
            let end = kept.len() - whole.map_or(0, |last| last.invalid().len());
            format!("{}..", printable::text(&kept[..end]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_control_characters_are_escaped() {
        let whole = |text: &str, most| shown(Text::Whole(text.as_bytes().to_vec()), most);
        assert_eq!(whole("select 1", 64), "select 1");
        assert_eq!(whole("select 1", 6), "select..");
        assert_eq!(whole("a\tb\x1b[2J", 64), "a\\x09b\\x1b[2J");
        assert_eq!(whole("naïve", 3), "na..");
        assert_eq!(whole("naïve", 4), "naï..");
        assert_eq!(shown(Text::Cut(b"abc".to_vec()), 64), "abc..");
        assert_eq!(shown(Text::Unreadable(0), 64), "(null)");
        assert_eq!(shown(Text::Unreadable(0x12), 64), "(bad address 0x12)");
        assert_eq!(shown(Text::Whole(vec![0xff, b'a']), 64), "\\xffa");
    }
}
