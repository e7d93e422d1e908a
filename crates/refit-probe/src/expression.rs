//! Parses what is computed: the arguments of `printf`, the keys of maps, the numbers of formulas.
//!
//! ```text
//! argument := argument '?' argument ':' argument | argument operator argument | '(' argument ')'
//!           | ('-' | '~' | '!') argument | value | number | 'nsecs' | 'elapsed'
//!           | '@' [NAME] ['[' argument (',' argument)* ']'] | '$' NAME
//!           | 'str' '(' argument [',' N] ')' | 'usym' '(' argument ')' | 'ustack' ['(' [N] ')']
//!           | 'comm' | 'func' | 'probe' | '"' text '"' | path
//!           | 'sizeof' '(' (type | argument) ')'
//!           | 'offsetof' '(' (type | argument) ',' NAME ('.' NAME)* ')'
//!           | 'strftime' '(' '"' format '"' ',' 'nsecs' ')'
//! ```
//!
//! `path` divides the ways to members of structures, [`arithmetic`] has the operators. A text
//! (`str`, `comm`) can be compared with a text that does not change.

use refit_analysis::registers::ARGUMENTS;
use refit_splice::{Operator, Relation, Unary, Width};

use crate::argument::{Argument, Hop, Layout, Measured, Member, Root, TEXT, Want};
use crate::arithmetic;
use crate::operand::{Operand, number};
use crate::path::{self, Path};
use crate::quotes;
use crate::type_name::TypeName;

/// The most bytes of a text.
const MOST_TEXT: u8 = 200;
/// The most operators and brackets of an expression, each of which may be within another.
const MOST_SIGNS: usize = 200;
/// The most arguments of a function, and of a static tracepoint.
const MOST_GIVEN: u8 = 12;
/// The most bytes of a thread's name.
const MOST_NAME: u8 = 15;
/// Functions and names that are no values.
const NAMES: [(&str, Argument); 5] = [
    ("comm", Argument::ThreadName),
    ("func", Argument::Function),
    ("probe", Argument::Probe),
    ("nsecs", Argument::Time),
    ("elapsed", Argument::Elapsed),
];

