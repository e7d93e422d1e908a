//! The registers and flags that one instruction reads and overwrites.
//!
//! A register that the instruction *reads* is live before it. A register that it *overwrites*,
//! wholly and in any case, is not. Other writes are in between: writes of a part (`mov %al`,
//! `movss` from a register) and flag writes that depend on a count neither need the old value nor
//! end its life. A write of 32 bits overwrites the whole register.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind,
    Register, RflagsBits,
};

use super::set::Set;
use crate::flow::exits::is_system_call;
use crate::registers::flag;

/// The effect of one instruction on live sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effect {
    /// Read by it.
    pub(crate) reads: Set,
    /// Overwritten wholly, in any case.
    pub(crate) kills: Set,
    /// Changed, perhaps or in part.
    pub(crate) writes: Set,
}

/// Returns the effect of `instruction` by itself; a callee's effect is in its summary.
pub(crate) fn effect(info: &mut InstructionInfoFactory, instruction: &Instruction) -> Effect {
    let mut effect = Effect::default();
    if is_system_call(instruction) {
        return system_call();
    }
    let used = info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
    for used in used.used_registers() {
        register(&mut effect, used.register(), used.access());
    }
    flags(&mut effect, instruction);
    special(&mut effect, instruction);
    effect
}

/// Returns the effect of a system call: rax is the number and the result; rdi, rsi, rdx, r10, r8,
/// r9 are arguments; the processor overwrites rcx and r11.
fn system_call() -> Effect {
    let overwritten = Set::general(1 | 1 << 1 | 1 << 11);
    let reads = Set::general(1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10);
    Effect { reads, kills: overwritten, writes: overwritten }
}

fn register(effect: &mut Effect, register: Register, access: OpAccess) {
    let Some((whole, part)) = sets(register) else { return };
    match access {
        OpAccess::Read | OpAccess::CondRead => effect.reads |= whole,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            effect.reads |= whole;
            effect.writes |= whole;
        }
        OpAccess::CondWrite => effect.writes |= whole,
        OpAccess::Write => {
            effect.writes |= whole;
            if !part {
                effect.kills |= whole;
            }
        }
        OpAccess::None | OpAccess::NoMemAccess => {}
    }
}

/// Returns the elements that a register belongs to, and whether writing it leaves a part of them as
/// it was.
fn sets(register: Register) -> Option<(Set, bool)> {
    let number = || register.full_register().number() as u32;
    if register.is_gpr() {
        return Some((Set::general(1 << number()), register.size() < 4));
    }
    if register.is_xmm() {
        return Some((Set::lower(1 << number()), false));
    }
    if register.is_vector_register() {
        let bit = 1 << number();
        return Some((Set::lower(bit) | Set::upper(bit), false));
    }
    if register.is_k() {
        return Some((Set::masks(1 << register.number()), false));
    }
    (register.is_st() || register.is_mm()).then_some((Set::X87, true))
}

fn flags(effect: &mut Effect, instruction: &Instruction) {
    let changed = Set::flags(bits(instruction.rflags_modified()));
    effect.reads |= Set::flags(bits(instruction.rflags_read()));
    effect.writes |= changed;
    if flags_change_surely(instruction) {
        effect.kills |= changed;
    }
}

fn bits(rflags: u32) -> u8 {
    const PAIRS: [(u32, u8); 7] = [
        (RflagsBits::CF, flag::CARRY),
        (RflagsBits::PF, flag::PARITY),
        (RflagsBits::AF, flag::AUXILIARY),
        (RflagsBits::ZF, flag::ZERO),
        (RflagsBits::SF, flag::SIGN),
        (RflagsBits::OF, flag::OVERFLOW),
        (RflagsBits::DF, flag::DIRECTION),
    ];
    PAIRS.iter().filter(|(from, _)| rflags & from != 0).fold(0, |bits, (_, to)| bits | to)
}

/// Whether the flags change in any case. Shifts by zero and repetitions of zero leave flags
/// unchanged.
fn flags_change_surely(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Shl
        | M::Sal
        | M::Shr
        | M::Sar
        | M::Shld
        | M::Shrd
        | M::Rol
        | M::Ror
        | M::Rcl
        | M::Rcr => {
            let count = instruction.op_count() - 1;
            let wide = instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().size() == 8
                || instruction.memory_size().size() == 8;
            let mask = if wide { 63 } else { 31 };
            instruction.op_kind(count) == OpKind::Immediate8
                && u64::from(instruction.immediate8()) & mask != 0
                || instruction.op_count() == 1
        }
        _ => {
            let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            !(repeats && instruction.is_string_instruction())
        }
    }
}

/// Applies effects that the tables of single registers lack.
fn special(effect: &mut Effect, instruction: &Instruction) {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Vzeroupper => {
            let upper = Set::upper(0xffff);
            *effect = Effect { reads: Set::NONE, kills: upper, writes: upper };
        }
        M::Vzeroall => {
            let all = Set::lower(0xffff) | Set::upper(0xffff);
            *effect = Effect { reads: Set::NONE, kills: all, writes: all };
        }
        // The whole state goes to memory, or the parts of it that a mask selects.
        M::Fxsave
        | M::Fxsave64
        | M::Xsave
        | M::Xsave64
        | M::Xsavec
        | M::Xsavec64
        | M::Xsaveopt
        | M::Xsaveopt64
        | M::Xsaves
        | M::Xsaves64
        | M::Fxrstor
        | M::Fxrstor64
        | M::Xrstor
        | M::Xrstor64
        | M::Xrstors
        | M::Xrstors64 => {
            effect.reads |= Set::VECTORS | Set::MASKS | Set::X87;
            effect.writes |= Set::VECTORS | Set::MASKS | Set::X87;
        }
        // Without shadow stacks the instruction leaves the register unchanged. Programs use this to
        // detect shadow stacks.
        M::Rdsspd | M::Rdsspq => effect.kills = Set::NONE,
        M::Pushf | M::Pushfd | M::Pushfq => effect.reads |= Set::FLAGS,
        // The upper part of the destination stays.
        M::Cvtsi2sd
        | M::Cvtsi2ss
        | M::Cvtss2sd
        | M::Cvtsd2ss
        | M::Sqrtss
        | M::Sqrtsd
        | M::Rsqrtss
        | M::Rcpss
        | M::Roundss
        | M::Roundsd
        | M::Movhlps
        | M::Movlhps
        | M::Cvtpi2ps => {
            effect.kills = effect.kills.without(Set::VECTORS);
        }
        M::Movss | M::Movsd
            if instruction.op_count() == 2 && instruction.op1_kind() == OpKind::Register =>
        {
            effect.kills = effect.kills.without(Set::VECTORS);
        }
        M::Movlps | M::Movlpd | M::Movhps | M::Movhpd => {
            effect.kills = effect.kills.without(Set::VECTORS);
        }
        // A software interrupt may do anything: a debugger may handle it, or a handler that reads
        // all registers.
        M::Int3 | M::Int1 | M::Int => {
            *effect = Effect { reads: Set::ALL, kills: Set::NONE, writes: Set::ALL };
        }
        _ => {}
    }
    if instruction.fpu_stack_increment_info().writes_top() {
        effect.reads |= Set::X87;
        effect.writes |= Set::X87;
    }
}
