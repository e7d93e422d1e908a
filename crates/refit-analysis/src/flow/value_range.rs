//! Bounds the index of a jump table.
//!
//! The index is followed backwards on all paths, through copies and extensions, until it is bounded
//! on each path: by a comparison whose outcome led here (`cmp`, `ja`), by a mask (`and`), or by its
//! width (`movzx` of a byte). If a path has none of these, the table has no bound.

use std::collections::BTreeSet;

use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register, RflagsBits,
};

use super::trace::{How, Trace, is_call, is_immediate, survives_calls, writes};

/// Maximum number of steps back, on all paths together.
const STEPS: usize = 4096;
/// Maximum number of entries of a table; a larger bound is taken for an error.
pub(super) const MOST: u64 = 1 << 16;

/// Maximum number of entries that a table can have. `exact` if a comparison says so, in which case
/// the table has exactly as many entries; a width or a mask is only an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) entries: u64,
    pub(super) exact: bool,
}

/// The value that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// A register, in its full width.
    Register(Register),
    /// Memory at a distance from a register that does not change on the path.
    Memory(Register, u64),
}

/// State of one path back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    /// The instruction before which
    at: u32,
    /// this value matters,
    value: Value,
    /// with this added to it (in 32 bits).
    added: u32,
    /// Upper bound of the index, from its width or from a comparison of a part of it.
    at_most: Option<u64>,
    /// Whether the upper bound comes from a comparison.
    exact: bool,
    /// Bound from a comparison of the low bits only; it applies once a width shows that the other
    /// bits are zero.
    narrow: Option<u64>,
    /// A comparison of another register, which the value may turn out to be a copy of.
    aside: Option<Fact>,
    /// The outcome of the last comparison that led here, until an instruction that writes flags is
    /// passed.
    outcome: Option<(Condition, bool)>,
}

/// The outcome of a comparison with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fact {
    register: Register,
    outcome: (Condition, bool),
    with: u64,
    bits: u32,
}

/// Conditions of unsigned comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Above,
    AboveOrEqual,
}

/// Bounds the value of `register` before instruction `i`.
pub(super) fn bound(trace: &Trace, register: Register, i: u32) -> Option<Bound> {
    let value = Value::Register(register.full_register());
    let begin = Way {
        at: i,
        value,
        added: 0,
        at_most: None,
        exact: false,
        narrow: None,
        aside: None,
        outcome: None,
    };
    let mut search = Search { trace, info: InstructionInfoFactory::new(), ends: Vec::new() };
    search.follow(begin)?;
    let entries = search.ends.iter().map(|e| e.entries).max()?;
    let exact = search.ends.iter().all(|e| e.exact);
    (entries <= MOST).then_some(Bound { entries, exact })
}

struct Search<'a, 'w> {
    trace: &'a Trace<'w>,
    info: InstructionInfoFactory,
    ends: Vec<Bound>,
}

/// Result of one step back.
enum Step {
    /// The path continues in this state.
    On(Way),
    /// The path ends with a bound.
    End(Bound),
    /// The path cannot be bounded.
    Lost,
}

