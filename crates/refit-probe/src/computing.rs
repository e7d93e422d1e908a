//! Formulas by which snippets compute numbers at a place.
//!
//! Members of structures are found here, and not when a probe is parsed: each place has the types
//! of its own file.

use refit_analysis::image::{ArgumentPlace, Tracepoint, TracepointArgument};
use refit_analysis::registers::ARGUMENTS;
use refit_analysis::types::{Bits, Member as Found, Shape, TypeId, Types, Whereabouts};
use refit_splice::{Base, Formula, Operator, Value, Width};

use crate::argument::{Argument, Hop, Maps, Member, Root, Want, kept, words};
use crate::type_name::TypeName;

/// Number of the stack pointer.
const STACK_POINTER: u8 = 4;
/// The most names that an error lists.
const TOLD: usize = 8;

/// Facts that formulas at a place have without the snippet.
#[derive(Clone, Copy)]
pub struct Facts<'f> {
    /// The maps that keep values.
    pub maps: &'f Maps,
    /// Address of the place in the program.
    pub address: u64,
    /// Address in its file.
    pub in_file: u64,
    /// Name of the file.
    pub module: &'f str,
    /// The static tracepoint that the place is, if it is one.
    pub tracepoint: Option<&'f Tracepoint>,
    /// Finds the types of the file; `None` if it has no debug information.
    pub types: &'f dyn Fn() -> Option<&'f Types>,
}

impl std::fmt::Debug for Facts<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, module, .. } = self;
        to.debug_struct("Facts")
            .field("address", address)
            .field("module", module)
            .finish_non_exhaustive()
    }
}

impl Argument {
    /// Returns the formula by which a snippet computes it.
    ///
    /// # Errors
    /// A member or a parameter that is not known there, and why.
    pub(crate) fn formula(&self, facts: &Facts<'_>) -> Result<Formula, String> {
        let boxed = |inner: &Self| inner.formula(facts).map(Box::new);
        Ok(match self {
            Self::Value(operand) | Self::Local(_, operand) => Formula::Value(operand.value),
            Self::Time => Formula::Value(Value { base: Base::Time, width: Width::Whole }),
            Self::Number(number) => Formula::Number(*number),
            Self::Function => Formula::Number(facts.address.cast_signed()),
            Self::Symbol(inner) => inner.formula(facts)?,
            Self::Computed(left, operator, right) => {
                let both = [left.formula(facts)?, right.formula(facts)?];
                Formula::Binary(*operator, Box::new(both))
            }
            Self::Unary(unary, inner) => Formula::Unary(*unary, boxed(inner)?),
            Self::Choice(all) => {
                let [condition, one, other] = all.each_ref().map(|one| one.formula(facts));
                Formula::Choice(Box::new([condition?, one?, other?]))
            }
            Self::Kept(name, by) => Formula::Kept(kept(name, by, facts.maps)),
            Self::Same(text, to) => match text.items()[..] {
                [item] => Formula::Same { item, words: words(to, item.words()).into() },
                _ => Formula::Number(0),
            },
            Self::Member(member) => {
                let found = member.find(facts).and_then(|found| found.wanted(member.want, facts));
                found.map_err(|why| format!("`{member}`: {why}"))?
            }
            // Formulas have none of these: they are no numbers, or not known in snippets.
            _ => Formula::Number(0),
        })
    }
}

/// A type, of the program or of C.
#[derive(Clone, Debug)]
enum Type {
    Known(TypeId),
    Number { bytes: u8, signed: bool },
    Pointer(Box<Self>),
}

/// The structure of a type.
enum Form {
    Number { bytes: u8, signed: bool },
    Pointer(Option<Type>),
    Array { of: Type, stride: u64 },
    Structure(TypeId),
    Other(&'static str),
}

/// A value of a type, while the way to it is followed.
struct Typed {
    /// The value, or its address if it is in memory.
    formula: Formula,
    in_memory: bool,
    bits: Option<Bits>,
    of: Type,
}

impl<'f> Facts<'f> {
    fn types(&self) -> Result<&'f Types, String> {
        (self.types)().ok_or_else(|| {
            format!(
                "{} has no debug information (install the package with its debug symbols, or compile it with -g)",
                self.module
            )
        })
    }

