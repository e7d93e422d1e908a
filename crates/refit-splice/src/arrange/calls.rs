//! Calls through pointers that mostly lead to the same functions.
//!
//! ```text
//!     lea  r11, [F]            more: lea  r11, [G]
//!     cmp  r11, POINTER              cmp  r11, POINTER
//!     jne  more                      jne  rest
//!     call F'                        call G'
//!     …                              jmp  …
//!                              rest: call POINTER
//!                                    jmp  …
//! ```
//!
//! The second column comes behind all other code of the function. The pointer is read once more
//! than by the program; each read would fail or succeed as its own does. Before each instruction up
//! to the call, all is as before the original but for `r11` and the flags, which are dead.

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register};

use crate::relocate::made;
use crate::why::Why;

/// Most bytes of the code for each function with which a pointer is compared, and of the rest.
pub(super) const MOST_BYTES: u64 = 40;

/// The comparisons of a call, and the calls, with labels to be resolved.
pub(super) struct Comparison {
    pub(super) load: Instruction,
    pub(super) compare: Instruction,
    pub(super) branch: Instruction,
    pub(super) call: Instruction,
}

/// Returns the code that calls the function at `function` by its copy, at the label `copy`, if
/// `call` leads there, and otherwise branches to the label `other`.
///
/// # Errors
/// [`Why::Generate`].
pub(super) fn compared(
    call: &Instruction,
    function: u64,
    copy: u64,
    other: u64,
) -> Result<Comparison, Why> {
    let at = call.ip();
    let near = |code, to| made(at, Instruction::with_branch(code, to));
    let displacement = function.cast_signed();
    let here = MemoryOperand::with_base_displ(Register::RIP, displacement);
    let load = Instruction::with2(Code::Lea_r64_m, Register::R11, here);
    let compare = if call.op0_kind() == OpKind::Memory {
        Instruction::with2(Code::Cmp_r64_rm64, Register::R11, operand(call))
    } else {
        Instruction::with2(Code::Cmp_r64_rm64, Register::R11, call.op0_register())
    };
    Ok(Comparison {
        load: made(at, load)?,
        compare: made(at, compare)?,
        branch: near(Code::Jne_rel32_64, other)?,
        call: near(Code::Call_rel32_64, copy)?,
    })
}

/// Returns a call of the function whose address is stored at `slot`, in place of `call`.
///
/// # Errors
/// [`Why::Generate`].
pub(super) fn stored(call: &Instruction, slot: u64) -> Result<Instruction, Why> {
    let memory = MemoryOperand::with_base_displ(Register::RIP, slot.cast_signed());
    made(call.ip(), Instruction::with1(Code::Call_rm64, memory))
}

/// Returns the memory operand of an instruction.
fn operand(of: &Instruction) -> MemoryOperand {
    MemoryOperand::new(
        of.memory_base(),
        of.memory_index(),
        of.memory_index_scale(),
        of.memory_displacement64().cast_signed(),
        of.memory_displ_size(),
        false,
        of.segment_prefix(),
    )
}
