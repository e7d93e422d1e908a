//! A seccomp filter: what happens to each system call, as a program for the kernel
//! (`linux/filter.h`).
//!
//! The kernel runs the program before *every* call, so it looks the number up by bisection:
//! consecutive numbers with the same treatment form a range, and a tree of comparisons leads to the
//! range of a number. Only there does it look at arguments. For numbers that are always allowed,
//! the kernel finds that out once, and skips the program afterwards (5.11).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;

use linux_raw_sys::ptrace as raw;

/// The maximum number of instructions that the kernel accepts.
const BPF_MAXINSNS: usize = 4096;
/// The numbers of the x32 convention begin here, under the same architecture.
const X32: u32 = 0x4000_0000;
/// The value of `seccomp_data.arch` for calls of this machine's own convention.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = raw::AUDIT_ARCH_X86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = raw::AUDIT_ARCH_AARCH64;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The action that the kernel takes for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The call is made.
    Allow,
    /// The call is not made, and fails with this error, 1 to 4095.
    Errno(u16),
    /// The listener answers the call; without one it fails with `ENOSYS`.
    Notify,
    /// The tracer is notified (`PTRACE_EVENT_SECCOMP`), with this message; without one the call
    /// fails with `ENOSYS`.
    Trace(u16),
    /// The process is killed (`SIGSYS`).
    Kill,
}

/// A condition on an argument: the bits of `mask` equal `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The number of the argument, from 0 to 5.
    pub argument: usize,
    /// The bits that are compared.
    pub mask: u64,
    /// The value of those bits.
    pub value: u64,
}

/// A set of rules for system calls. Of the rules for a number, the first whose conditions all hold
/// applies.
#[derive(Clone, Debug)]
pub struct Filter {
    otherwise: Action,
    foreign: Action,
    rules: BTreeMap<u32, Vec<Rule>>,
}

type Rule = (Vec<Condition>, Action);

/// A filter in the form that the kernel accepts.
#[derive(Clone, Debug)]
pub struct Program {
    instructions: Vec<libc::sock_filter>,
}

/// The error that a filter has more instructions than the kernel accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The number of instructions of the filter.
    pub instructions: usize,
}

impl Filter {
    /// Creates a filter that applies `otherwise` to all calls. Calls by another convention than
    /// this machine's own (32-bit programs, x32) fail with `ENOSYS`.
    pub fn new(otherwise: Action) -> Self {
        let foreign = Action::Errno(libc::ENOSYS as u16);
        Self { otherwise, foreign, rules: BTreeMap::new() }
    }

    /// Sets the action for calls by another convention.
    #[must_use]
    pub fn foreign(mut self, action: Action) -> Self {
        self.foreign = action;
        self
    }

    /// Adds a rule for the calls with this number (`SYS_*`).
    ///
    /// # Panics
    /// As [`rule_if`](Self::rule_if).
    #[must_use]
    pub fn rule(self, number: i64, action: Action) -> Self {
        self.rule_if(number, &[], action)
    }

    /// Adds a rule for the calls with this number for which all conditions hold.
    ///
    /// # Panics
    /// If no call of this machine's own convention has such a number, there is no such argument, or
    /// an argument has two conditions.
    #[must_use]
    pub fn rule_if(mut self, number: i64, conditions: &[Condition], action: Action) -> Self {
        let call = u32::try_from(number).ok().filter(|&number| number < X32);
        let Some(call) = call else { panic!("{number} is no number of a system call") };
        let arguments: BTreeSet<usize> = conditions.iter().map(|one| one.argument).collect();
        let each_once = arguments.len() == conditions.len();
        assert!(each_once && arguments.iter().all(|&argument| argument < 6), "{conditions:?}");
        self.rules.entry(call).or_default().push((conditions.to_vec(), action));
        self
    }

