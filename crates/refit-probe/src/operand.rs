//! Parses values, and comparisons of values with numbers: `(u32)*(arg0 + 16) >= 4096`.
//!
//! ```text
//! test      := value relation number      relation := == | != | < | <= | > | >=
//! value     := ['(' type ')'] base        type := u8 u16 u32 u64 i8 i16 i32 i64
//! base      := 'arg0' … 'arg5' | 'retval' | 'pid' | 'tid' | 'cpu'
//!            | a register (rdi, r8; edi, r8d for 32 bits)
//!            | '*' pointer | '*(' pointer ['+' | '-'] number ')'
//! pointer   := an argument or a 64-bit register
//! key       := value | 'ustack' ['(' [number] ')']
//! ```

use std::fmt;

use refit_analysis::registers::ARGUMENTS;
use refit_splice::{Base, FRAMES, Relation, Test, Value, Width};

/// A value, and whether it can be read at a function's entry or only when the function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The value.
    pub value: Value,
    /// Whether it exists when the function is left, and not when it is entered.
    pub leaving: bool,
    /// Whether it exists wherever a thread is in a function.
    pub lasting: bool,
    /// Whether it is named as an argument of the function, not by its register.
    pub argument: bool,
}

/// Names of the general registers by their numbers.
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// Names of their lower halves.
const HALVES: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d",
    "r13d", "r14d", "r15d",
];
/// Names of these arguments.
const NAMES: [&str; 6] = ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];
/// Register in which it returns a value.
const RESULT: u8 = 0;

/// Names of types; those of bpftrace follow.
const WIDTHS: [(&str, Width); 16] = [
    ("u8", Width::U8),
    ("u16", Width::U16),
    ("u32", Width::U32),
    ("u64", Width::Whole),
    ("i8", Width::I8),
    ("i16", Width::I16),
    ("i32", Width::I32),
    ("i64", Width::Whole),
    ("uint8", Width::U8),
    ("uint16", Width::U16),
    ("uint32", Width::U32),
    ("uint64", Width::Whole),
    ("int8", Width::I8),
    ("int16", Width::I16),
    ("int32", Width::I32),
    ("int64", Width::Whole),
];

const RELATIONS: [(&str, Relation); 6] = [
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::More),
];

impl Operand {
    /// Returns a value at the entry, named by its register.
    pub(crate) fn new(base: Base, width: Width) -> Self {
        let value = Value { base, width };
        Self { value, leaving: false, lasting: false, argument: false }
    }

    /// Whether it is the same wherever a thread is in a function.
    pub fn is_lasting(self) -> bool {
        self.lasting && !self.is_local()
    }

    /// Whether it was computed at the same site.
    pub fn is_local(self) -> bool {
        matches!(self.value.base, Base::Local(_))
    }

    /// Returns the number of the argument that it is, or that points to it with an offset; `None`
    /// if it is neither.
    pub(crate) fn given(self) -> Option<(u8, Option<i32>)> {
        let (register, offset) = match self.value.base {
            Base::Register(register) => (register, None),
            Base::Memory { register, offset } => (register, Some(offset)),
            _ => return None,
        };
        let number = ARGUMENTS.iter().position(|one| *one == register);
        number.filter(|_| self.argument).map(|number| (number as u8, offset))
    }

    /// Whether it is the number of a stack.
    pub fn is_stack(self) -> bool {
        matches!(self.value.base, Base::Stack(_))
    }

