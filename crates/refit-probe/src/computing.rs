//! Formulas by which snippets compute numbers at a place.
//!
//! Members of structures are found here, and not when a probe is parsed: each place has the types
//! of its own file.

use refit_analysis::image::{ArgumentPlace, TracepointArgument};
use refit_analysis::registers::ARGUMENTS;
use refit_analysis::types::{Bits, Whereabouts};
use refit_splice::{Base, Formula, Operator, Value, Width};

use crate::argument::{Argument, Hop, Layout, Measured, Member, Root, Want, kept, words};
use crate::forms::{Facts, Form, Part, Type};
use crate::type_name::TypeName;

/// Number of the stack pointer.
const STACK_POINTER: u8 = 4;

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
                let mut both = [left.formula(facts)?, right.formula(facts)?];
                scale(&mut both, [left, right], *operator, facts)?;
                Formula::Binary(*operator, Box::new(both))
            }
            Self::Unary(unary, inner) => Formula::Unary(*unary, boxed(inner)?),
            Self::Choice(all) => {
                let [condition, one, other] = all.each_ref().map(|one| one.formula(facts));
                Formula::Choice(Box::new([condition?, one?, other?]))
            }
            Self::Kept(name, by) => Formula::Kept(kept(name, by, facts.maps)),
            Self::Step(number, map) => {
                let stride = match facts.kept_type(map)? {
                    Some(of) => facts.stride(&of)?,
                    None => 1,
                };
                multiply(number.formula(facts)?, stride)
            }
            Self::Same(text, to) => match text.items()[..] {
                [item] => Formula::Same { item, words: words(to, item.words()).into() },
                _ => Formula::Number(0),
            },
            Self::Member(member) => {
                let found = member.find(facts).and_then(|found| found.wanted(member.want, facts));
                found.map_err(|why| format!("`{member}`: {why}"))?
            }
            Self::Layout(layout) => {
                let number = layout.number(facts).map_err(|why| format!("`{layout}`: {why}"))?;
                Formula::Number(number.cast_signed())
            }
            // Formulas have none of these: they are no numbers, or not known in snippets.
            _ => Formula::Number(0),
        })
    }
}

/// A value of a type, while the way to it is followed.
struct Typed {
    /// The value, or its address if it is in memory.
    formula: Formula,
    in_memory: bool,
    bits: Option<Bits>,
    of: Type,
}

impl Facts<'_> {
    /// Returns the size of what an address of this type points to; 1 if it has none.
    fn stride(&self, of: &Type) -> Result<i64, String> {
        let stride = match self.form(of)? {
            Form::Pointer(Some(of)) => self.size(&of)?,
            _ => 1,
        };
        i64::try_from(stride).map_err(|_| "its elements are too large".to_owned())
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
}

impl Member {
    /// Follows the way to the value.
    fn find(&self, facts: &Facts<'_>) -> Result<Typed, String> {
        let mut found = match (&self.root, self.hops.first()) {
            // What nothing has a type for is read as a number of 8 bytes.
            (Root::Computed(of), Some(Hop::Deref)) if of.type_of(facts)?.is_none() => {
                let of_8 = Type::Number { bytes: 8, signed: false };
                Typed::value(of.formula(facts)?, Type::Pointer(Box::new(of_8)))
            }
            (root, _) => root.find(facts)?,
        };
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

impl Layout {
    /// Returns the size, or the distance.
    fn number(&self, facts: &Facts<'_>) -> Result<u64, String> {
        let mut of = match &self.of {
            Measured::Type(name) => facts.named(name)?,
            Measured::Value(Argument::Value(operand)) => {
                facts.named(&TypeName::of(operand.value.width, 0))?
            }
            Measured::Value(Argument::Member(member)) if member.find(facts)?.bits.is_some() => {
                return Err("it is a bit field".to_owned());
            }
            Measured::Value(value) => {
                let number = Type::Number { bytes: 8, signed: true };
                value.type_of(facts)?.unwrap_or(number)
            }
        };
        let mut offset = 0_u64;
        for name in &self.path {
            let Form::Structure(record) = facts.form(&of)? else {
                return Err(format!("it has no members such as `{name}`"));
            };
            let part = facts.member(record, name)?;
            if part.bits.is_some() {
                return Err(format!("`{name}` is a bit field"));
            }
            offset = offset.wrapping_add(part.offset);
            of = part.of;
        }
        let size = || facts.size(&of).map_err(|_| "its size is not known".to_owned());
        if self.path.is_empty() { size() } else { Ok(offset) }
    }
}

impl Root {
    fn find(&self, facts: &Facts<'_>) -> Result<Typed, String> {
        let value = Typed::value;
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
            Self::Computed(of) => {
                let found = of.type_of(facts)?;
                let found = found.ok_or_else(|| format!("nothing says what type {of} has"))?;
                Ok(value(of.formula(facts)?, found))
            }
            Self::Variable(of, Some(assigned)) if let Some(found) = assigned.type_of(facts)? => {
                Ok(value(of.formula(facts)?, found))
            }
            Self::Variable(of, _) => Err(format!(
                "nothing says what {of} points to (write e.g. {of} = (struct request *)arg0)"
            )),
        }
    }
}

impl Typed {
    /// Returns a value that is not in memory.
    fn value(formula: Formula, of: Type) -> Self {
        Self { formula, in_memory: false, bits: None, of }
    }

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
            (_, Form::Structure(record)) => {
                Err(format!("it is a structure{}", facts.members(record)))
            }
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
            Some(bits) if bits.first + bits.count > 64 => {
                Err("its bits are in more than 8 bytes".to_owned())
            }
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
        let record = match facts.form(&self.of)? {
            Form::Structure(record) if self.in_memory => record,
            Form::Pointer(_) => {
                return Err(format!(
                    "`.{name}` needs a structure, and it is an address (write `->`)"
                ));
            }
            _ => return Err(format!("it has no members such as `{name}`")),
        };
        let Part { offset, bits, of } = facts.member(record, name)?;
        let offset = i64::try_from(offset).map_err(|_| "its place is not possible".to_owned())?;
        Ok(Self { formula: add(self.formula, offset), in_memory: true, bits, of })
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
        let formula = match multiply(index, stride) {
            Formula::Number(offset) => add(begin, offset),
            offset => Formula::Binary(Operator::Add, Box::new([begin, offset])),
        };
        Ok(Self { formula, in_memory: true, bits: None, of })
    }
}