    /// Assembles the program.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn assemble(&self) -> Result<Program, TooLong> {
        let mut code = vec![
            statement(LOAD, offset(At::Architecture)),
            branch(IF_EQUAL, ARCHITECTURE, 1, 0),
            statement(RETURN, value(self.foreign)),
            statement(LOAD, offset(At::Number)),
        ];
        code.extend(tree(&self.stretches()));
        match code.len() {
            ..=BPF_MAXINSNS => Ok(Program { instructions: code }),
            instructions => Err(TooLong { instructions }),
        }
    }

    /// Divides all numbers into ranges with the same treatment. Returns the beginning of each
    /// range, and the code for it.
    fn stretches(&self) -> Vec<(u32, Vec<libc::sock_filter>)> {
        let rest = |action| vec![statement(RETURN, value(action))];
        let mut found = vec![(0, rest(self.otherwise))];
        for (&number, rules) in &self.rules {
            if found.last().is_some_and(|&(begin, _)| begin == number) {
                found.pop();
            }
            found.push((number, self.decide(rules)));
            found.push((number + 1, rest(self.otherwise)));
        }
        found.retain(|&(begin, _)| begin < X32);
        found.push((X32, rest(self.foreign)));
        found.dedup_by(|later, earlier| same(&later.1, &earlier.1));
        found
    }

    /// Returns the code for one number.
    fn decide(&self, rules: &[Rule]) -> Vec<libc::sock_filter> {
        let mut code = Vec::new();
        for (conditions, action) in rules {
            let mut tests: Vec<_> = conditions.iter().flat_map(test).collect();
            // Jump distances count from here to the end, since a condition that does not hold leads
            // after the rule.
            let length = tests.len();
            for (at, one) in tests.iter_mut().enumerate().filter(|(_, one)| one.code == IF_EQUAL) {
                // At most six conditions of six instructions, so it fits.
                one.jf = (length - at) as u8;
            }
            code.extend(tests);
            code.push(statement(RETURN, value(*action)));
            if conditions.is_empty() {
                return code;
            }
        }
        code.push(statement(RETURN, value(self.otherwise)));
        code
    }
}

impl Program {
    /// Returns the instructions.
    pub fn instructions(&self) -> &[libc::sock_filter] {
        &self.instructions
    }

    /// Returns the bytes that a call to install the filter expects at `address` (aligned to 8) in a
    /// program: a `struct sock_fprog`, and after it the instructions.
    pub fn image(&self, address: u64) -> Vec<u8> {
        let mut bytes = self.header(address + HEADER as u64).to_vec();
        for one in &self.instructions {
            bytes.extend(one.code.to_ne_bytes());
            bytes.extend([one.jt, one.jf]);
            bytes.extend(one.k.to_ne_bytes());
        }
        bytes
    }

    /// Returns the `struct sock_fprog` for instructions at `address`.
    pub(super) fn header(&self, address: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        // `assemble` has checked that the number fits.
        bytes[..2].copy_from_slice(&(self.instructions.len() as u16).to_ne_bytes());
        bytes[8..].copy_from_slice(&address.to_ne_bytes());
        bytes
    }
}

/// Bytes of a `struct sock_fprog`: the number of instructions, and their address.
const HEADER: usize = 16;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instructions = self.instructions;
        write!(
            f,
            "a filter of {instructions} instructions, and the kernel takes {BPF_MAXINSNS}: give it fewer rules"
        )
    }
}

impl std::error::Error for TooLong {}

impl From<TooLong> for io::Error {
    fn from(error: TooLong) -> Self {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Returns code that leads to the range that contains the number, which is loaded.
fn tree(stretches: &[(u32, Vec<libc::sock_filter>)]) -> Vec<libc::sock_filter> {
    if let [(_, code)] = stretches {
        return code.clone();
    }
    let (below, above) = stretches.split_at(stretches.len() / 2);
    let (first, above) = (above[0].0, tree(above));
    let below = tree(below);
    // A conditional jump reaches 255 instructions; the lower half may be longer.
    let mut code = vec![branch(IF_AT_LEAST, first, 0, 1), statement(JUMP, below.len() as u32)];
    code.extend(below);
    code.extend(above);
    code
}

/// Returns code that continues if a condition holds. It compares both halves of the argument, first
/// the one that differs more often. The caller fills in the jumps for the other case.
fn test(condition: &Condition) -> Vec<libc::sock_filter> {
    let mut code = Vec::new();
    let halves = [(At::Low(condition.argument), 0), (At::High(condition.argument), 32)];
    for (at, shift) in halves {
        let mask = (condition.mask >> shift) as u32;
        let value = (condition.value >> shift) as u32;
        if mask == 0 && value == 0 {
            continue;
        }
        code.push(statement(LOAD, offset(at)));
        if mask != u32::MAX {
            code.push(statement(AND, mask));
        }
        code.push(branch(IF_EQUAL, value, 0, 0));
    }
    code
}

/// A field of `struct seccomp_data`.
#[derive(Clone, Copy)]
enum At {
    Number,
    Architecture,
    Low(usize),
    High(usize),
}

fn offset(at: At) -> u32 {
    let (low, high) = if cfg!(target_endian = "little") { (0, 4) } else { (4, 0) };
    let first = std::mem::offset_of!(libc::seccomp_data, args);
    let offset = match at {
        At::Number => std::mem::offset_of!(libc::seccomp_data, nr),
        At::Architecture => std::mem::offset_of!(libc::seccomp_data, arch),
        At::Low(argument) => first + 8 * argument + low,
        At::High(argument) => first + 8 * argument + high,
    };
    offset as u32
}

fn value(action: Action) -> u32 {
    match action {
        Action::Allow => raw::SECCOMP_RET_ALLOW,
        Action::Errno(error) => raw::SECCOMP_RET_ERRNO | u32::from(error.clamp(1, 4095)),
        Action::Notify => raw::SECCOMP_RET_USER_NOTIF,
        Action::Trace(message) => raw::SECCOMP_RET_TRACE | u32::from(message),
        Action::Kill => raw::SECCOMP_RET_KILL_PROCESS,
    }
}

fn same(one: &[libc::sock_filter], other: &[libc::sock_filter]) -> bool {
    let parts = |a: &libc::sock_filter| (a.code, a.jt, a.jf, a.k);
    one.iter().map(parts).eq(other.iter().map(parts))
}

fn statement(code: u16, k: u32) -> libc::sock_filter {
    branch(code, k, 0, 0)
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the kernel's result; `data` holds the words of a `seccomp_data`.
    fn run(program: &Program, number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
        let mut data = vec![number, architecture, 0, 0];
        data.extend(arguments.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]));
        let (mut at, mut word) = (0, 0);
        loop {
            let one = program.instructions[at];
            at += 1;
            let taken = match one.code {
                LOAD => {
                    word = data[one.k as usize / 4];
                    0
                }
                AND => {
                    word &= one.k;
                    0
                }
                IF_EQUAL if word == one.k => one.jt.into(),
                IF_AT_LEAST if word >= one.k => one.jt.into(),
                IF_EQUAL | IF_AT_LEAST => one.jf.into(),
                JUMP => one.k as usize,
                RETURN => return one.k,
                code => panic!("{code:#x}"),
            };
            at += taken;
        }
    }

