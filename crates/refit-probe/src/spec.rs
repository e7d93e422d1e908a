//! Parses specifications, such as
//! `uprobe:redis-server:lookupKey* /arg2 > 4096/ { count, histogram arg1, by tid }`.
//!
//! ```text
//! specification := place (',' place)* ['/' condition '/'] '{' statements '}'
//! place         := ('uprobe' | 'uretprobe' | 'func' | 'insn') ':' [module ':'] what
//!                | 'usdt' ':' [module ':'] [provider ':'] name of a static tracepoint
//! what          := name of a function, with * and ? for any characters
//!                | 0xADDRESS | NAME+0xOFFSET
//! ```
//!
//! `uretprobe` places are the exits of functions.
//!
//! [`crate::declarations`] has the types that may be declared before; constants of enumerations are
//! replaced by their numbers. [`statement`] defines statements, [`crate::operand`] values,
//! [`crate::lowering`] conditions.
//! Where bpftrace and perf have a word for a concept, it is used here.

use std::fmt;
use std::sync::Arc;

use refit_splice::{Base, Width};

use crate::action::Do;
use crate::argument::{Argument, PlaceKind};
use crate::declarations::Declarations;
use crate::lowering::Lowering;
use crate::map_kinds::MapKinds;
pub use crate::not_understood::NotUnderstood;
use crate::operand::Operand;
use crate::statement::{self, Statement};

/// Places, and the actions at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The places.
    pub places: Vec<Place>,
    /// The actions, each with its condition.
    pub actions: Vec<Statement>,
    /// Whether actions run only when a function is left.
    pub leaving: bool,
    /// The types that its script declares.
    pub declared: Arc<Declarations>,
}

impl Spec {
    /// Counts how often control comes to a place.
    pub fn count(place: Place) -> Self {
        Self::count_all(place, Vec::new())
    }

    /// Counts how often control comes to a place with each value of a register, which has the
    /// number by which instructions encode it, or of the 8 bytes at an offset from what it points
    /// to.
    pub fn count_by(place: Place, register: u8, offset: Option<i32>) -> Self {
        let operand = match offset {
            Some(offset) => Operand::new(Base::Memory { register, offset }, Width::Whole),
            None => Operand::new(Base::Register(register), Width::Whole),
        };
        Self::count_all(place, vec![Argument::Value(operand)])
    }

    fn count_all(place: Place, by: Vec<Argument>) -> Self {
        let (what, when, tested) = (Do::Count, Vec::new(), Vec::new());
        let (places, actions) =
            (vec![place], vec![Statement { what, by, map: None, when, tested }]);
        Self { places, actions, leaving: false, declared: Arc::default() }
    }

    /// Returns the kind of its places.
    pub fn kind(&self) -> PlaceKind {
        match self.places.first().map(|place| &place.what) {
            Some(What::Tracepoint { .. }) => PlaceKind::Tracepoint,
            _ if self.leaving => PlaceKind::Exit,
            _ => PlaceKind::Instruction,
        }
    }

    /// Whether an action writes messages.
    pub fn prints(&self) -> bool {
        self.actions.iter().any(|one| one.what.prints())
    }

    /// Whether an action writes records.
    pub fn records(&self) -> bool {
        self.actions.iter().any(|one| one.what.records())
    }
}

/// A place, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, by its file name, with or without the part after the first dot, or by its path;
    /// `None` for any file.
    pub module: Option<String>,
    /// The place in the file.
    pub what: What,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The entry of every function whose name matches.
    Functions(String),
    /// One instruction, by its offset from a function's entry.
    Behind(String, u64),
    /// One instruction, by its address in the file.
    At(u64),
    /// Every static tracepoint whose name matches.
    Tracepoint {
        /// Name of what it belongs to, or any.
        provider: Option<String>,
        /// Its own name.
        name: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.module.as_deref().unwrap_or("*"), self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Functions(name) | Self::Tracepoint { provider: None, name } => to.write_str(name),
            Self::Behind(name, offset) => write!(to, "{name}+{offset:#x}"),
            Self::At(address) => write!(to, "{address:#x}"),
            Self::Tracepoint { provider: Some(provider), name } => write!(to, "{provider}:{name}"),
        }
    }
}

impl std::str::FromStr for Spec {
    type Err = NotUnderstood;

