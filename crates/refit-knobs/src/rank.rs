//! The likelihood that a constant is a tunable.

use std::collections::BTreeMap;

use refit_analysis::FunctionId;

use crate::knob::{Knob, Risk, Use};

/// Least score of a knob that is worth showing unless everything is asked for.
pub const LIKELY: u32 = 40;

/// Numbers from here on are limits of types.
const TYPES: u64 = (1 << 30) - 1;

/// Returns the score of a constant, from 0 to 100. Loops that pause come first, then loops, limits
/// and arguments of known functions; numbers that people choose, such as powers of two, before
/// others.
pub fn score(knob: &Knob) -> u32 {
    let bits = knob.immediates.first().map_or(0, |one| one.bits);
    let (base, sized): (i32, bool) = match &knob.usage {
        Use::Spin(_) => (90, false),
        Use::Loop(_) => (50, true),
        Use::Limit(_) => (40, true),
        Use::Argument { direction: Some(_), .. } => (45, true),
        Use::Argument { .. } => (12, true),
        Use::Mask => (8, false),
        Use::Equal => (5, false),
        Use::Step => (4, false),
        Use::Number => (1, false),
    };
    let mut score = base;
    if sized && is_chosen(knob.value) {
        score += 15;
    }
    if sized && knob.value.unsigned_abs() < 16 {
        score -= 15;
    }
    // Limits of types, rather than of anything that was chosen.
    if sized && knob.value.unsigned_abs() >= TYPES {
        score -= 30;
    }
    // Characters are compared, too.
    if sized && bits == 8 {
        score -= 25;
    }
    if knob.risks.contains(&Risk::Guards) || knob.risks.contains(&Risk::Walks) {
        score -= 15;
    }
    if !knob.escapes.is_empty() {
        score -= 30;
    }
    score.clamp(0, 100).unsigned_abs()
}

/// Whether a number is one that people choose: at least 64, and a power of two, a multiple of 100,
/// or one less.
fn is_chosen(value: i64) -> bool {
    let value = value.unsigned_abs();
    let round = |value: u64| value.is_power_of_two() || value.is_multiple_of(100);
    value >= 63 && (round(value) || round(value.saturating_add(1)))
}

/// The number of times that a function was seen to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Number of calls.
    pub calls: u64,
    /// Number of times that a thread was found in it.
    pub seen: u64,
}

/// Sorts knobs, the most promising first: those of functions that run, if that is known, before
/// others; then by score, and by heat.
pub fn sort(knobs: &mut [Knob], heat: &BTreeMap<FunctionId, Heat>) {
    let key = |knob: &Knob| {
        let heat = heat.get(&knob.function).copied().unwrap_or_default();
        let runs = heat.calls + heat.seen > 0;
        (!runs, std::cmp::Reverse((knob.score, heat.seen, heat.calls)), knob.address())
    };
    knobs.sort_by_key(key);
}

#[cfg(test)]
#[test]
fn numbers_that_people_choose_are_known() {
    for value in [64, 63, 100, 1000, 1024, 8192, 1_048_575, 999, 50_000, -4096] {
        assert!(is_chosen(value), "{value}");
    }
    for value in [0, 1, 7, 16, 50, 77, 1234, i64::MAX - 5] {
        assert!(!is_chosen(value), "{value}");
    }
}
