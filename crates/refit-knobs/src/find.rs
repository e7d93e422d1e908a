//! Finds the constants of functions that act as tunables, by data flow.

use std::collections::BTreeSet;

use iced_x86::{Mnemonic, OpKind, Register};
use rayon::prelude::*;
use refit_analysis::flow::{Marks, imported};
use refit_analysis::functions::Sources;
use refit_analysis::image::Kind;
use refit_analysis::{Function, FunctionId, Module};

use crate::arguments::{Direction, direction};
use crate::callers::use_result;
use crate::code::{Code, number, set};
use crate::compare::{Decision, Stepping, decision, left, stepped, stepping};
use crate::guard::{guards, walks};
use crate::immediate::Immediate;
use crate::knob::{Escape, Knob, Risk, Rounds, Use};
use crate::loops::{Loop, Loops};
use crate::name::Name;
use crate::rank::score;
use crate::trace::{How, definitions, uses_but};
use crate::web::{Web, constant};

/// Numbers at least this far from 0 are compared with the others of their function: smaller ones
/// are equal to too many.
const TOLD_APART: u64 = 16;
/// Displacements from this number on are numbers rather than offsets of members.
const DISPLACEMENT: u64 = 256;
/// Maximum number of related addresses that are told.
const TOLD: usize = 8;
/// Error numbers that the kernel returns, as results of calls.
const ERRORS: std::ops::RangeInclusive<i64> = -4096..=-2;

/// Finds the constants of functions, by ascending address.
pub fn find(module: &Module, functions: &[FunctionId]) -> Vec<Knob> {
    let found = functions.par_iter().flat_map_iter(|&id| in_function(module, id));
    let mut found: Vec<Knob> = found.collect();
    found.sort_by_key(Knob::address);
    found
}

/// Finds the constants of one function, by ascending address.
pub fn in_function(module: &Module, id: FunctionId) -> Vec<Knob> {
    if module.function(id).sources.contains(Sources::STUB) {
        return Vec::new();
    }
    let Some(code) = Code::of(module, id) else { return Vec::new() };
    let finder = Finder { loops: Loops::of(&code), code: &code, id, numbers: numbers(&code) };
    let (mut found, mut defined) = (Vec::new(), BTreeSet::new());
    for at in 0..code.steps.len() {
        // Its bytes are those of another one, too.
        if code.flow.instructions()[at].marks.contains(Marks::OVERLAPPED) {
            continue;
        }
        let knob = match code.steps[at].instruction.mnemonic() {
            Mnemonic::Cmp => finder.comparison(at),
            Mnemonic::Test => finder.test(at),
            Mnemonic::Add | Mnemonic::Sub => finder.step(at),
            Mnemonic::Mov => finder.definition(at, &mut defined),
            _ => None,
        };
        found.extend(knob);
    }
    found
}

/// The instructions of a function that have numbers, and these.
fn numbers(code: &Code<'_>) -> Vec<(usize, i64)> {
    let mut all = Vec::new();
    for (at, step) in code.steps.iter().enumerate() {
        let instruction = &step.instruction;
        if instruction.op0_register() == Register::RSP {
            continue;
        }
        if let Some((_, value)) = Immediate::of(instruction, &step.offsets) {
            all.push((at, value));
        }
        let displacement = instruction.memory_displacement64().cast_signed();
        let adds =
            instruction.mnemonic() == Mnemonic::Lea && !instruction.is_ip_rel_memory_operand();
        if adds && displacement.unsigned_abs() >= DISPLACEMENT {
            all.push((at, displacement));
        }
    }
    all
}

struct Finder<'c, 'm> {
    code: &'c Code<'m>,
    loops: Loops,
    id: FunctionId,
    numbers: Vec<(usize, i64)>,
}

/// A constant before it is named and ranked.
struct Candidate {
    /// The instructions that have it; at least one.
    at: Vec<usize>,
    usage: Use,
    risks: Vec<Risk>,
    escapes: BTreeSet<Escape>,
}