    /// Returns the result of the rules, read one after the other.
    fn model(filter: &Filter, number: u32, arguments: [u64; 6]) -> u32 {
        let holds = |one: &Condition| arguments[one.argument] & one.mask == one.value;
        let rules = filter.rules.get(&number).into_iter().flatten();
        let first = rules.into_iter().find(|(conditions, _)| conditions.iter().all(holds));
        value(first.map_or(filter.otherwise, |&(_, action)| action))
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            Just(Action::Allow),
            Just(Action::Notify),
            (1_u16..4096).prop_map(Action::Errno),
            any::<u16>().prop_map(Action::Trace),
        ]
    }

    fn conditions() -> impl Strategy<Value = Vec<Condition>> {
        let word = || prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(1 << 40), 0_u64..4];
        let one = (0_usize..6, word(), word());
        proptest::collection::btree_map(0_usize..6, one, 0..3).prop_map(|found| {
            let one = |(argument, (_, mask, value))| Condition { argument, mask, value };
            found.into_iter().map(one).collect()
        })
    }

    proptest! {
        #[test]
        fn the_program_says_what_the_rules_say(
            rules in proptest::collection::vec((0_i64..40, conditions(), action()), 0..60),
            calls in proptest::collection::vec((0_u32..45, any::<[bool; 6]>(), 0_u64..4), 1..50),
        ) {
            let mut filter = Filter::new(Action::Allow).foreign(Action::Kill);
            for (number, conditions, action) in &rules {
                filter = filter.rule_if(*number, conditions, *action);
            }
            let program = filter.assemble().expect("short enough");
            for (number, full, low) in calls {
                let arguments = full.map(|full| if full { u64::MAX } else { low });
                let said = run(&program, number, ARCHITECTURE, arguments);
                prop_assert_eq!(said, model(&filter, number, arguments));
            }
            for (number, architecture) in [(1, 0), (X32, ARCHITECTURE), (u32::MAX, ARCHITECTURE)] {
                prop_assert_eq!(run(&program, number, architecture, [0; 6]), value(Action::Kill));
            }
        }
    }

    #[test]
    fn numbers_that_fare_alike_are_looked_up_together() {
        let all = (0..500)
            .fold(Filter::new(Action::Allow), |filter, number| filter.rule(number, Action::Notify));
        // Load the architecture, load the number; two comparisons: notified or not, x32 or not.
        assert!(all.assemble().expect("short").instructions().len() <= 12);
    }

    #[test]
    fn too_many_rules_are_refused() {
        let far = (0..3000).fold(Filter::new(Action::Allow), |filter, number| {
            filter.rule(2 * number, Action::Notify)
        });
        let refused = far.assemble().expect_err("too long");
        assert!(refused.instructions > BPF_MAXINSNS && refused.to_string().contains("fewer rules"));
    }

    #[test]
    fn the_image_is_a_header_and_the_instructions() {
        let program = Filter::new(Action::Allow).assemble().expect("short");
        let image = program.image(0x1000);
        assert_eq!(HEADER, size_of::<libc::sock_fprog>());
        assert_eq!(image.len(), HEADER + 8 * program.instructions().len());
        assert_eq!(image[8..16], 0x1010_u64.to_ne_bytes());
        assert_eq!(usize::from(image[0]), program.instructions().len());
    }
}