impl Argument {
    /// Parses an argument of a message, or a number of a formula.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if arithmetic::signs(text) > MOST_SIGNS {
            let begin: String = text.chars().take(20).collect();
            return Err(format!("`{begin}` begins more than {MOST_SIGNS} operators and brackets"));
        }
        if let Some(parts) = arithmetic::choice(text) {
            let [condition, one, other] = parts.map(|part| Self::number(part, text));
            return Ok(Self::Choice(Box::new([condition?, one?, other?])));
        }
        if let Some((left, operator, right)) = arithmetic::divide(text) {
            return computed(text, left, operator, right);
        }
        if let Some((_, name)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(name.clone());
        }
        if let Some(called) = called(text) {
            return called;
        }
        if let Some(inner) = quoted(text) {
            return unescape(inner).map(Self::Quoted);
        }
        if let Some(number) = number(text) {
            return Ok(Self::Number(number));
        }
        let unary = [('-', Unary::Negate), ('~', Unary::Invert), ('!', Unary::Not)];
        for (sign, unary) in unary {
            if let Some(inner) = text.strip_prefix(sign) {
                return Ok(Self::Unary(unary, Box::new(Self::number(inner, text)?)));
            }
        }
        let operand = match Operand::parse_key(text) {
            Ok(operand) => return Ok(Self::Value(operand)),
            Err(what) => what,
        };
        if let Some(number) = behind_registers(text) {
            let root = Root::Given(number, Operand::parse("arg0")?);
            return Ok(Self::Member(Member { root, hops: Vec::new(), want: Want::Number }));
        }
        if let Some(path) = path::divide(text) {
            return member(path, text, &operand).map(Self::Member);
        }
        if let Some(name) = text.strip_prefix('$') {
            return self::name(name, text).map(Self::Variable);
        }
        if let Some(map) = text.strip_prefix('@') {
            let (name, key) = self::map(map)?;
            return Ok(Self::Kept(name, key));
        }
        let whole = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        if let Some(Ok(computed)) = whole.map(Self::parse) {
            return Ok(computed);
        }
        Err(match operand.strip_suffix(')') {
            Some(known) if operand.starts_with("unknown value") => format!(
                "{known}, args->NAME, ustack, str(…), usym(…), comm, func, probe, nsecs, elapsed)"
            ),
            _ => operand,
        })
    }

    /// Parses a number, which is a part of `whole`.
    ///
    /// # Errors
    /// The part that is not understood, or no number.
    pub(crate) fn number(text: &str, whole: &str) -> Result<Self, String> {
        Self::parse(text)?.checked(text, whole)
    }

    /// Returns it if it is a number; it was written as `text`, a part of `whole`.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn checked(self, text: &str, whole: &str) -> Result<Self, String> {
        match self {
            Self::Value(operand) if operand.is_stack() => {
                Err(format!("`{}` can only be a key (write e.g. @[ustack] = count())", text.trim()))
            }
            _ if self.is_number() => Ok(self),
            _ if text.trim() == whole.trim() => Err(format!("`{}` is no number", text.trim())),
            _ => Err(format!("`{}` is no number, in `{}`", text.trim(), whole.trim())),
        }
    }

    /// Parses the format of a time, with its quotes.
    ///
    /// # Errors
    /// The conversion that is not known.
    pub(crate) fn clock(text: &str) -> Result<Self, String> {
        let format = quoted(text.trim()).ok_or_else(|| format!("`{text}` is no text"))?;
        // bpftrace writes microseconds.
        let parts: Vec<_> =
            unescape(format)?.split("%%").map(|part| part.replace("%f", "%6f")).collect();
        let format = parts.join("%%");
        let epoch = jiff::Timestamp::UNIX_EPOCH.to_zoned(jiff::tz::TimeZone::UTC);
        match jiff::fmt::strtime::format(&format, &epoch) {
            Ok(_) => Ok(Self::Clock(format)),
            Err(error) => Err(format!("`{}` is no format of a time: {error}", text.trim())),
        }
    }

    /// Parses a part of a key: an argument that is the same at several times.
    ///
    /// # Errors
    /// The part that is not understood.
    pub(crate) fn parse_key(text: &str) -> Result<Self, String> {
        match Self::parse(text)? {
            Self::Time | Self::Elapsed | Self::Clock(_) => {
                let text = text.trim();
                Err(format!("`{text}` is another at each time, so it cannot be a key"))
            }
            argument => Ok(argument),
        }
    }
}

/// Parses a computed number, or a comparison of a text.
fn computed(text: &str, left: &str, operator: Operator, right: &str) -> Result<Argument, String> {
    let parsed = (Argument::parse(left)?, Argument::parse(right)?);
    match (operator, parsed) {
        (
            Operator::Compare(relation @ (Relation::Equal | Relation::Unequal)),
            (text, Argument::Quoted(other)) | (Argument::Quoted(other), text),
        ) => {
            let same = same(text, other)?;
            Ok(match relation {
                Relation::Unequal => Argument::Unary(Unary::Not, Box::new(same)),
                _ => same,
            })
        }
        (_, (one, other)) => {
            let left = Box::new(one.checked(left, text)?);
            Ok(Argument::Computed(left, operator, Box::new(other.checked(right, text)?)))
        }
    }
}

/// Returns the comparison of a text with one that does not change.
fn same(text: Argument, other: String) -> Result<Argument, String> {
    let (most, text) = match text {
        Argument::Text(pointer, most) => {
            // No more bytes than the other has need to be read.
            let needed = u8::try_from(other.len()).unwrap_or(u8::MAX).clamp(1, most);
            (most, Argument::Text(pointer, needed))
        }
        Argument::ThreadName => (MOST_NAME, text),
        _ => return Err(format!("`{text}` cannot be compared with a text; str(…) and comm can")),
    };
    if other.len() > usize::from(most) {
        return Err(format!("\"{other}\" is longer than `{text}` can be, {most} bytes"));
    }
    if other.contains('\0') {
        return Err(format!("{other:?} has a 0 byte, with which texts end"));
    }
    Ok(Argument::Same(Box::new(text), other))
}

/// Parses a name of a map or of a variable in `whole`.
pub(crate) fn name(text: &str, whole: &str) -> Result<String, String> {
    let text = text.trim();
    if text.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_') {
        return Ok(text.to_owned());
    }
    let sign = if whole.starts_with('$') { '$' } else { '@' };
    let what = if sign == '$' { "variable" } else { "map" };
    Err(format!("`{sign}{text}` is no name of a {what} (letters, digits and _)"))
}