    fn from_str(text: &str) -> Result<Self, NotUnderstood> {
        Self::parse(text, &MapKinds::of(text), &Arc::default())
    }
}

impl Spec {
    /// Parses a specification of a script that declares these types and has these maps.
    ///
    /// # Errors
    /// What is not understood.
    pub(crate) fn parse(
        text: &str,
        kinds: &MapKinds,
        declared: &Arc<Declarations>,
    ) -> Result<Self, NotUnderstood> {
        parse(text, kinds, declared).map_err(|what| NotUnderstood::new(text, what))
    }
}

fn parse(text: &str, kinds: &MapKinds, declared: &Arc<Declarations>) -> Result<Spec, String> {
    let (head, rest) = text.split_once('{').ok_or("no `{ action }`")?;
    let body = rest.trim_end().strip_suffix('}').ok_or("no closing `}`")?;
    let body = &declared.replace_constants(body);
    // A path has slashes too, but no space before them.
    let head = &head.replace(['\n', '\t'], " ");
    let opens = head.find(char::is_whitespace).and_then(|at| Some(at + head[at..].find(" /")?));
    let mut lowering = Lowering::new(body, kinds);
    let (places, condition) = match opens {
        Some(at) => {
            let inner = head[at + 2..].trim_end().strip_suffix('/');
            let inner = inner.ok_or("no closing `/` after the condition")?;
            (&head[..at], Some(inner))
        }
        None => (head.as_str(), None),
    };
    let places: Vec<(Place, bool)> = places.split(',').map(place).collect::<Result<_, _>>()?;
    let exits = places.iter().filter(|(_, exits)| *exits).count();
    if exits != 0 && exits != places.len() {
        return Err("entries and exits (uretprobe) in one probe; write two".to_owned());
    }
    let places: Vec<Place> = places.into_iter().map(|(place, _)| place).collect();
    let is_given = |place: &&Place| matches!(place.what, What::Tracepoint { .. });
    match places.iter().filter(is_given).count() {
        0 => {}
        all if all == places.len() => lowering.take_given(),
        _ => return Err("static tracepoints and other places in one probe; write two".to_owned()),
    }
    let condition = condition.map(|condition| declared.replace_constants(condition));
    let condition = condition.map(|condition| lowering.condition(&condition)).transpose()?;
    let (when, tested) = condition.unwrap_or_default();
    // What the condition compares is computed without condition.
    let mut actions: Vec<_> = lowering.take().into_iter().map(Statement::from).collect();
    actions.extend(statement::parse(body, &mut lowering, &when)?);
    let leaving = exits > 0 || tested.iter().any(|operand| operand.leaving);
    let declared = Arc::clone(declared);
    let spec = Spec { places, actions, leaving, declared };
    spec.actions.iter().try_for_each(|statement| check(&spec, statement, &tested))?;
    Ok(spec)
}

/// Refuses combinations that are not possible; `tested` are the values of the condition.
fn check(spec: &Spec, statement: &Statement, tested: &[Operand]) -> Result<(), String> {
    let what = &statement.what;
    let functions = spec.places.iter().all(|place| matches!(place.what, What::Functions(_)));
    let leaves = spec.leaving || statement.leaves();
    let given = spec.kind() == PlaceKind::Tracepoint;
    let mut arguments = what.arguments().iter().chain(&statement.by);
    if let Some(argument) = arguments.find(|one| !functions && one.needs_entry(given)) {
        return Err(format!("`{argument}` needs the entry of a function, not an instruction"));
    }
    if (leaves || what.is_timed()) && !functions {
        return Err(format!("`{what}` needs functions, not instructions"));
    }
    // A timer is per thread: its condition must be the same at entry and exit, and its only
    // possible key is the thread.
    let thread = |by: &Argument| matches!(by, Argument::Value(operand) if operand.value.base == Base::Thread);
    let lasting = tested.iter().all(|operand| operand.is_lasting())
        && statement.by.len() <= 1
        && statement.by.iter().all(thread);
    if what.is_timed() && !statement.tested.is_empty() {
        return Err(format!("`{what}` cannot be in an `if`; write a probe with a condition"));
    }
    if what.is_timed() && !lasting {
        return Err(format!(
            "`{what}` allows only pid and tid in a condition, and only tid after `by`"
        ));
    }
    if *what == Do::Exits && !statement.by.is_empty() {
        return Err("`exits` has no `by`; write a probe of its own".to_owned());
    }
    if *what == Do::Exits && spec.leaving {
        return Err("`exits` begins at the entry; write uprobe in place of uretprobe".to_owned());
    }
    let mut read = tested.iter().chain(statement.operands());
    // A local that the entry has computed is gone when the function is left.
    let entered = |operand: &Operand| {
        !operand.leaving && !(operand.lasting && (spec.leaving || !operand.is_local()))
    };
    if leaves && read.any(entered) {
        return Err("retval and uretprobe cannot be combined with values that exist only at the entry (such as arg0)".to_owned());
    }
    Ok(())
}

