//! Live registers: the registers whose values may still be read, before each instruction.
//!
//! Within a function this is the usual backward data flow, solved to the least fixed point over its
//! blocks. Between functions there are two questions, each answered for the whole module
//! (`summary`):
//!
//! - What does a *callee* read, and which of its caller's registers may it preserve? Answered from
//!   the callees upwards. A function of this module may follow no convention, so the answer is
//!   taken from its code. Functions of other files and those called through pointers follow the
//!   System V ABI.
//! - What does a *caller* need when a function returns? What the ABI says and, beyond that,
//!   everything that is live after a direct call: compilers keep values in registers that a local
//!   function is known to preserve (GCC's `-fipa-ra`), and hand-written code may return values in
//!   any register. Answered from the callers downwards. Calls in code that was not understood count
//!   as needing everything that the function preserves.
//!
//! Wherever the needs cannot be seen, everything is live: at an indirect jump that was not
//! understood, at calls into the middle of a function, around Go's calls, before a trap. An
//! exception goes from a call to its landing pad with the registers that functions preserve;
//! asynchronous exceptions (`-fnon-call-exceptions`) are not followed.

pub(crate) mod effect;
pub(crate) mod outline;
mod red_zone;
pub(crate) mod set;
mod solve;
pub(crate) mod summary;

pub use crate::registers::{Live, flag};

use iced_x86::{Instruction, InstructionInfoFactory};

use crate::flow::build::Shape;
use crate::flow::walk::Walk;
use crate::functions::FunctionId;
use outline::{Outline, Summary};
use set::Set;
use solve::{Ends, Solution};

/// The effect of one instruction on registers and flags, without that of a callee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Registers and flags that it reads.
    pub reads: Live,
    /// Registers and flags that it overwrites wholly, in any case.
    pub kills: Live,
    /// Registers and flags that it changes, perhaps or in part.
    pub writes: Live,
}

/// Returns the effects of an instruction.
pub fn effects(info: &mut InstructionInfoFactory, instruction: &Instruction) -> Effects {
    let effect = effect::effect(info, instruction);
    let [reads, kills, writes] =
        [effect.reads, effect.kills, effect.writes].map(|set| set.to_live(false));
    Effects { reads, kills, writes }
}

/// Returns the live set before each instruction, by ascending address. `exit` is the set that
/// callers need.
pub(crate) fn before_each(
    info: &mut InstructionInfoFactory,
    walk: &Walk,
    shape: &Shape,
    outline: &Outline,
    exit: Set,
    summary: &impl Fn(FunctionId) -> Summary,
) -> Vec<Live> {
    let mut solution = Solution::default();
    let ends = Ends { caller: exit, unknown: Set::ALL };
    solve::solve(outline, ends, summary, &mut solution);
    let red_zone = red_zone::may_be_used(info, walk, outline);
    let mut sets = vec![Set::ALL; walk.code.len()];
    for (i, block) in shape.blocks.iter().enumerate() {
        let mut live = solve::call(outline, &outline.nodes[i], solution.after[i], summary);
        let order = &shape.order[block.first as usize..(block.first + block.count) as usize];
        for &at in order.iter().rev() {
            let effect = effect::effect(info, &walk.code[at as usize]);
            live = effect.reads | live.without(effect.kills);
            sets[at as usize] = live;
        }
    }
    // Inserted code uses the stack, and all code relies on the direction flag.
    let always = Set::general(1 << 4).with(Set::flags(flag::DIRECTION));
    shape.sorted.iter().map(|i| (sets[*i as usize] | always).to_live(red_zone)).collect()
}
