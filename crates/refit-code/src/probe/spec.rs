//! What to watch, as it is written: `uprobe:redis-server:lookupKey* { count, histogram arg1 }`.
//!
//! ```text
//! specification := place (',' place)* '{' action (',' action)* '}'
//! place         := ('uprobe' | 'func' | 'insn') ':' [module ':'] what
//! what          := name of a function, with * and ? for any characters, or 0xADDRESS, or NAME+0xOFFSET
//! action        := 'count' | 'latency' | 'histogram' VALUE | 'poison'
//! VALUE         := 'arg0' … 'arg5' | a general register (rax, rdi, r8, …)
//! ```
//!
//! The words are those of bpftrace and perf where they have them.

use std::fmt;

/// Places, and what is done at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where.
    pub places: Vec<Place>,
    /// What.
    pub actions: Vec<Do>,
}

/// Where something is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The program's file or library, by its file name, with or without what follows the first dot, or by its path; `None`: any.
    pub module: Option<String>,
    /// What is looked for in it.
    pub what: What,
}

/// What a place is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The entry of every function whose name matches.
    Functions(String),
    /// One instruction: bytes behind a function's entry.
    Behind(String, u64),
    /// One instruction, by its address in the file.
    At(u64),
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// Count how often.
    Count,
    /// Count calls, and add up the time from entry to exit.
    Latency,
    /// Write garbage into registers and flags that are said to be dead: a test of that.
    Poison,
    /// Count the sizes of a general register's values, by powers of two.
    Histogram(Value),
}

/// A value that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its number in machine code.
    pub register: u8,
}

/// Why a specification cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in `{text}`; for example: uprobe:redis-server:lookupKey {{ count }}")]
pub struct NotUnderstood {
    what: String,
    text: String,
}

/// The general registers by their numbers.
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// Where the System V ABI passes the first six arguments.
const ARGUMENTS: [u8; 6] = [7, 6, 2, 1, 8, 9];

impl std::str::FromStr for Spec {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        let wrong = |what: String| NotUnderstood { what, text: text.to_owned() };
        let (places, rest) =
            text.split_once('{').ok_or_else(|| wrong("no `{ action }`".to_owned()))?;
        let actions =
            rest.trim_end().strip_suffix('}').ok_or_else(|| wrong("no closing `}`".to_owned()))?;
        if places.contains('/') && places.trim_end().ends_with('/') {
            return Err(wrong("a condition, which probes do not have yet,".to_owned()));
        }
        let spec = Self {
            places: places.split(',').map(place).collect::<Result<_, _>>().map_err(wrong)?,
            actions: actions.split(',').map(action).collect::<Result<_, _>>().map_err(wrong)?,
        };
        let functions = |place: &Place| matches!(place.what, What::Functions(_));
        if spec.actions.contains(&Do::Latency) && !spec.places.iter().all(functions) {
            return Err(wrong(
                "a latency, which functions have and instructions do not,".to_owned(),
            ));
        }
        Ok(spec)
    }
}

fn place(text: &str) -> Result<Place, String> {
    let text = text.trim();
    let (kind, rest) =
        text.split_once(':').ok_or_else(|| format!("no `:` in the place `{text}`"))?;
    // A path holds no colon as a rule; a C++ name holds pairs of them.
    let module_ends = rest.find(':').filter(|&at| !rest[at..].starts_with("::"));
    let (module, what) = match module_ends {
        Some(at) => (Some(rest[..at].to_owned()).filter(|name| !name.is_empty()), &rest[at + 1..]),
        None => (None, rest),
    };
    if what.is_empty() {
        return Err(format!("no function and no address in the place `{text}`"));
    }
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let behind = what.rsplit_once('+').and_then(|(name, offset)| Some((name, number(offset)?)));
    let what = match (kind, behind) {
        ("uprobe" | "func", None | Some((_, 0))) if number(what).is_none() => {
            What::Functions(what.to_owned())
        }
        ("uprobe" | "func" | "insn", Some((name, offset))) => What::Behind(name.to_owned(), offset),
        ("uprobe" | "func" | "insn", None) => match number(what) {
            Some(address) => What::At(address),
            None => What::Behind(what.to_owned(), 0),
        },
        _ => {
            return Err(format!(
                "no kind of place is called `{kind}` (uprobe, func and insn are),"
            ));
        }
    };
    Ok(Place { module, what })
}