    /// Returns the formula of an argument of the tracepoint, or of one on the stack.
    fn given(&self, number: usize) -> Result<Formula, String> {
        let Some(tracepoint) = self.tracepoint else {
            // Above the return address, and behind those in registers.
            let offset = number.checked_sub(ARGUMENTS.len()).map(|behind| 8 + 8 * behind as i64);
            let offset = offset.ok_or_else(|| "it is in a register".to_owned())?;
            let top = Formula::Value(Value::register(STACK_POINTER));
            return Ok(read(add(top, offset), Width::Whole));
        };
        match tracepoint.arguments.get(number) {
            Some(Some(given)) => Ok(argument(given)),
            Some(None) => {
                Err("it is in no general register, and not in memory that refit knows".to_owned())
            }
            None => Err(format!("the tracepoint has {} arguments", tracepoint.arguments.len())),
        }
    }

    /// Returns the type with a name.
    fn named(&self, name: &TypeName) -> Result<Type, String> {
        let plain = match (name.number(), &*name.name) {
            (Some((bytes, signed)), _) => Type::Number { bytes, signed },
            // What `void *` points to is read byte by byte.
            (None, "void") => Type::Number { bytes: 1, signed: false },
            (None, _) => {
                let found = self.types()?.named(name.kind, &name.name);
                let alone = TypeName { pointers: 0, ..name.clone() };
                Type::Known(found.ok_or_else(|| {
                    format!("the debug information of {} has no type `{alone}`", self.module)
                })?)
            }
        };
        Ok((0..name.pointers).fold(plain, |of, _| Type::Pointer(Box::new(of))))
    }

    fn form(&self, of: &Type) -> Result<Form, String> {
        Ok(match of {
            Type::Number { bytes, signed } => Form::Number { bytes: *bytes, signed: *signed },
            Type::Pointer(of) => Form::Pointer(Some((**of).clone())),
            Type::Known(id) => match self.types()?.shape(*id) {
                Shape::Number { bytes, signed } => Form::Number { bytes, signed },
                Shape::Pointer(of) => Form::Pointer(of.map(Type::Known)),
                Shape::Array { of, stride } => Form::Array { of: Type::Known(of), stride },
                Shape::Structure => Form::Structure(*id),
                Shape::Other(what) => Form::Other(what),
            },
        })
    }

    fn size(&self, of: &Type) -> Result<u64, String> {
        match of {
            Type::Number { bytes, .. } => Ok((*bytes).into()),
            Type::Pointer(_) => Ok(8),
            Type::Known(id) => {
                let size = self.types()?.size(*id).filter(|size| *size > 0);
                size.ok_or_else(|| "the size of its elements is not known".to_owned())
            }
        }
    }
}

impl Member {
    /// Follows the way to the value.
    fn find(&self, facts: &Facts<'_>) -> Result<Typed, String> {
        let mut found = self.root.find(facts)?;
        for hop in &self.hops {
            found = match hop {
                Hop::Arrow(name) => found.pointed_to(facts)?.member(name, facts)?,
                Hop::Dot(name) => found.member(name, facts)?,
                Hop::Deref => found.pointed_to(facts)?,
                Hop::Index(index) => found.element(index.formula(facts)?, facts)?,
            };
        }
        Ok(found)
    }
}

impl Root {
    fn find(&self, facts: &Facts<'_>) -> Result<Typed, String> {
        let value = |formula, of| Typed { formula, in_memory: false, bits: None, of };
        match self {
            Self::Parameter(name, _) => {
                let found = facts.types()?.parameter(facts.in_file, name);
                let found = found.map_err(|why| why.to_string())?;
                let of = Type::Known(found.of);
                Ok(match found.at {
                    Whereabouts::Register(register) => {
                        value(Formula::Value(Value::register(register)), of)
                    }
                    Whereabouts::Stack(offset) => {
                        let top = Formula::Value(Value::register(STACK_POINTER));
                        Typed { in_memory: true, ..value(add(top, offset.into()), of) }
                    }
                })
            }
            Self::Given(number, _) => {
                let of = Type::Number { bytes: 8, signed: true };
                facts.given(usize::from(*number)).map(|formula| value(formula, of))
            }
            Self::Cast(name, of) => Ok(value(of.formula(facts)?, facts.named(name)?)),
            Self::Variable(of, Some(assigned)) => {
                let pointee = assigned.find(facts)?.of;
                let assigned = match assigned.want {
                    Want::Address => Type::Pointer(Box::new(pointee)),
                    Want::Number | Want::Text => pointee,
                };
                Ok(value(of.formula(facts)?, assigned))
            }
            Self::Variable(of, None) => Err(format!(
                "nothing says what {of} points to (write e.g. {of} = (struct request *)arg0)"
            )),
        }
    }
}