/// Parses a map with its key, after its `@`.
pub(crate) fn map(text: &str) -> Result<(String, Vec<Argument>), String> {
    let Some((name, rest)) = text.trim().split_once('[') else {
        return Ok((self::name(text, text)?, Vec::new()));
    };
    let key = rest.trim_end().strip_suffix(']').ok_or_else(|| format!("no `]` in `@{text}`"))?;
    let parts = split(key).map(Argument::parse_key).collect::<Result<Vec<_>, _>>()?;
    Ok((self::name(name, text)?, parts))
}

/// Returns the text between quotes.
pub(crate) fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// Splits at commas and semicolons outside of brackets and quotes.
pub(crate) fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = quotes::end(text);
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}

/// Returns the text between the brackets of a call of `name`.
pub(crate) fn call<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')
}

/// Parses the arguments of `str`.
fn string(text: &str, inner: &str) -> Result<Argument, String> {
    let parts: Vec<&str> = split(inner).collect();
    let (pointer, most) = match parts[..] {
        [] | [_] => (inner, TEXT),
        [pointer, most] => {
            let most = number(most).and_then(|most| u8::try_from(most).ok());
            let most = most.filter(|most| (1..=MOST_TEXT).contains(most));
            let range = || format!("`{text}` has no length from 1 to {MOST_TEXT}");
            (pointer, most.ok_or_else(range)?)
        }
        _ => return Err(format!("`{text}` has more than a value and a length")),
    };
    let pointer = match Argument::number(pointer, text)? {
        // An array of characters is a text, as its address is.
        Argument::Member(member) if member.want == Want::Number => {
            Argument::Member(Member { want: Want::Text, ..member })
        }
        pointer => pointer,
    };
    Ok(Argument::Text(Box::new(pointer), most))
}

/// Parses a call of a function; `None` if it is none.
fn called(text: &str) -> Option<Result<Argument, String>> {
    if let Some(inner) = call(text, "str") {
        return Some(string(text, inner));
    }
    if let Some(inner) = call(text, "usym") {
        let number = Argument::number(inner, text);
        return Some(number.map(|number| Argument::Symbol(Box::new(number))));
    }
    if let Some(inner) = call(text, "sizeof") {
        let layout = |of| Argument::Layout(Box::new(Layout { of, path: Vec::new() }));
        return Some(measured(inner, text).map(layout));
    }
    if let Some(inner) = call(text, "offsetof") {
        return Some(offset(text, inner));
    }
    let parts: Vec<&str> = split(call(text, "strftime")?).map(str::trim).collect();
    Some(match parts[..] {
        [format, "nsecs"] => Argument::clock(format),
        _ => Err(format!("`{text}` is no time (write e.g. strftime(\"%H:%M:%S\", nsecs))")),
    })
}

/// Parses a type or a value, whose size or members `whole` names.
fn measured(text: &str, whole: &str) -> Result<Measured, String> {
    let name = TypeName::parse(text);
    match (name, Argument::parse(text)) {
        (Some(name), value) if name.is_certain() || value.is_err() => Ok(Measured::Type(name)),
        (_, value) => value?.checked(text, whole).map(Measured::Value),
    }
}

/// Parses the arguments of `offsetof`.
fn offset(text: &str, inner: &str) -> Result<Argument, String> {
    let (of, path) = inner.rsplit_once(',').ok_or_else(|| {
        format!("`{text}` has no member (write e.g. offsetof(struct request, uri))")
    })?;
    let name = |name: &str| {
        let name = name.trim();
        let named = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        let is_name =
            name.chars().all(named) && name.starts_with(|one: char| !one.is_ascii_digit());
        let wrong = || format!("`{name}` is no name of a member, in `{text}`");
        is_name.then(|| name.to_owned()).ok_or_else(wrong)
    };
    let path = path.split('.').map(name).collect::<Result<_, _>>()?;
    Ok(Argument::Layout(Box::new(Layout { of: measured(of, text)?, path })))
}