impl Finder<'_, '_> {
    /// Returns the constant of a comparison with a number.
    fn comparison(&self, at: usize) -> Option<Knob> {
        let step = &self.code.steps[at];
        let (_, value) = Immediate::of(&step.instruction, &step.offsets)?;
        if (-1..=1).contains(&value) || ERRORS.contains(&value) {
            return None;
        }
        let decision = decision(self.code, at)?;
        let in_memory = step.instruction.op0_kind() == OpKind::Memory;
        let compared = if in_memory { 0 } else { set(step.instruction.op0_register()) };
        let register = number(step.instruction.op0_register()).filter(|_| !in_memory);
        let usage = register
            .and_then(|register| self.counts(&decision, at, register))
            .unwrap_or_else(|| order(&decision));
        let mut risks = self.risks_of(&decision, compared, &usage);
        risks.extend(in_memory.then_some(Risk::InMemory));
        self.knob(Candidate { at: vec![at], usage, risks, escapes: BTreeSet::new() })
    }

    /// Returns the use of a bound that a counter in a register is compared with, if that is what
    /// ends a loop.
    fn counts(&self, decision: &Decision, at: usize, counter: u8) -> Option<Use> {
        let ends = left(self.code, &self.loops, decision.jump)?;
        let step = stepping(self.code, ends, counter)?;
        let from = self.begins(ends, at, counter);
        let exact = decision.is_equality();
        Some(used(ends, Rounds { step, from, down: false, exact }))
    }

    /// Returns the number that a counter has before a loop, if it is known.
    fn begins(&self, ends: &Loop, at: usize, counter: u8) -> Option<i64> {
        let outside = definitions(self.code, at, counter)
            .into_iter()
            .filter(|one| one.is_none_or(|one| !ends.blocks.contains(&self.code.block[one])));
        let number = |at: usize| {
            let instruction = &self.code.steps[at].instruction;
            let clears = instruction.mnemonic() == Mnemonic::Xor
                && instruction.op0_register() == instruction.op1_register();
            if clears { Some(0) } else { constant(self.code, at).map(|(_, value)| value) }
        };
        let mut numbers: Vec<Option<i64>> = outside.map(|one| one.and_then(number)).collect();
        numbers.dedup();
        if let [Some(number)] = numbers[..] { Some(number) } else { None }
    }

    fn risks_of(&self, decision: &Decision, compared: u16, usage: &Use) -> Vec<Risk> {
        let mut risks = Vec::new();
        let counts = matches!(usage, Use::Spin(_) | Use::Loop(_));
        if compared != 0 && guards(self.code, decision.jump, compared) {
            risks.push(Risk::Guards);
        }
        let ends = left(self.code, &self.loops, decision.jump).filter(|_| counts);
        risks.extend(ends.is_some_and(|ends| walks(self.code, ends)).then_some(Risk::Walks));
        if !counts && decision.is_equality() {
            risks.push(Risk::Identity);
        }
        risks
    }

    /// Returns the constant of a test of bits.
    fn test(&self, at: usize) -> Option<Knob> {
        let step = &self.code.steps[at];
        let (_, value) = Immediate::of(&step.instruction, &step.offsets)?;
        decision(self.code, at).filter(|_| value.count_ones() > 1)?;
        let (usage, risks) = (Use::Mask, vec![Risk::Identity]);
        self.knob(Candidate { at: vec![at], usage, risks, escapes: BTreeSet::new() })
    }

    /// Returns the constant of a sum.
    fn step(&self, at: usize) -> Option<Knob> {
        let step = &self.code.steps[at];
        let (_, value) = Immediate::of(&step.instruction, &step.offsets)?;
        let register = number(step.instruction.op0_register())?;
        let adds = stepped(&step.instruction, register).is_some();
        if !adds || (-1..=1).contains(&value) || step.instruction.op0_register() == Register::RSP {
            return None;
        }
        let (usage, risks) = (Use::Step, vec![Risk::Summed]);
        self.knob(Candidate { at: vec![at], usage, risks, escapes: BTreeSet::new() })
    }