    /// Parses a key: a value, or `ustack` or `ustack(N)`, the innermost `N` frames of the stack.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn parse_key(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let depth = match text.strip_prefix("ustack") {
            Some("" | "()") => Some(FRAMES),
            Some(rest) => {
                let inner = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
                inner.and_then(|inner| inner.trim().parse().ok())
            }
            None => return Self::parse(text),
        };
        let depth = depth.filter(|depth| (1..=FRAMES).contains(depth)).ok_or_else(|| {
            format!(
                "`{text}` is no stack (write ustack, or ustack(N) for N frames, at most {FRAMES})"
            )
        })?;
        Ok(Self { lasting: true, ..Self::new(Base::Stack(depth), Width::Whole) })
    }

    /// Parses a value.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((width, rest)) = cast(text) {
            let mut operand = Self::parse(rest)?;
            operand.value.width = width;
            return Ok(operand);
        }
        if let Some(pointer) = text.strip_prefix('*') {
            return field(pointer.trim()).ok_or_else(|| {
                format!("`{text}` is not a field (write e.g. *arg0 or *(arg0 + 16))")
            });
        }
        let whole = |base| Self::new(base, Width::Whole);
        let lasting = |base| Self { lasting: true, ..whole(base) };
        match text {
            "cpu" => return Ok(lasting(Base::Processor)),
            "pid" => return Ok(lasting(Base::Process)),
            "tid" => return Ok(lasting(Base::Thread)),
            "retval" => return Ok(Self { leaving: true, ..whole(Base::Register(RESULT)) }),
            _ => {}
        }
        if let Some(number) = HALVES.iter().position(|&name| name == text) {
            return Ok(Self::new(Base::Register(number as u8), Width::U32));
        }
        if text.starts_with("ustack") {
            return Err(format!("`{text}` can only be a key (write e.g. @[ustack] = count())"));
        }
        let named = register(text)
            .map(|(number, argument)| Self { argument, ..whole(Base::Register(number)) });
        named.ok_or_else(|| {
            format!(
                "unknown value `{text}` (known: arg0 … arg11, retval, pid, tid, cpu, registers, and fields such as *(arg0 + 8))"
            )
        })
    }
}

/// Returns the register that holds a whole argument, or the register with this name; and whether it
/// is named as an argument.
fn register(text: &str) -> Option<(u8, bool)> {
    let argument = text.strip_prefix("arg").and_then(|number| number.parse::<usize>().ok());
    match argument {
        Some(number) => ARGUMENTS.get(number).map(|register| (*register, true)),
        None => {
            let found = REGISTERS.iter().position(|&name| name == text);
            found.map(|number| (number as u8, false))
        }
    }
}

fn cast(text: &str) -> Option<(Width, &str)> {
    let (name, rest) = text.strip_prefix('(')?.split_once(')')?;
    let (_, width) = WIDTHS.iter().find(|(known, _)| *known == name.trim())?;
    Some((*width, rest))
}

fn field(pointer: &str) -> Option<Operand> {
    let inner = match pointer.strip_prefix('(') {
        Some(rest) => rest.strip_suffix(')')?,
        None => pointer,
    };
    let (name, offset) = match inner.find(['+', '-']) {
        Some(at) => {
            let offset = i32::try_from(number(&inner[at + 1..])?).ok()?;
            (&inner[..at], if inner[at..].starts_with('-') { -offset } else { offset })
        }
        None => (inner, 0),
    };
    let (register, argument, leaving) = match name.trim() {
        "retval" => (RESULT, false, true),
        name => {
            let (register, argument) = register(name)?;
            (register, argument, false)
        }
    };
    let base = Base::Memory { register, offset };
    Some(Operand { leaving, argument, ..Operand::new(base, Width::Whole) })
}

/// Parses a number: decimal, with a power of ten (`1e6`), or hexadecimal after `0x`. Numbers from
/// the upper half of 64 bits are negative.
pub(crate) fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(u64::cast_signed);
    }
    if let Some((digits, power)) = text.split_once('e') {
        return 10_i64.checked_pow(power.parse().ok()?)?.checked_mul(digits.parse().ok()?);
    }
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(u64::cast_signed))
}

/// Parses a comparison of a value with a number; `None` if it is something else.
pub(crate) fn test(text: &str) -> Option<(Operand, Test)> {
    let (value, relation, than) = RELATIONS.iter().find_map(|(sign, relation)| {
        text.split_once(sign).map(|(value, than)| (value, *relation, than))
    })?;
    let (operand, than) = (Operand::parse(value).ok()?, number(than)?);
    Some((operand, Test { value: operand.value, relation, than }))
}