/// Returns the number of an argument after the six in registers: of a function, those on the stack.
fn behind_registers(text: &str) -> Option<u8> {
    let number = text.strip_prefix("arg")?.parse().ok()?;
    (ARGUMENTS.len() as u8..MOST_GIVEN).contains(&number).then_some(number)
}

/// Parses the way to a member; `wrong` says why it is no value either.
fn member(path: Path<'_>, text: &str, wrong: &str) -> Result<Member, String> {
    let begin = |root| Member { root, hops: Vec::new(), want: Want::Number };
    let then = |of: &str, hop| {
        let mut member = typed(of)?;
        member.hops.push(hop);
        Ok(member)
    };
    match path {
        Path::Parameter(name) => {
            let register = Operand::parse("arg0").map_err(|_| wrong.to_owned())?;
            Ok(begin(Root::Parameter(name.to_owned(), register)))
        }
        Path::Cast(name, of) => Ok(begin(Root::Cast(name, Box::new(Argument::number(of, text)?)))),
        Path::Address(of) => match typed(of)? {
            member if member.want == Want::Number => Ok(Member { want: Want::Address, ..member }),
            _ => Err(format!("`{text}` is the address of an address")),
        },
        Path::Deref(of) => {
            let mut member = match Argument::number(of, text).map_err(|_| wrong.to_owned())? {
                Argument::Member(member) if member.want == Want::Number => member,
                variable @ Argument::Variable(_) => begin(Root::Variable(Box::new(variable), None)),
                number if number.typed() > 0 => begin(Root::Computed(Box::new(number))),
                number => begin(Root::Cast(TypeName::of(Width::Whole, 1), Box::new(number))),
            };
            member.hops.push(Hop::Deref);
            Ok(member)
        }
        Path::Arrow(of, name) => then(of, Hop::Arrow(name.to_owned())),
        Path::Dot(of, name) => then(of, Hop::Dot(name.to_owned())),
        Path::Index(of, index) => then(of, Hop::Index(Argument::number(index, text)?)),
    }
}

/// Parses a value of a type.
fn typed(text: &str) -> Result<Member, String> {
    let text = text.trim();
    match Argument::parse(text)? {
        Argument::Member(member) if member.want == Want::Number => Ok(member),
        variable @ Argument::Variable(_) => {
            let root = Root::Variable(Box::new(variable), None);
            Ok(Member { root, hops: Vec::new(), want: Want::Number })
        }
        number @ (Argument::Computed(..) | Argument::Choice(_) | Argument::Kept(..))
            if number.typed() > 0 =>
        {
            let root = Root::Computed(Box::new(number));
            Ok(Member { root, hops: Vec::new(), want: Want::Number })
        }
        _ => Err(untyped(text)),
    }
}

/// Says that a value has no type.
pub(crate) fn untyped(text: &str) -> String {
    format!("nothing says what type `{text}` has (write e.g. ((struct request *){text})->uri)")
}