impl Typed {
    /// Returns what is asked for.
    fn wanted(self, want: Want, facts: &Facts<'_>) -> Result<Formula, String> {
        let form = facts.form(&self.of)?;
        match (want, form) {
            (Want::Address, _) if !self.in_memory => {
                Err("a value in a register has no address".to_owned())
            }
            (Want::Address, _) | (Want::Text, Form::Array { .. }) if self.bits.is_none() => {
                Ok(self.formula)
            }
            (_, Form::Array { .. }) => {
                Err("it is an array (write str(…) for a text, or e.g. […][0])".to_owned())
            }
            (_, Form::Structure(id)) => Err(format!("it is a structure{}", members(facts, id))),
            _ => self.load(facts),
        }
    }

    /// Returns the value itself.
    fn load(self, facts: &Facts<'_>) -> Result<Formula, String> {
        let (bytes, signed) = match facts.form(&self.of)? {
            Form::Number { bytes, signed } => (bytes, signed),
            Form::Pointer(_) => (8, false),
            Form::Array { .. } if self.in_memory => return Ok(self.formula),
            Form::Array { .. } | Form::Structure(_) => return Err("it is no number".to_owned()),
            Form::Other(what) => return Err(format!("it is {what}")),
        };
        match self.bits {
            _ if !self.in_memory => Ok(narrow(self.formula, bytes, signed)),
            None => Ok(read(self.formula, width(bytes, signed))),
            Some(bits) => Ok(field(read(self.formula, width(bytes, false)), bits, signed)),
        }
    }

    /// Returns the value at the address that this is.
    fn pointed_to(self, facts: &Facts<'_>) -> Result<Self, String> {
        let of = match facts.form(&self.of)? {
            Form::Pointer(Some(of)) => of,
            Form::Array { of, .. } => of,
            Form::Pointer(None) => {
                return Err("nothing says what a `void *` points to; write a cast".to_owned());
            }
            Form::Structure(_) => {
                return Err("it is a structure, not its address (write `.` for `->`)".to_owned());
            }
            Form::Number { .. } | Form::Other(_) => return Err("it is no pointer".to_owned()),
        };
        Ok(Self { formula: self.load(facts)?, in_memory: true, bits: None, of })
    }

    /// Returns a member of the structure that this is.
    fn member(self, name: &str, facts: &Facts<'_>) -> Result<Self, String> {
        let id = match facts.form(&self.of)? {
            Form::Structure(id) if self.in_memory => id,
            Form::Pointer(_) => {
                return Err(format!(
                    "`.{name}` needs a structure, and it is an address (write `->`)"
                ));
            }
            _ => return Err(format!("it has no members such as `{name}`")),
        };
        let found = facts.types()?.member(id, name);
        let Found { offset, bits, of } =
            found.ok_or_else(|| format!("no member `{name}`{}", members(facts, id)))?;
        let offset = i64::try_from(offset).map_err(|_| "its place is not possible".to_owned())?;
        Ok(Self { formula: add(self.formula, offset), in_memory: true, bits, of: Type::Known(of) })
    }

    /// Returns an element of the array that this is, or that it points to.
    fn element(self, index: Formula, facts: &Facts<'_>) -> Result<Self, String> {
        let (of, stride) = match facts.form(&self.of)? {
            Form::Array { of, stride } => (of, stride),
            Form::Pointer(Some(of)) => {
                let stride = facts.size(&of)?;
                (of, stride)
            }
            _ => return Err("it is no array and no pointer".to_owned()),
        };
        let stride = i64::try_from(stride).map_err(|_| "its elements are too large".to_owned())?;
        let begin = self.load(facts)?;
        let formula = match index {
            Formula::Number(index) => add(begin, index.wrapping_mul(stride)),
            index => {
                let bytes = Box::new([index, Formula::Number(stride)]);
                let bytes = Formula::Binary(Operator::Multiply, bytes);
                Formula::Binary(Operator::Add, Box::new([begin, bytes]))
            }
        };
        Ok(Self { formula, in_memory: true, bits: None, of })
    }
}