    /// Returns the constant that an instruction moves, unless it is part of a web that was found.
    fn definition(&self, at: usize, defined: &mut BTreeSet<usize>) -> Option<Knob> {
        let step = &self.code.steps[at];
        let (_, value) = Immediate::of(&step.instruction, &step.offsets)?;
        if (-1..=1).contains(&value) || self.is_address(value) || !defined.insert(at) {
            return None;
        }
        if step.instruction.op0_kind() == OpKind::Memory {
            let escapes = BTreeSet::from([Escape::Stored]);
            return self.knob(Candidate {
                at: vec![at],
                usage: Use::Number,
                risks: vec![],
                escapes,
            });
        }
        let mut web = Web::of(self.code, at)?;
        defined.extend(&web.definitions);
        let (usage, mut risks) = self.use_of(&web);
        risks.extend(self.returns_counter(&web, &usage).then_some(Risk::Returned));
        let passed = matches!(usage, Use::Argument { .. });
        let others = web.arguments.len() - usize::from(passed && !web.arguments.is_empty());
        if others > 0 || (passed && !web.compared.is_empty()) {
            web.escapes.insert(Escape::Several);
        }
        if let Use::Argument { function, direction: None, .. } = &usage {
            risks.push(Risk::Passed(function.clone()));
        }
        risks.extend((usage == Use::Number && web.escapes.is_empty()).then_some(Risk::Unused));
        risks.extend(web.merged.then_some(Risk::Merged));
        let definitions = web.definitions.iter().copied().collect();
        self.knob(Candidate { at: definitions, usage, risks, escapes: web.escapes })
    }

    /// Whether the function may return a counter that depends on the constant. A loop that counts
    /// down and ends when the counter is 0 leaves 0, whatever it began with.
    fn returns_counter(&self, web: &Web, usage: &Use) -> bool {
        let ends_at_zero =
            matches!(usage, Use::Spin(rounds) | Use::Loop(rounds) if rounds.exact && rounds.down);
        let returns = |&(at, register): &(usize, u8)| -> bool {
            let end = decision(self.code, at).filter(|_| ends_at_zero).and_then(|decision| {
                let ends = left(self.code, &self.loops, decision.jump)?;
                let next = self.code.next[decision.jump].iter();
                let mut out = next.filter(|&&to| !ends.blocks.contains(&self.code.block[to]));
                out.next().map(|&to| (decision.jump, to))
            });
            let all = uses_but(self.code, at, register, end);
            all.iter().any(|reached| reached.how == How::Returned)
        };
        web.returned.iter().any(returns) && use_result(self.code.module, self.id, 0)
    }

    fn use_of(&self, web: &Web) -> (Use, Vec<Risk>) {
        let deciding = web.steps.iter().chain(&web.compared);
        for &(at, register) in deciding.clone() {
            let Some(decision) = decision(self.code, at) else { continue };
            let Some(ends) = left(self.code, &self.loops, decision.jump) else { continue };
            let own = web.steps.iter().any(|&(_, stepped)| stepped == register);
            if let Some(step) = stepping(self.code, ends, register).filter(|_| own) {
                let exact = decision.is_equality();
                let rounds = Rounds { step, from: None, down: true, exact };
                let usage = used(ends, rounds);
                let risks = self.risks_of(&decision, 1 << register, &usage);
                return (usage, risks);
            }
        }
        for &(at, register) in &web.compared {
            let Some(decision) = decision(self.code, at) else { continue };
            let instruction = &self.code.steps[at].instruction;
            let others = (set(instruction.op0_register()) | set(instruction.op1_register()))
                & !(1 << register);
            let other = (others != 0).then_some(others.trailing_zeros() as u8);
            let usage = other
                .and_then(|other| self.counts(&decision, at, other))
                .unwrap_or_else(|| order(&decision));
            let mut risks = self.risks_of(&decision, others, &usage);
            risks.extend((others == 0).then_some(Risk::InMemory));
            return (usage, risks);
        }
        match web.arguments.first() {
            Some(&(at, number)) => (self.argument(at, number), vec![]),
            None => (Use::Number, vec![]),
        }
    }

    /// Returns the use of an argument of the function that an instruction calls. Only functions of
    /// other files are known by their names.
    fn argument(&self, at: usize, number: u8) -> Use {
        let instruction = &self.code.steps[at].instruction;
        let (module, image) = (self.code.module, self.code.module.image());
        let direct = instruction.op0_kind() == OpKind::NearBranch64;
        if let Some(name) = imported(image, instruction) {
            let direction = direction(name, number);
            return Use::Argument { function: name.to_owned(), number, direction };
        }
        let target = direct.then(|| instruction.near_branch_target());
        let local = target.and_then(|target| module.entered_at(target)).map(Function::name);
        let function = local.unwrap_or_else(|| "a function that is called by a pointer".to_owned());
        Use::Argument { function, number, direction: None }
    }