impl Argument {
    /// Returns the type of a number, if something says it.
    pub(crate) fn type_of(&self, facts: &Facts<'_>) -> Result<Option<Type>, String> {
        Ok(match self {
            // A variable itself has the type of what it was assigned, or none.
            Self::Member(Member {
                root: Root::Variable(_, Some(of)),
                hops,
                want: Want::Number,
            }) if hops.is_empty() => of.type_of(facts)?,
            Self::Member(member) => {
                let of = member.find(facts)?.of;
                Some(match member.want {
                    Want::Address => Type::Pointer(Box::new(of)),
                    Want::Number | Want::Text => of,
                })
            }
            Self::Local(of, _) if of.has_type() => of.type_of(facts)?,
            Self::Kept(map, _) => facts.kept_type(map)?,
            Self::Computed(left, operator @ (Operator::Add | Operator::Subtract), right) => {
                match left.pointer(facts)? {
                    None if *operator == Operator::Add => right.pointer(facts)?,
                    // The difference of two addresses is a number.
                    Some(_)
                        if *operator == Operator::Subtract && right.pointer(facts)?.is_some() =>
                    {
                        None
                    }
                    left => left,
                }
            }
            Self::Choice(all) => match all[1].type_of(facts)? {
                None => all[2].type_of(facts)?,
                of => of,
            },
            _ => None,
        })
    }

    /// Returns the type of a number that is an address of a type.
    fn pointer(&self, facts: &Facts<'_>) -> Result<Option<Type>, String> {
        let Some(of) = self.type_of(facts)? else { return Ok(None) };
        Ok(matches!(facts.form(&of)?, Form::Pointer(_)).then_some(of))
    }
}

/// Multiplies a number that is added to an address, or subtracted from one, by the size of what the
/// address points to, as C does.
fn scale(
    formulas: &mut [Formula; 2],
    numbers: [&Argument; 2],
    operator: Operator,
    facts: &Facts<'_>,
) -> Result<(), String> {
    if !matches!(operator, Operator::Add | Operator::Subtract) {
        return Ok(());
    }
    let [left, right] = numbers;
    let (of, scaled) = match (left.pointer(facts)?, right.pointer(facts)?) {
        (Some(of), None) => (of, 1),
        (None, Some(of)) if operator == Operator::Add => (of, 0),
        _ => return Ok(()),
    };
    let stride = facts.stride(&of)?;
    let number = std::mem::replace(&mut formulas[scaled], Formula::Number(0));
    formulas[scaled] = multiply(number, stride);
    Ok(())
}

/// Multiplies a number.
fn multiply(number: Formula, by: i64) -> Formula {
    match number {
        Formula::Number(number) => Formula::Number(number.wrapping_mul(by)),
        number if by == 1 => number,
        number => binary(Operator::Multiply, number, by),
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