/// Returns the formula of an argument of a tracepoint.
fn argument(given: &TracepointArgument) -> Formula {
    let TracepointArgument { bytes, signed, at } = *given;
    let register = |number| Formula::Value(Value::register(number));
    match at {
        ArgumentPlace::Constant(number) => Formula::Number(number),
        ArgumentPlace::Register(number, 0) => narrow(register(number), bytes, signed),
        ArgumentPlace::Register(number, first) => {
            field(register(number), Bits { first, count: bytes * 8 }, signed)
        }
        ArgumentPlace::Memory { base, index, offset } => {
            let scaled = index
                .map(|(number, scale)| binary(Operator::Multiply, register(number), scale.into()));
            let place = match (base.map(register), scaled) {
                (Some(base), Some(scaled)) => {
                    Formula::Binary(Operator::Add, Box::new([base, scaled]))
                }
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => Formula::Number(0),
            };
            read(add(place, offset), width(bytes, signed))
        }
    }
}

/// Lists the members of a structure.
fn members(facts: &Facts<'_>, id: TypeId) -> String {
    let all = facts.types().map(|types| types.members(id)).unwrap_or_default();
    let more = if all.len() > TOLD { ", …" } else { "" };
    let first = all.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    if first.is_empty() { String::new() } else { format!("; it has: {first}{more}") }
}

fn width(bytes: u8, signed: bool) -> Width {
    match (bytes, signed) {
        (1, false) => Width::U8,
        (1, true) => Width::I8,
        (2, false) => Width::U16,
        (2, true) => Width::I16,
        (4, false) => Width::U32,
        (4, true) => Width::I32,
        _ => Width::Whole,
    }
}

fn binary(operator: Operator, one: Formula, other: i64) -> Formula {
    Formula::Binary(operator, Box::new([one, Formula::Number(other)]))
}

/// Adds an offset to an address.
fn add(address: Formula, offset: i64) -> Formula {
    match address {
        address if offset == 0 => address,
        Formula::Binary(Operator::Add, both) if matches!(both[1], Formula::Number(_)) => {
            let [address, before] = *both;
            let Formula::Number(before) = before else { return address };
            binary(Operator::Add, address, before.wrapping_add(offset))
        }
        address => binary(Operator::Add, address, offset),
    }
}

/// Reads a number at an address.
fn read(address: Formula, width: Width) -> Formula {
    let near = match &address {
        Formula::Value(value) => Some((*value, 0)),
        Formula::Binary(Operator::Add, both) => match &**both {
            [Formula::Value(value), Formula::Number(offset)] => Some((*value, *offset)),
            _ => None,
        },
        _ => None,
    };
    if let Some((Value { base: Base::Register(register), width: Width::Whole }, offset)) = near
        && let Ok(offset) = i32::try_from(offset)
    {
        return Formula::Value(Value { base: Base::Memory { register, offset }, width });
    }
    Formula::Read(Box::new(address), width)
}

/// Takes the low bytes of a number.
fn narrow(number: Formula, bytes: u8, signed: bool) -> Formula {
    match number {
        _ if bytes >= 8 => number,
        Formula::Value(Value { base: base @ Base::Register(_), width: Width::Whole }) => {
            Formula::Value(Value { base, width: width(bytes, signed) })
        }
        number => field(number, Bits { first: 0, count: bytes * 8 }, signed),
    }
}

/// Takes bits of a number.
fn field(number: Formula, bits: Bits, signed: bool) -> Formula {
    let Bits { first, count } = bits;
    if count >= 64 {
        return number;
    }
    let low = if first == 0 { number } else { binary(Operator::Right, number, first.into()) };
    let taken = binary(Operator::And, low, (1_i64 << count) - 1);
    if !signed {
        return taken;
    }
    // The highest bit counts negative.
    let highest = 1_i64 << (count - 1);
    binary(Operator::Subtract, binary(Operator::Xor, taken, highest), highest)
}
