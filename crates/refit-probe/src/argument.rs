//! The arguments of `printf`, the keys of maps, and everything else that is computed: values,
//! texts, and facts about the place and the moment. [`expression`](crate::expression) parses them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use refit_splice::{Item, Kept, Key, Operator, Relation, Unary};

use crate::arithmetic::sign;
use crate::operand::Operand;
use crate::type_name::TypeName;

/// An argument of a message, a part of a key, or a number that is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value, or a stack.
    Value(Operand),
    /// The text at the address that is the number, of at most this many bytes.
    Text(Box<Self>, u8),
    /// The name of the thread.
    ThreadName,
    /// The name of the function at the place.
    Function,
    /// The place, as a probe names it.
    Probe,
    /// The function at the address that is the number.
    Symbol(Box<Self>),
    /// The time, in nanoseconds since the system was started.
    Time,
    /// The time in nanoseconds since the probes were installed.
    Elapsed,
    /// The time as text, in this format of `strftime`.
    Clock(String),
    /// A text that does not change.
    Quoted(String),
    /// A number that does not change.
    Number(i64),
    /// A number that is computed of two others.
    Computed(Box<Self>, Operator, Box<Self>),
    /// A number that is computed of another.
    Unary(Unary, Box<Self>),
    /// The second number if the first is not 0, else the third.
    Choice(Box<[Self; 3]>),
    /// Whether a text is another one that does not change.
    Same(Box<Self>, String),
    /// The value under a key of the map with this name.
    Kept(String, Vec<Self>),
    /// A variable, without its `$`.
    Variable(String),
    /// A number that the snippet has computed before, and where it is.
    Local(Box<Self>, Operand),
    /// A number of the program whose place its types tell.
    Member(Member),
    /// The size of a type or a value, or the place of a member.
    Layout(Box<Layout>),
    /// A number that is added to the address that this map keeps, and counts what that points to.
    Step(Box<Self>, String),
}

/// A number that types tell, without a value of the program: `sizeof(struct request)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The type.
    pub of: Measured,
    /// The members whose distance from the begin of it the number is, each of the one before;
    /// empty if it is the size.
    pub path: Vec<String>,
}

/// A type, by its name or by a value of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// A type.
    Type(TypeName),
    /// A value, which is not read.
    Value(Argument),
}

/// A value that is reached through types of the program: `args->request->tries[2].code`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where the way begins.
    pub root: Root,
    /// The way from there.
    pub hops: Vec<Hop>,
    /// The part of it that is asked for.
    pub want: Want,
}

/// A value whose type is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// A parameter of the function, by its name. The operand stands for any place at the entry.
    Parameter(String, Operand),
    /// An argument of a static tracepoint, or one of a function on the stack. The operand stands
    /// for any place.
    Given(u8, Operand),
    /// A number that is said to be of a type.
    Cast(TypeName, Box<Argument>),
    /// A variable, or its local, and what was assigned to it first.
    Variable(Box<Argument>, Option<Arc<Argument>>),
    /// A number that has the type of an address in it.
    Computed(Box<Argument>),
}

/// A step on the way to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// To the member of the structure at an address.
    Arrow(String),
    /// To the member of a structure.
    Dot(String),
    /// To an element of an array.
    Index(Argument),
    /// To the value at an address.
    Deref,
}

/// The part of a member that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The number.
    Number,
    /// The address of a text: a pointer, or that of an array.
    Text,
    /// The address of what is there.
    Address,
}

/// The kind of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// An instruction, often the entry of a function.
    Instruction,
    /// Where a function returns.
    Exit,
    /// A static tracepoint.
    Tracepoint,
}

impl fmt::Display for PlaceKind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Instruction => "uprobe",
            Self::Exit => "uretprobe",
            Self::Tracepoint => "usdt",
        })
    }
}

/// The numbers of the maps that keep values, by name.
pub type Maps = BTreeMap<String, u16>;

/// Maximum number of bytes that snippets gather on the stack: a message, or a key.
pub(crate) const MOST_GATHERED: usize = 512;
/// Bytes of a text, unless said otherwise.
pub(crate) const TEXT: u8 = 64;

impl Argument {
    /// Returns the value of the program or of the snippet that it is.
    pub fn operand(&self) -> Option<&Operand> {
        match self {
            Self::Value(operand) | Self::Local(_, operand) => Some(operand),
            _ => None,
        }
    }