impl fmt::Display for Operand {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let register = |number: u8| match ARGUMENTS.iter().position(|&one| one == number) {
            Some(argument) if self.argument => NAMES[argument],
            _ if self.leaving && number == RESULT => "retval",
            _ => REGISTERS[usize::from(number & 15)],
        };
        let width = WIDTHS.iter().find(|(_, width)| *width == self.value.width);
        match (self.value.base, self.value.width, width) {
            (_, Width::Whole, _) | (_, _, None) => {}
            (_, _, Some((name, _))) => write!(to, "({name})")?,
        }
        match self.value.base {
            Base::Register(number) => to.write_str(register(number)),
            Base::Thread | Base::Context | Base::Goroutine => to.write_str("tid"),
            Base::Process => to.write_str("pid"),
            Base::Processor => to.write_str("cpu"),
            Base::Stack(FRAMES) => to.write_str("ustack"),
            Base::Stack(depth) => write!(to, "ustack({depth})"),
            Base::Time => to.write_str("nsecs"),
            Base::Local(number) => write!(to, "local {number}"),
            Base::Memory { register: pointer, offset: 0 } => write!(to, "*{}", register(pointer)),
            Base::Memory { register: pointer, offset } => {
                let sign = if offset < 0 { '-' } else { '+' };
                write!(to, "*({} {sign} {})", register(pointer), offset.unsigned_abs())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_understood_and_shown_as_they_are_named() {
        for (text, said) in [
            ("arg0", "arg0"),
            ("rdi", "rdi"),
            ("r15", "r15"),
            ("edi", "(u32)rdi"),
            ("(i16) arg1", "(i16)arg1"),
            ("(int8)rsi", "(i8)rsi"),
            ("retval", "retval"),
            ("pid", "pid"),
            ("*arg2", "*arg2"),
            ("(u8)*(arg0 + 16)", "(u8)*(arg0 + 16)"),
            ("*(r9 + 16)", "*(r9 + 16)"),
            ("*(rbp-0x10)", "*(rbp - 16)"),
            ("*(retval+8)", "*(retval + 8)"),
        ] {
            let operand = Operand::parse(text).unwrap_or_else(|what| panic!("{text}: {what}"));
            assert_eq!(operand.to_string(), said);
            assert_eq!(operand.leaving, text.contains("retval"), "{text}");
        }
    }

    #[test]
    fn stacks_are_keys_only() {
        for (text, said) in
            [("ustack", "ustack"), ("ustack()", "ustack"), ("ustack( 3 )", "ustack(3)")]
        {
            let operand = Operand::parse_key(text).unwrap_or_else(|what| panic!("{text}: {what}"));
            assert_eq!((operand.to_string().as_str(), operand.is_stack()), (said, true));
            let what = Operand::parse(text).expect_err(text);
            assert!(what.contains("only be a key"), "{what}");
        }
        assert_eq!(Operand::parse_key("arg1"), Operand::parse("arg1"));
        for text in ["ustack(0)", "ustack(128)", "ustack(x)", "ustacks", "ustack(1"] {
            assert!(Operand::parse_key(text).expect_err(text).contains(text));
        }
    }

    #[test]
    fn numbers_may_have_a_power_of_ten() {
        for (text, wanted) in [
            ("1e6", Some(1_000_000)),
            ("-3e2", Some(-300)),
            (" 0x1e6 ", Some(0x1e6)),
            ("18446744073709551615", Some(-1)),
            ("1e19", None),
            ("e6", None),
            ("1e", None),
            ("1e-1", None),
        ] {
            assert_eq!(number(text), wanted, "{text}");
        }
    }

    #[test]
    fn values_that_are_none_are_told() {
        for text in ["", "arg6", "argx", "rdii", "*", "*(arg0", "*(arg0+x)", "*pid", "(u7)arg0"] {
            let what = Operand::parse(text).expect_err(text);
            assert!(what.contains(text), "{text}: {what}");
        }
    }

    #[test]
    fn comparisons_with_numbers_are_tests() {
        for (text, relation, than) in [
            ("arg0 == 1", Relation::Equal, 1),
            ("arg0!=0x10", Relation::Unequal, 16),
            ("arg0 <= -3", Relation::AtMost, -3),
        ] {
            let operand = Operand::parse("arg0").expect("a value");
            let wanted = Test { value: operand.value, relation, than };
            assert_eq!(test(text), Some((operand, wanted)), "{text}");
        }
        for text in ["arg0", "arg0 == x", "a < 1", "arg0 == arg1", "arg0 << 1 == 2"] {
            assert_eq!(test(text), None, "{text}");
        }
    }
}