/// Parses a place; also returns whether it is the exits of functions.
fn place(text: &str) -> Result<(Place, bool), String> {
    let text = text.trim();
    let (kind, rest) =
        text.split_once(':').ok_or_else(|| format!("no `:` in the place `{text}`"))?;
    // Paths rarely have a colon; C++ names have pairs of them.
    let module_ends = rest.find(':').filter(|&at| !rest[at..].starts_with("::"));
    let (module, what) = match module_ends {
        Some(at) => (Some(rest[..at].to_owned()).filter(|name| !name.is_empty()), &rest[at + 1..]),
        None => (None, rest),
    };
    if what.is_empty() {
        return Err(format!("no function or address in the place `{text}`"));
    }
    if kind == "usdt" {
        let (provider, name) = what.split_once(':').map_or((None, what), |(provider, name)| {
            (Some(provider.to_owned()).filter(|name| !name.is_empty()), name)
        });
        let what = What::Tracepoint { provider, name: name.to_owned() };
        return Ok((Place { module, what }, false));
    }
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let behind = what.rsplit_once('+').and_then(|(name, offset)| Some((name, number(offset)?)));
    if kind == "uretprobe" && (behind.is_some() || number(what).is_some()) {
        return Err(format!("`{text}` is an instruction; uretprobe needs a function"));
    }
    let what = match (kind, behind) {
        ("uprobe" | "uretprobe" | "func", None | Some((_, 0))) if number(what).is_none() => {
            What::Functions(what.to_owned())
        }
        ("uprobe" | "func" | "insn", Some((name, offset))) => What::Behind(name.to_owned(), offset),
        ("uprobe" | "func" | "insn", None) => match number(what) {
            Some(address) => What::At(address),
            None => What::Behind(what.to_owned(), 0),
        },
        _ => {
            return Err(format!(
                "unknown kind of place `{kind}` (known: uprobe, uretprobe, usdt, func, insn)"
            ));
        }
    };
    Ok((Place { module, what }, kind == "uretprobe"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::Condition;
    use refit_splice::Clock;

    fn parse(text: &str) -> Spec {
        text.parse().unwrap_or_else(|error: NotUnderstood| panic!("{error}"))
    }

    fn place_of(module: Option<&str>, what: What) -> Place {
        Place { module: module.map(str::to_owned), what }
    }

    fn value(text: &str) -> Argument {
        Argument::Value(Operand::parse(text).unwrap_or_else(|what| panic!("{what}")))
    }

    #[test]
    fn places_are_understood() {
        let functions = |name: &str| What::Functions(name.to_owned());
        let places = |text: &str| parse(text).places;
        assert_eq!(
            places("uprobe:redis-server:lookupKey { count }"),
            [place_of(Some("redis-server"), functions("lookupKey"))],
        );
        assert_eq!(
            places("func:nginx:ngx_http_*,func:/usr/lib/libssl.so.3:SSL_write{count}"),
            [
                place_of(Some("nginx"), functions("ngx_http_*")),
                place_of(Some("/usr/lib/libssl.so.3"), functions("SSL_write")),
            ],
        );
        assert_eq!(
            places("insn:prog:0x1234 { histogram rdi }"),
            [place_of(Some("prog"), What::At(0x1234))],
        );
        assert_eq!(
            places("insn::main+0x10 { count }"),
            [place_of(None, What::Behind("main".to_owned(), 16))],
        );
        assert_eq!(places("func:std::sort* { count }"), [place_of(None, functions("std::sort*"))],);
    }

    #[test]
    fn actions_and_conditions_are_understood() {
        let spec = parse("uprobe:a:b /rdi == 0 && tid != 7/ { event rdi, rsi, count, by tid }");
        let done =
            |spec: &Spec| spec.actions.iter().map(|one| one.what.clone()).collect::<Vec<_>>();
        assert_eq!(done(&spec), [Do::Event(vec![value("rdi"), value("rsi")]), Do::Count]);
        assert!(spec.actions.iter().all(|one| one.by == [value("tid")]));
        let when = &spec.actions[1].when;
        assert_eq!((when.len(), when[0].len(), spec.leaving), (1, 2, false));
        let spec = parse("uprobe:/usr/bin/a:b /tid == 1/ { latency, cpu, concurrency, span }");
        assert_eq!(done(&spec), [Do::Latency, Do::Cpu, Do::Concurrency, Do::Span]);
        assert_eq!(spec.places, [place_of(Some("/usr/bin/a"), What::Functions("b".to_owned()))]);
        let spec = parse("func:a:b /tid == 1/ { histogram latency, histogram cpu, by tid }");
        assert_eq!(done(&spec), [Do::Durations(Clock::Wall), Do::Durations(Clock::Thread)]);
        assert_eq!(done(&spec)[1].to_string(), "histogram cpu");
        let spec = parse("uprobe:a:b { sum arg0, avg (i32)arg1, min arg2, max arg3, by tid }");
        let said: Vec<_> = done(&spec).iter().map(Do::to_string).collect();
        assert_eq!(said, ["sum arg0", "avg (i32)arg1", "min arg2", "max arg3"]);
        let spec = parse("uprobe:a:b /retval < 0/ { count, histogram retval }");
        assert!(spec.leaving);
        for text in ["uprobe:a:b { histogram arg1 }", "uprobe:a:b { event }"] {
            assert_eq!(parse(text).actions[0].when, Condition::new(), "{text}");
        }
    }

    #[test]
    fn maps_have_names_and_keys_of_their_own() {
        let text = "uprobe:a:b { @calls[tid] = count(); @ = hist(arg1); @max = max((i32)arg0), count, by pid; }";
        let spec = parse(text);
        let said = spec.actions.iter().map(|one| {
            let by =
                one.by.iter().map(ToString::to_string).reduce(|all, by| format!("{all}, {by}"));
            (one.map.as_deref(), by, one.what.to_string())
        });
        let said: Vec<_> = said.collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            said,
            [
                (Some("calls"), some("tid"), "count".to_owned()),
                (Some(""), None, "histogram arg1".to_owned()),
                (Some("max"), None, "max (i32)arg0".to_owned()),
                (None, some("pid"), "count".to_owned()),
            ]
        );
        let spec =
            parse("uprobe:a:b { @[tid, str(arg0, 8), func] = count(); printf(\"%d;\", arg1) }");
        let by: Vec<_> = spec.actions[0].by.iter().map(ToString::to_string).collect();
        assert_eq!(by, ["tid", "str(arg0, 8)", "func"]);
        assert_eq!(spec.actions[1].what.to_string(), "printf(\"%d;\", arg1)");
        let spec = parse("uprobe:a:b { @[retval] = count(); @entered = count() }");
        assert_eq!(spec.actions.iter().map(Statement::leaves).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn an_error_marks_what_it_quotes() {
        let text = "uprobe:a:b\n{\n  @x[tid] = count();\n  @y[argx] = count();\n}";
        let error = text.parse::<Spec>().expect_err(text);
        let mark = ["  @y[argx] = count();", "     ~~~~"].map(str::to_owned);
        assert_eq!(error.mark(), Some(mark));
        assert!(error.to_string().starts_with("cannot parse the probe: unknown value `argx`"));
        let error = "uprobe:a:b { }".parse::<Spec>().expect_err("empty");
        assert_eq!(error.mark(), None);
        assert!(error.to_string().starts_with("cannot parse the probe `uprobe:a:b { }`: "));
    }

    #[test]
    fn blocks_are_within_each_other_up_to_a_limit() {
        let within = |count| "if (1) { ".repeat(count) + "count " + &"}".repeat(count);
        let after = |count| "if (1) { count }".to_owned() + &" else if (1) { count }".repeat(count);
        for body in [within(40), after(20_000)] {
            let error = format!("uprobe:a:b {{ {body} }}").parse::<Spec>().expect_err("too deep");
            assert!(error.what.contains("more than 30 blocks"), "{}", error.what);
        }
        for body in [within(20), after(20)] {
            parse(&format!("uprobe:a:b {{ {body} }}"));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, what) in [
            ("uprobe:a:b", "no `{ action }`"),
            ("uprobe:a:b { count", "no closing `}`"),
            ("uprobe:a:b { }", "an empty action"),
            ("uprobe:a:b { by tid }", "no action"),
            ("uprobe:a:b { count, by tid, by pid }", "`by` is given twice"),
            ("uprobe:a:b { count twice }", "unexpected `twice` after `count`"),
            ("uprobe:a:b { sum }", "sum needs a value"),
            ("uprobe:a:b { product arg0 }", "unknown action `product`"),
            ("uprobe:a:b { printf(\"%d\", arg12) }", "unknown value `arg12`"),
            ("uprobe:a:b { printf(\"%d\", retval, arg0) }", "1 conversions"),
            ("uprobe:a:b { printf(\"%d %d\", retval, arg0) }", "cannot be combined"),
            ("uretprobe:a:b { @[arg0] = count() }", "uretprobe cannot be combined"),
            ("uretprobe:a:b { exits }", "`exits` begins at the entry"),
            ("uretprobe:a:b+0x10 { count }", "uretprobe needs a function"),
            ("uretprobe:a:b, uprobe:a:c { count }", "entries and exits"),
            ("uprobe:a:b { @[tid, nsecs] = count() }", "`nsecs` is another at each time"),
            (
                "uprobe:a:b { @[str(arg0, 200), str(arg1, 200), str(arg2, 200)] = count() }",
                "a key of 624 bytes",
            ),
            ("uprobe:a:b { latency, by comm }", "only tid after `by`"),
            ("uprobe:a:b { exits, by tid }", "`exits` has no `by`"),
            ("uprobe:a:b { max arg12 }", "unknown value `arg12`"),
            ("insn:a:0x10 { max retval }", "needs functions, not"),
            ("uprobe:a:b { histogram arg12 }", "unknown value `arg12`"),
            ("uprobe:a:b { histogram }", "histogram needs a value"),
            ("uprobe:a:b { event rdi, rsi, rdx }", "unknown action `rdx`"),
            ("kprobe:a:b { count }", "unknown kind of place `kprobe`"),
            ("uprobe:a: { count }", "no function or address"),
            ("lookupKey { count }", "no `:`"),
            ("insn:a:0x10 { latency }", "`latency` needs functions"),
            ("insn:a:0x10 { histogram latency }", "needs functions, not"),
            ("insn:a:0x10 { histogram retval }", "needs functions, not"),
            ("uprobe:a:b /arg0 == 1/ { latency }", "`latency` allows only pid and tid"),
            (
                "uprobe:a:b /retval == 1/ { histogram arg0 }",
                "retval and uretprobe cannot be combined",
            ),
            ("uprobe:a:b /arg0 == 1 { count }", "no closing `/`"),
            ("uprobe:a:b /comm/ { count }", "`comm` is no number"),
            ("uprobe:a:b /@start[tid]/ { latency }", "`latency` allows only pid and tid"),
            ("uprobe:a:b { if (arg0) { latency } }", "cannot be in an `if`"),
            ("uprobe:a:b { $t = nsecs; @[$t] = sum(retval) }", "cannot be combined"),
            ("uprobe:a:b { count, by arg0 + 1 }", "write e.g. @[arg0 + 1]"),
            ("uprobe:a:b { @x[tid] = comm }", "a map keeps numbers"),
            ("uprobe:a:b { delete(tid) }", "`tid` is no map"),
            ("uprobe:a:b { $a }", "`$a` is no assignment"),
            ("uprobe:a:b { count, by $a }", "`$a` was assigned nothing"),
            ("uprobe:a:b /comm == \"a name of 17 bytes\"/ { count }", "is longer than `comm`"),
            ("uprobe:a:b { @calls }", "is no assignment"),
            ("uprobe:a:b { @calls[tid = count() }", "no `]`"),
            ("uprobe:a:b { @a b = count() }", "is no name of a map"),
            ("uprobe:a:b { @ = count }", "is no function of a map"),
            ("uprobe:a:b { @ = latency() }", "cannot be assigned to a map"),
            ("uprobe:a:b { @ = hist() }", "histogram needs a value"),
            ("uprobe:a:b { @[arg0] = sum(retval) }", "retval and uretprobe cannot be combined"),
        ] {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
            assert!(error.contains(text), "{text}: {error}");
        }
    }
}