impl Search<'_, '_> {
    fn follow(&mut self, begin: Way) -> Option<()> {
        let mut seen = BTreeSet::new();
        let mut work = vec![begin];
        while let Some(way) = work.pop() {
            let Some(before) = self.trace.before(way.at) else {
                self.ends.push(fallback(&way)?);
                continue;
            };
            for &(_, from, how) in before {
                let step = self.step(Way { at: from, ..way }, how);
                match step {
                    Step::On(on) => {
                        if seen.insert(on) {
                            work.push(on);
                        }
                    }
                    Step::End(bound) => self.ends.push(bound),
                    Step::Lost => self.ends.push(fallback(&way)?),
                }
                if seen.len() > STEPS {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Goes back over the instruction `way.at`, from which control came by `how`.
    fn step(&mut self, mut way: Way, how: How) -> Step {
        let instruction = self.trace.code(way.at);
        match how {
            How::Taken => way.outcome = condition(instruction),
            How::NotTaken => way.outcome = condition(instruction).map(|(c, says)| (c, !says)),
            How::Next | How::Jumped => {}
        }
        if let Some(limit) = compared(instruction, &way) {
            // A comparison of `%al` bounds `%rax` only if the rest of it is known to be zero.
            let low_only = instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().size() < 4
                && way.at_most.is_none_or(|m| m > ones(instruction.op0_register().size()));
            if !low_only {
                let entries = way.at_most.map_or(limit, |m| (m + 1).min(limit));
                // Within this bound, only bits can be set that the comparison of the low bits
                // covers.
                let narrow = way.narrow.filter(|_| entries <= 1 << 8);
                let entries = narrow.map_or(entries, |n| n.min(entries));
                return Step::End(Bound { entries, exact: true });
            }
            way.narrow = Some(way.narrow.map_or(limit, |n| n.min(limit)));
        }
        way.aside = way.aside.or_else(|| aside(instruction, way.outcome));
        if instruction.rflags_modified() != RflagsBits::NONE {
            way.outcome = None;
        }
        if is_call(instruction) {
            let kept = matches!(way.value, Value::Register(r) if survives_calls(r));
            if !kept {
                return Step::Lost;
            }
        }
        match way.value {
            Value::Register(register) => {
                if writes(&mut self.info, instruction, register) {
                    return defined(instruction, way);
                }
                if way.aside.is_some_and(|f| writes(&mut self.info, instruction, f.register)) {
                    way.aside = None;
                }
                Step::On(way)
            }
            Value::Memory(base, _) => {
                let stores = instruction.op_count() > 0
                    && instruction.op0_kind() == OpKind::Memory
                    && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
                if stores || writes(&mut self.info, instruction, base) {
                    return Step::Lost;
                }
                Step::On(way)
            }
        }
    }
}

/// Returns the bound that is known when a path cannot be followed further.
fn fallback(way: &Way) -> Option<Bound> {
    let limit = way.at_most?;
    Some(Bound { entries: limit.checked_add(1)?, exact: way.exact })
}

/// Returns the condition of a jump that compares unsigned numbers: (condition, whether it holds
/// when the jump is taken).
fn condition(jump: &Instruction) -> Option<(Condition, bool)> {
    match jump.condition_code() {
        ConditionCode::a => Some((Condition::Above, true)),
        ConditionCode::be => Some((Condition::Above, false)),
        ConditionCode::ae => Some((Condition::AboveOrEqual, true)),
        ConditionCode::b => Some((Condition::AboveOrEqual, false)),
        _ => None,
    }
}

/// Returns how many values remain if `instruction` compares the followed value with a constant and
/// the outcome of the comparison led here.
fn compared(instruction: &Instruction, way: &Way) -> Option<u64> {
    if instruction.mnemonic() != Mnemonic::Cmp || !is_immediate(instruction, 1) {
        return None;
    }
    let same = match way.value {
        Value::Register(register) => {
            instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().full_register() == register
                && !is_high(instruction.op0_register())
        }
        Value::Memory(base, distance) => memory(instruction) == Some((base, distance)),
    };
    let bits = match instruction.op0_kind() {
        OpKind::Register => 8 * instruction.op0_register().size() as u32,
        _ => 8 * instruction.memory_size().size() as u32,
    };
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let outcome = way.outcome.filter(|_| same)?;
    allowed(outcome, instruction.immediate(1) & mask, bits, way.added)
}

/// Returns the outcome of a comparison of a whole register with a constant.
fn aside(instruction: &Instruction, outcome: Option<(Condition, bool)>) -> Option<Fact> {
    let register = instruction.op0_register();
    let whole = instruction.mnemonic() == Mnemonic::Cmp && is_immediate(instruction, 1);
    if !whole || instruction.op0_kind() != OpKind::Register || register.size() < 4 {
        return None;
    }
    let with = instruction.immediate(1) & ones(register.size());
    let bits = 8 * register.size() as u32;
    Some(Fact { register: register.full_register(), outcome: outcome?, with, bits })
}

/// Returns the number of values, counted from 0, that a number plus `added` can have, if comparing
/// the number with `with` had this outcome.
fn allowed(outcome: (Condition, bool), with: u64, bits: u32, added: u32) -> Option<u64> {
    if added != 0 {
        // `lea 5(%rdi), %eax; cmp $-5, %edi; jb`: the sum counts from 0, for the least value of the
        // number, up to where it would wrap.
        let least = match outcome {
            (Condition::Above, true) => with.checked_add(1)?,
            (Condition::AboveOrEqual, true) => with,
            _ => return None,
        };
        let from_zero = bits == 32 && (least as u32).wrapping_add(added) == 0;
        return from_zero.then_some(u64::from(added));
    }
    match outcome {
        (Condition::Above, false) => with.checked_add(1),
        (Condition::AboveOrEqual, false) => Some(with),
        _ => None,
    }
}

/// Continues with the operands from which `instruction` computed the register.
fn defined(instruction: &Instruction, mut way: Way) -> Step {
    let target = instruction.op0_register();
    if instruction.op0_kind() != OpKind::Register || is_high(target) {
        return Step::Lost;
    }
    let from_register = instruction.op_count() == 2 && instruction.op1_kind() == OpKind::Register;
    let from_memory = instruction.op_count() == 2 && instruction.op1_kind() == OpKind::Memory;
    let sum = sum(instruction, target);
    if way.added != 0 && sum.is_none() && !(from_register && target.size() >= 4) {
        return Step::Lost;
    }
    match instruction.mnemonic() {
        _ if let Some((source, by)) = sum => {
            way.added = way.added.wrapping_add(by);
            way.value = Value::Register(source.full_register());
            // A bound of the sum is no bound of its operand.
            if way.at_most.is_some() { Step::Lost } else { on(way) }
        }
        Mnemonic::And if is_immediate(instruction, 1) && target.size() >= 4 => {
            let mask = instruction.immediate(1) & ones(target.size());
            lower(&mut way, mask);
            // A mask of all low bits; other masks leave holes, but no larger values.
            end(&way)
        }
        Mnemonic::Xor if from_register && instruction.op1_register() == target => {
            lower(&mut way, 0);
            end(&way)
        }
        Mnemonic::Mov if is_immediate(instruction, 1) && target.size() >= 4 => {
            lower(&mut way, instruction.immediate(1) & ones(target.size()));
            end(&way)
        }
        Mnemonic::Shr if is_immediate(instruction, 1) && target.size() >= 4 => {
            let by = instruction.immediate(1) as u32 & 63;
            lower(&mut way, ones(target.size()).checked_shr(by).unwrap_or(0));
            end(&way)
        }
        Mnemonic::Movzx | Mnemonic::Mov | Mnemonic::Movsxd if from_register => {
            let source = instruction.op1_register();
            if is_high(source) || target.size() < 4 {
                return Step::Lost;
            }
            if instruction.mnemonic() == Mnemonic::Movzx {
                lower(&mut way, ones(source.size()));
            }
            way.value = Value::Register(source.full_register());
            if source.size() < 4 { Step::On(way) } else { on(way) }
        }
        Mnemonic::Movzx | Mnemonic::Mov | Mnemonic::Movsxd if from_memory && target.size() >= 4 => {
            if instruction.mnemonic() == Mnemonic::Movzx {
                lower(&mut way, ones(instruction.memory_size().size()));
            }
            match memory(instruction) {
                Some((base, distance)) => {
                    way.value = Value::Memory(base, distance);
                    Step::On(way)
                }
                None => end(&way),
            }
        }
        // `cdqe` extends a value that is compared before or after.
        Mnemonic::Cdqe => Step::On(way),
        _ => Step::Lost,
    }
}

/// Continues, unless the value that is now followed was compared before.
fn on(way: Way) -> Step {
    let fact = way.aside.filter(|f| way.value == Value::Register(f.register));
    let entries = fact.and_then(|f| allowed(f.outcome, f.with, f.bits, way.added));
    entries.map_or(Step::On(way), |entries| Step::End(Bound { entries, exact: true }))
}

/// Returns the register and the constant whose sum is `target`, in 32 bits.
fn sum(instruction: &Instruction, target: Register) -> Option<(Register, u32)> {
    if target.size() != 4 {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.memory_index() == Register::None => {
            let base = instruction.memory_base();
            base.is_gpr().then(|| (base, instruction.memory_displacement64() as u32))
        }
        Mnemonic::Add if is_immediate(instruction, 1) => {
            Some((target, instruction.immediate(1) as u32))
        }
        Mnemonic::Sub if is_immediate(instruction, 1) => {
            Some((target, (instruction.immediate(1) as u32).wrapping_neg()))
        }
        _ => None,
    }
}

fn lower(way: &mut Way, limit: u64) {
    let limit = match way.narrow.take() {
        // The comparison of the low bits was one of all bits after all.
        Some(entries) if limit <= u64::from(u16::MAX) && entries <= limit => {
            way.exact = true;
            entries.saturating_sub(1)
        }
        narrow => {
            way.narrow = narrow;
            limit
        }
    };
    way.at_most = Some(way.at_most.map_or(limit, |m| m.min(limit)));
}

fn end(way: &Way) -> Step {
    fallback(way).map_or(Step::Lost, Step::End)
}

fn ones(bytes: usize) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// Returns base and displacement of a plain memory operand.
fn memory(instruction: &Instruction) -> Option<(Register, u64)> {
    let plain = instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None
        && instruction.memory_base().is_gpr64();
    plain.then(|| (instruction.memory_base(), instruction.memory_displacement64()))
}
