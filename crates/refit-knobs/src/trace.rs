//! Follows a register: from a definition to its uses, and from a use to its definitions.

use crate::code::{Code, Leaves};

/// An instruction that a value comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached {
    /// Index of the instruction.
    pub at: usize,
    /// The fate of the value there.
    pub how: How,
}

/// The fate of a value at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Read by the instruction.
    Read,
    /// A part of the register changes.
    Changed,
    /// Kept in a register that the called function may change, and needed afterwards.
    Crosses,
    /// The function returns with it.
    Returned,
    /// Control goes to an unknown address with it.
    Lost,
}

/// Returns where the value comes to that the instruction `from` has put into a register.
pub fn uses(code: &Code<'_>, from: usize, register: u8) -> Vec<Reached> {
    uses_but(code, from, register, None)
}

/// As [`uses`], but control does not go from one instruction to another one, by their indices.
pub fn uses_but(
    code: &Code<'_>,
    from: usize,
    register: u8,
    but: Option<(usize, usize)>,
) -> Vec<Reached> {
    let next = |at: usize| {
        let all = code.next[at].iter().copied();
        all.filter(move |&to| but != Some((at, to)))
    };
    let bit = 1 << register;
    let (mut found, mut seen) = (Vec::new(), vec![false; code.steps.len()]);
    let mut left: Vec<usize> = next(from).collect();
    while let Some(at) = left.pop() {
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        let step = &code.steps[at];
        let mut reach = |how| found.push(Reached { at, how });
        if step.reads & bit != 0 {
            reach(How::Read);
        }
        if step.crosses & bit != 0 {
            reach(How::Crosses);
        }
        if step.changes & bit != 0 {
            reach(How::Changed);
        }
        let live = || code.flow.live_before(step.instruction.ip()).general >> register & 1 != 0;
        match step.leaves {
            // Only results are the caller's; it has its own values in the registers that it keeps.
            Some(Leaves::Returns) if matches!(register, 0 | 2) && live() => reach(How::Returned),
            Some(Leaves::Unknown) if live() => reach(How::Lost),
            _ => {}
        }
        if step.writes & bit == 0 {
            left.extend(next(at));
        }
    }
    found.sort_unstable();
    found
}

/// Returns the instructions that may have defined a register before the instruction `at`; `None`
/// stands for what the function was entered with.
pub fn definitions(code: &Code<'_>, at: usize, register: u8) -> Vec<Option<usize>> {
    let bit = 1 << register;
    let (mut found, mut seen) = (Vec::new(), vec![false; code.steps.len()]);
    let mut left = vec![at];
    while let Some(to) = left.pop() {
        if code.before[to].is_empty() || code.steps[to].instruction.ip() == entry(code) {
            found.push(None);
        }
        for &from in &code.before[to] {
            if std::mem::replace(&mut seen[from], true) {
                continue;
            }
            let step = &code.steps[from];
            if (step.writes | step.changes | step.crosses) & bit != 0 {
                found.push(Some(from));
            }
            if step.writes & bit == 0 {
                left.push(from);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn entry(code: &Code<'_>) -> u64 {
    code.module.function(code.flow.function()).entry
}