    /// Returns the arguments of which it consists.
    pub(crate) fn inner(&self) -> Vec<&Self> {
        match self {
            Self::Text(inner, _)
            | Self::Symbol(inner)
            | Self::Unary(_, inner)
            | Self::Same(inner, _)
            | Self::Step(inner, _) => vec![inner],
            Self::Computed(left, _, right) => vec![left, right],
            Self::Choice(all) => all.iter().collect(),
            Self::Kept(_, key) => key.iter().collect(),
            Self::Layout(layout) => match &layout.of {
                Measured::Type(_) => Vec::new(),
                Measured::Value(value) => vec![value],
            },
            Self::Member(member) => {
                let root = match &member.root {
                    Root::Parameter(..) | Root::Given(..) => None,
                    Root::Cast(_, of) | Root::Variable(of, _) | Root::Computed(of) => Some(&**of),
                };
                let indexes = member.hops.iter().filter_map(|hop| match hop {
                    Hop::Index(index) => Some(index),
                    _ => None,
                });
                root.into_iter().chain(indexes).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the values that it reads.
    pub fn operands(&self) -> Vec<&Operand> {
        let own = match self {
            Self::Member(Member {
                root: Root::Parameter(_, operand) | Root::Given(_, operand),
                ..
            }) => Some(operand),
            _ => self.operand(),
        };
        match self.operand() {
            Some(operand) => vec![operand],
            None => {
                let inner = self.inner().into_iter().flat_map(Self::operands);
                own.into_iter().chain(inner).collect()
            }
        }
    }

    /// Whether it needs the entry of a function: it names a parameter, or one on the stack unless a
    /// tracepoint has `given` it.
    pub(crate) fn needs_entry(&self, given: bool) -> bool {
        let own = match self {
            Self::Member(Member { root: Root::Parameter(..), .. }) => true,
            Self::Member(Member { root: Root::Given(..), .. }) => !given,
            Self::Local(of, _) => of.needs_entry(given),
            _ => false,
        };
        own || self.inner().into_iter().any(|inner| inner.needs_entry(given))
    }

    /// Returns the names of the maps of values that it reads, with their keys.
    pub(crate) fn kept(&self) -> Vec<(&str, &[Self])> {
        let own = match self {
            Self::Kept(name, key) => Some((name.as_str(), key.as_slice())),
            _ => None,
        };
        own.into_iter().chain(self.inner().into_iter().flat_map(Self::kept)).collect()
    }

    /// Whether something says its type: those of the program or of the script, or a map.
    pub(crate) fn has_type(&self) -> bool {
        matches!(self, Self::Member(_) | Self::Kept(..))
    }

    /// Returns the number of values in it whose types say its own: none if it cannot have one.
    pub(crate) fn typed(&self) -> usize {
        match self {
            Self::Member(Member { root: Root::Variable(_, Some(assigned)), .. }) => {
                1 + assigned.typed()
            }
            Self::Member(Member { root: Root::Computed(of), .. }) => 1 + of.typed(),
            Self::Member(_) | Self::Variable(_) | Self::Kept(..) => 1,
            Self::Local(of, _) if of.has_type() => of.typed(),
            Self::Computed(left, Operator::Add | Operator::Subtract, right) => {
                left.typed() + right.typed()
            }
            Self::Choice(all) => all[1].typed() + all[2].typed(),
            _ => 0,
        }
    }

    /// Whether it is a stack.
    pub fn is_stack(&self) -> bool {
        matches!(self, Self::Value(operand) if operand.is_stack())
    }

    /// Whether it is the name of a function at an address.
    pub(crate) fn is_symbol(&self) -> bool {
        matches!(self, Self::Symbol(_))
    }

    /// Whether it is a number.
    pub fn is_number(&self) -> bool {
        match self {
            Self::Value(operand) => !operand.is_stack(),
            Self::Time
            | Self::Elapsed
            | Self::Number(_)
            | Self::Computed(..)
            | Self::Unary(..)
            | Self::Choice(_)
            | Self::Same(..)
            | Self::Kept(..)
            | Self::Variable(_)
            | Self::Member(_)
            | Self::Layout(_)
            | Self::Step(..)
            | Self::Local(..) => true,
            Self::Text(..)
            | Self::ThreadName
            | Self::Function
            | Self::Probe
            | Self::Symbol(_)
            | Self::Clock(_)
            | Self::Quoted(_) => false,
        }
    }

    /// Whether refit can compute it of what snippets gather.
    pub(crate) fn is_outside(&self) -> bool {
        let own = match self {
            Self::Computed(_, operator, _) => {
                !matches!(operator, Operator::Compare(_) | Operator::Both | Operator::Either)
            }
            Self::Unary(..) | Self::Choice(_) | Self::Same(..) => false,
            Self::Kept(..) | Self::Variable(_) | Self::Member(_) => false,
            Self::Layout(_) | Self::Step(..) => false,
            _ => true,
        };
        own && self.inner().into_iter().all(Self::is_outside)
    }

    /// Returns what snippets gather for it: nothing if it is known without them.
    pub fn items(&self) -> Vec<Item> {
        match self {
            Self::Value(operand) | Self::Local(_, operand) => vec![Item::Value(operand.value)],
            Self::Symbol(inner) => inner.items(),
            Self::Text(inner, most) => {
                let words = most / 8 + 1;
                let text =
                    |operand: &Operand| Item::Text { pointer: operand.value, words: words.max(2) };
                inner.operand().map(text).into_iter().collect()
            }
            Self::ThreadName => vec![Item::ThreadName],
            Self::Computed(left, _, right) => [left.items(), right.items()].concat(),
            _ => Vec::new(),
        }
    }
}

/// Returns where the value under a key of a map is.
pub(crate) fn kept(name: &str, by: &[Argument], maps: &Maps) -> Kept {
    Kept { map: maps.get(name).copied().unwrap_or_default(), key: key(by) }
}

/// Returns the key by which results are separated; `None` if there is one result.
pub(crate) fn key(by: &[Argument]) -> Option<Key> {
    let items: Vec<Item> = by.iter().flat_map(Argument::items).collect();
    match items[..] {
        [] => None,
        [Item::Value(value)] => Some(Key::Value(value)),
        _ => Some(Key::Tuple(items.into())),
    }
}

/// Returns the words of an item that is this text.
pub(crate) fn words(text: &str, count: usize) -> Vec<u64> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(count * 8, 0);
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the number of bytes that snippets gather on the stack for these together.
pub(crate) fn gathered(arguments: &[Argument]) -> usize {
    arguments.iter().flat_map(Argument::items).map(|item| item.words() * 8).sum()
}

impl fmt::Display for Argument {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(operand) => operand.fmt(to),
            Self::Text(inner, TEXT) => write!(to, "str({inner})"),
            Self::Text(inner, most) => write!(to, "str({inner}, {most})"),
            Self::ThreadName => to.write_str("comm"),
            Self::Function => to.write_str("func"),
            Self::Probe => to.write_str("probe"),
            Self::Symbol(inner) => write!(to, "usym({inner})"),
            Self::Time => to.write_str("nsecs"),
            Self::Elapsed => to.write_str("elapsed"),
            Self::Clock(format) => write!(to, "strftime({format:?}, nsecs)"),
            Self::Quoted(text) => write!(to, "{text:?}"),
            Self::Number(number) => number.fmt(to),
            Self::Computed(left, operator, right) => {
                write!(to, "({left} {} {right})", sign(*operator))
            }
            Self::Unary(Unary::Negate, inner) => write!(to, "-{inner}"),
            Self::Unary(Unary::Invert, inner) => write!(to, "~{inner}"),
            Self::Unary(Unary::Not, inner) => write!(to, "!{inner}"),
            Self::Choice(all) => write!(to, "({} ? {} : {})", all[0], all[1], all[2]),
            Self::Same(text, other) => {
                write!(to, "({text} {} {other:?})", sign(Operator::Compare(Relation::Equal)))
            }
            Self::Kept(name, key) => {
                write!(to, "@{name}")?;
                let parts: Vec<_> = key.iter().map(ToString::to_string).collect();
                if parts.is_empty() { Ok(()) } else { write!(to, "[{}]", parts.join(", ")) }
            }
            Self::Variable(name) => write!(to, "${name}"),
            Self::Local(of, _) => of.fmt(to),
            Self::Member(member) => member.fmt(to),
            Self::Layout(layout) => layout.fmt(to),
            Self::Step(inner, _) => inner.fmt(to),
        }
    }
}

impl Layout {
    /// Lowers the value, if there is one.
    pub(crate) fn lowered<E>(
        self,
        lower: impl FnOnce(Argument) -> Result<Argument, E>,
    ) -> Result<Self, E> {
        let of = match self.of {
            Measured::Value(value) => Measured::Value(lower(value)?),
            name @ Measured::Type(_) => name,
        };
        Ok(Self { of, ..self })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match &self.of {
            Measured::Type(name) => name.to_string(),
            Measured::Value(value) => value.to_string(),
        };
        match &self.path[..] {
            [] => write!(to, "sizeof({of})"),
            path => write!(to, "offsetof({of}, {})", path.join(".")),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = match &self.root {
            Root::Parameter(name, _) => format!("args->{name}"),
            Root::Given(number, _) => format!("arg{number}"),
            Root::Cast(name, of) if self.hops.is_empty() => format!("({name}){of}"),
            Root::Cast(name, of) => format!("(({name}){of})"),
            Root::Variable(of, _) | Root::Computed(of) => of.to_string(),
        };
        for (at, hop) in self.hops.iter().enumerate() {
            match hop {
                Hop::Arrow(name) => shown.push_str(&format!("->{name}")),
                Hop::Dot(name) => shown.push_str(&format!(".{name}")),
                Hop::Index(index) => shown.push_str(&format!("[{index}]")),
                Hop::Deref if at + 1 == self.hops.len() => shown.insert(0, '*'),
                Hop::Deref => shown = format!("(*{shown})"),
            }
        }
        to.write_str(if self.want == Want::Address { "&" } else { "" })?;
        to.write_str(&shown)
    }
}