    /// Whether a number may be an address of the file, which has a fixed one.
    fn is_address(&self, value: i64) -> bool {
        let image = self.code.module.image();
        let fixed = matches!(image.kind(), Kind::Fixed | Kind::Static);
        let within = |value: u64| {
            let segments = image.segments().iter();
            let ends = segments.clone().map(|one| one.addresses.end).max().unwrap_or(0);
            let begins = segments.map(|one| one.addresses.start).min().unwrap_or(0);
            // Memory that is cleared follows the last segment.
            (begins..ends + (64 << 20)).contains(&value)
        };
        fixed && u64::try_from(value).is_ok_and(within)
    }

    fn knob(&self, found: Candidate) -> Option<Knob> {
        let of = |&at: &usize| {
            let step = &self.code.steps[at];
            Immediate::of(&step.instruction, &step.offsets)
        };
        let immediates: Vec<_> = found.at.iter().filter_map(of).collect();
        let &(first, value) = immediates.first()?;
        let Candidate { usage, mut risks, escapes, at } = found;
        let related = self.related(&at, value, &usage);
        risks.extend((!related.is_empty()).then_some(Risk::Related(related)));
        risks.extend((!self.code.flow.targets_known()).then_some(Risk::Unresolved));
        let function = self.code.module.function(self.id);
        let name = Name::Offset {
            function: function.name(),
            offset: first.instruction.wrapping_sub(function.entry).cast_signed(),
            usage: Some(usage.word()),
        };
        let direction = match &usage {
            Use::Argument { direction: Some(direction), .. } => *direction,
            _ => Direction::Any,
        };
        let mut knob = Knob {
            function: self.id,
            name: name.to_string(),
            value,
            immediates: immediates.into_iter().map(|(immediate, _)| immediate).collect(),
            usage,
            risks,
            escapes: escapes.into_iter().collect(),
            direction,
            score: 0,
        };
        knob.score = score(&knob);
        Some(knob)
    }

    /// Returns the addresses of the instructions with the same number, or one beside it, from which
    /// the compiler may have derived one from the other. Counters that are used for nothing else
    /// depend on no other number. Results of functions are often compared with what was asked for.
    fn related(&self, own: &[usize], value: i64, usage: &Use) -> Vec<u64> {
        let counts = matches!(usage, Use::Spin(_) | Use::Loop(_));
        let passed = matches!(usage, Use::Argument { .. });
        if counts || (value.unsigned_abs() < TOLD_APART && !passed) {
            return Vec::new();
        }
        let is_related = |other: i64| {
            let apart = value.unsigned_abs().abs_diff(other.unsigned_abs());
            apart <= 1
        };
        let others =
            self.numbers.iter().filter(|(at, other)| !own.contains(at) && is_related(*other));
        others.map(|&(at, _)| self.code.steps[at].instruction.ip()).take(TOLD).collect()
    }
}

fn order(decision: &Decision) -> Use {
    if decision.is_equality() { Use::Equal } else { Use::Limit(decision.condition) }
}

fn used(ends: &Loop, rounds: Rounds) -> Use {
    if ends.pauses { Use::Spin(rounds) } else { Use::Loop(rounds) }
}

/// Whether a loop with these rounds ends if its number is another one.
pub(crate) fn ends(rounds: &Rounds, old: i64, new: i64) -> bool {
    let least = if rounds.down { 1 } else { rounds.from.map_or(1, |from| from.saturating_add(1)) };
    let step = match rounds.step {
        Stepping::By(step) => step,
        Stepping::Times => return !rounds.exact && new >= 0,
    };
    if !rounds.exact {
        return new >= 0;
    }
    let whole = step != 0 && new.wrapping_sub(old).wrapping_rem(step) == 0;
    let backwards = (step < 0) == rounds.down;
    whole && backwards && new >= least
}