/// Replaces the escapes of C that texts of scripts have.
///
/// # Errors
/// The escape that is not known.
pub(crate) fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        if sign != '\\' {
            plain.push(sign);
            continue;
        }
        plain.push(match signs.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('\\') => '\\',
            Some('"') => '"',
            Some(other) => {
                return Err(format!("unknown escape `\\{other}` (known: \\n \\t \\r \\\\ \\\")"));
            }
            None => return Err("the text ends with a `\\`".to_owned()),
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_splice::Item;

    #[test]
    fn arguments_are_understood() {
        for (text, said, words) in [
            ("arg0", "arg0", 1),
            ("str(arg0)", "str(arg0)", 9),
            ("str( *(arg0 + 8) , 32 )", "str(*(arg0 + 8), 32)", 5),
            ("str(retval, 1)", "str(retval, 1)", 2),
            ("str(arg1,200)", "str(arg1, 200)", 26),
            ("comm", "comm", 2),
            ("func", "func", 0),
            ("probe", "probe", 0),
            ("usym(arg3)", "usym(arg3)", 1),
            ("ustack(3)", "ustack(3)", 1),
            ("nsecs", "nsecs", 0),
            ("\"a\\tb\"", "\"a\\tb\"", 0),
            ("-16", "-16", 0),
            ("elapsed / 1000 % 60", "((elapsed / 1000) % 60)", 0),
            ("(arg1 + retval) * (i32)arg2", "((arg1 + retval) * (i32)arg2)", 3),
            ("cpu", "cpu", 1),
            ("@start[tid, comm]", "@start[tid, comm]", 0),
            ("$a - @", "($a - @)", 0),
            ("!arg0 || -arg1 < ~2", "(!arg0 || (-arg1 < ~2))", 0),
            ("arg0 ? 1 : arg1 ? 2 : 3", "(arg0 ? 1 : (arg1 ? 2 : 3))", 0),
            ("comm == \"a ? b : c\"", "(comm == \"a ? b : c\")", 0),
            ("\"GET\" != str(@name[tid, pid], 8)", "!(str(@name[tid, pid], 3) == \"GET\")", 0),
            ("args->size + 1", "(args->size + 1)", 0),
            ("((struct s*)arg0)->a.b[1]", "((struct s *)arg0)->a.b[1]", 0),
            ("(u8)@x[tid]", "(u8)@x[tid]", 0),
            ("*(int *)(arg0 + 4)", "*((int *)(arg0 + 4))", 0),
            ("**$p", "*(*$p)", 0),
            ("&(*$p).a", "&(*$p).a", 0),
            ("*(arg0 + arg1)", "*((u64 *)(arg0 + arg1))", 0),
            ("sizeof(struct s) * 2", "(sizeof(struct s) * 2)", 0),
            ("offsetof (struct s*, a . b) - 1", "(offsetof(struct s *, a.b) - 1)", 0),
            ("sizeof( *$p )", "sizeof(*$p)", 0),
            ("sizeof(tid) + sizeof(unknown)", "(sizeof(tid) + sizeof(unknown))", 0),
            ("strftime(\"%H:%M\", nsecs)", "strftime(\"%H:%M\", nsecs)", 0),
            ("strftime(\"%S.%f%%f\",nsecs)", "strftime(\"%S.%6f%%f\", nsecs)", 0),
        ] {
            let argument = Argument::parse(text).unwrap_or_else(|what| panic!("{text}: {what}"));
            assert_eq!(argument.to_string(), said);
            let gathered: usize = argument.items().iter().map(Item::words).sum();
            assert_eq!(gathered, words, "{text}");
        }
    }

    #[test]
    fn what_is_no_argument_is_told() {
        for (text, what) in [
            ("str(arg0, 0)", "no length from 1 to 200"),
            ("str(arg0, 201)", "no length"),
            ("str(arg12)", "unknown value `arg12`"),
            ("str(ustack)", "can only be"),
            ("strs", "ustack, str(…)"),
            ("arg0 + comm", "`comm` is no number, in `arg0 + comm`"),
            ("arg0 + argx", "unknown value `argx`"),
            ("\"\\q\"", "unknown escape `\\q`"),
            (&"!".repeat(201), "begins more than 200 operators"),
            (&"(".repeat(100_000), "begins more than 200 operators"),
            (&["1"; 5000].join("-"), "begins more than 200 operators"),
            (&["a ? 1 "; 5000].join(":"), "begins more than 200 operators"),
            ("arg0->a", "nothing says what type `arg0` has"),
            ("args", "unknown value `args`"),
            ("&&$p", "nothing says what type `&$p` has"),
            ("$p[comm]", "`comm` is no number"),
            ("func == \"main\"", "`func` cannot be compared"),
            ("str(arg0, 2) == \"GET\"", "\"GET\" is longer than"),
            ("str(arg0, 1, 2)", "more than a value and a length"),
            ("@a[1", "no `]` in `@a[1`"),
            ("sizeof(comm)", "`comm` is no number"),
            ("offsetof(struct s)", "has no member"),
            ("offsetof(struct s, 1)", "`1` is no name of a member"),
            ("@é", "`@é` is no name of a map"),
            ("$é", "`$é` is no name of a variable"),
            ("comm ? 1 : 2", "`comm` is no number, in `comm ? 1 : 2`"),
            ("strftime(\"%H\")", "is no time"),
            ("strftime(\"%!\", nsecs)", "`\"%!\"` is no format"),
        ] {
            let error = Argument::parse(text).expect_err(text);
            assert!(error.contains(what), "{text}: {error}");
        }
        let error = Argument::parse_key(" nsecs").expect_err("no key");
        assert!(error.starts_with("`nsecs` is another"), "{error}");
    }
}