fn action(text: &str) -> Result<Do, String> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["count"] => Ok(Do::Count),
        ["latency"] => Ok(Do::Latency),
        ["poison"] => Ok(Do::Poison),
        ["histogram", value] => Ok(Do::Histogram(parse_value(value)?)),
        ["histogram"] => Err("a histogram without a value (arg0 … arg5, or a register)".to_owned()),
        [] => Err("an empty action".to_owned()),
        [word, ..] => {
            Err(format!("no action is called `{word}` (count, latency, histogram and poison are),"))
        }
    }
}

fn parse_value(text: &str) -> Result<Value, String> {
    let argument = text.strip_prefix("arg").and_then(|number| number.parse::<usize>().ok());
    let register = match argument {
        Some(number) => ARGUMENTS.get(number).copied(),
        None => REGISTERS.iter().position(|&name| name == text).map(|number| number as u8),
    };
    let none = || format!("no value is called `{text}` (arg0 … arg5, rax, rdi, r8, … are),");
    register.map(|register| Value { register }).ok_or_else(none)
}

impl fmt::Display for Do {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => to.write_str("count"),
            Self::Latency => to.write_str("latency"),
            Self::Poison => to.write_str("poison"),
            Self::Histogram(value) => write!(to, "histogram {value}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(REGISTERS[usize::from(self.register & 15)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Spec {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn place_of(module: Option<&str>, what: What) -> Place {
        Place { module: module.map(str::to_owned), what }
    }

    #[test]
    fn places_and_actions_are_understood() {
        let functions = |name: &str| What::Functions(name.to_owned());
        assert_eq!(
            parse("uprobe:redis-server:lookupKey { count }"),
            Spec {
                places: vec![place_of(Some("redis-server"), functions("lookupKey"))],
                actions: vec![Do::Count],
            },
        );
        assert_eq!(
            parse(
                "func:nginx:ngx_http_*,func:/usr/lib/libssl.so.3:SSL_write{count,histogram arg2}"
            ),
            Spec {
                places: vec![
                    place_of(Some("nginx"), functions("ngx_http_*")),
                    place_of(Some("/usr/lib/libssl.so.3"), functions("SSL_write")),
                ],
                actions: vec![Do::Count, Do::Histogram(Value { register: 2 })],
            },
        );
        assert_eq!(
            parse("insn:prog:0x1234 { histogram rdi }").places,
            [place_of(Some("prog"), What::At(0x1234))],
        );
        assert_eq!(
            parse("insn::main+0x10 { count }").places,
            [place_of(None, What::Behind("main".to_owned(), 16))],
        );
        assert_eq!(
            parse("func:std::sort* { count }").places,
            [place_of(None, functions("std::sort*"))],
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("uprobe:a:b", "no `{ action }`"),
            ("uprobe:a:b { count", "no closing `}`"),
            ("uprobe:a:b { }", "an empty action"),
            ("uprobe:a:b { sum }", "no action is called `sum`"),
            ("uprobe:a:b { histogram arg9 }", "no value is called `arg9`"),
            ("uprobe:a:b { histogram }", "a histogram without a value"),
            ("kprobe:a:b { count }", "no kind of place is called `kprobe`"),
            ("uprobe:a: { count }", "no function and no address"),
            ("lookupKey { count }", "no `:`"),
            ("insn:a:0x10 { latency }", "a latency, which functions have"),
            ("uprobe:a:b /pid == 1/ { count }", "a condition"),
        ] {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
            assert!(error.contains(text), "{text}: {error}");
        }
    }
}
