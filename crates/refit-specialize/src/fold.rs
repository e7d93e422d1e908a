//! The forms of an instruction some of whose operands are known.
//!
//! Only forms with the same effect on registers, flags, memory and faults are used. An instruction
//! that reads memory which may change, or that writes memory, stays.

use iced_x86::{Code, Instruction, MemoryOperand, Mnemonic, OpKind, Register};

use crate::constants::Constants;
use crate::evaluate::{is_cmov, is_same_register, is_setcc};
use crate::operands::{self, loaded, width};
use crate::state::State;

/// Addresses up to this distance from the code can be reached from a version.
const NEAR: u64 = 1 << 30;

/// Whether an instruction does nothing but compute general registers and flags: it accesses no
/// memory but constants, does not fault, and orders nothing.
pub fn is_pure(one: &Instruction, state: &State, constants: &dyn Constants) -> bool {
    use Mnemonic as M;
    let known = matches!(
        one.mnemonic(),
        M::Nop
            | M::Endbr64
            | M::Mov
            | M::Movzx
            | M::Movsx
            | M::Movsxd
            | M::Lea
            | M::Add
            | M::Adc
            | M::Sub
            | M::Sbb
            | M::Cmp
            | M::And
            | M::Or
            | M::Xor
            | M::Test
            | M::Inc
            | M::Dec
            | M::Neg
            | M::Not
            | M::Shl
            | M::Sal
            | M::Shr
            | M::Sar
            | M::Rol
            | M::Ror
            | M::Imul
            | M::Bt
            | M::Bswap
            | M::Cbw
            | M::Cwde
            | M::Cdqe
            | M::Cwd
            | M::Cdq
            | M::Cqo
    ) || is_setcc(one)
        || is_cmov(one);
    let idles = matches!(one.mnemonic(), M::Nop | M::Endbr64);
    let addresses = one.mnemonic() == M::Lea;
    known
        && !one.has_lock_prefix()
        && (0..one.op_count()).all(|operand| match one.op_kind(operand) {
            OpKind::Register => one.op_register(operand).is_gpr() || idles,
            // It reads other memory, by the number of the bit.
            OpKind::Memory if one.mnemonic() == M::Bt => false,
            OpKind::Memory => {
                let reads = operand > 0 || reads_only(one);
                idles || addresses || reads && loaded(one, state, constants).is_some()
            }
            _ => true,
        })
}

/// Whether it reads its first operand and does not write it.
fn reads_only(one: &Instruction) -> bool {
    matches!(one.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt)
}

/// Returns the move of a constant, or of an address, that has the effect of a pure instruction on
/// registers; `None` if the result is unknown, or the instruction is as good as that. It changes no
/// flags.
pub fn constant(one: &Instruction, after: &State) -> Option<Instruction> {
    let target = match one.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt => return None,
        Mnemonic::Cdqe => Register::RAX,
        Mnemonic::Cwde => Register::EAX,
        _ if one.op_count() > 0 && one.op0_kind() == OpKind::Register => one.op0_register(),
        _ => return None,
    };
    let immediate = one.mnemonic() == Mnemonic::Mov
        && one.op1_kind() != OpKind::Register
        && one.op1_kind() != OpKind::Memory;
    let zeroes = matches!(one.mnemonic(), Mnemonic::Xor | Mnemonic::Sub) && is_same_register(one);
    let relative = one.mnemonic() == Mnemonic::Lea && one.is_ip_rel_memory_operand();
    if immediate || zeroes || relative || !matches!(target.size(), 4 | 8) {
        return None;
    }
    let value = after.read(target.full_register()).whole()?;
    let made = match (u32::try_from(value), i32::try_from(value.cast_signed())) {
        (Ok(short), _) => Instruction::with2(Code::Mov_r32_imm32, low_half(target), short),
        (_, Ok(signed)) => Instruction::with2(Code::Mov_rm64_imm32, target.full_register(), signed),
        // The address of something near is shorter than the number.
        _ if value.abs_diff(one.ip()) < NEAR => {
            let there = MemoryOperand::with_base_displ_size(Register::RIP, value.cast_signed(), 8);
            Instruction::with2(Code::Lea_r64_m, target.full_register(), there)
        }
        _ => Instruction::with2(Code::Mov_r64_imm64, target.full_register(), value),
    };
    made.ok()
}

fn low_half(register: Register) -> Register {
    register.full_register32()
}

/// Returns the instruction with operands that are known put into it.
pub fn folded(one: &Instruction, state: &State, constants: &dyn Constants) -> Instruction {
    let mut new = *one;
    if second_operand(&mut new, state, constants) {
        return new;
    }
    address(&mut new, state);
    new
}

/// Makes the second operand an immediate, if it is known and there is such a form.
fn second_operand(one: &mut Instruction, state: &State, constants: &dyn Constants) -> bool {
    let kinds = (one.op0_kind(), one.op1_kind());
    let known = match kinds {
        (OpKind::Register | OpKind::Memory, OpKind::Register) => {
            one.op1_register().is_gpr() && !is_same_register(one)
        }
        (OpKind::Register, OpKind::Memory) => one.op0_register().is_gpr(),
        _ => false,
    };
    if !known || one.op_count() != 2 || one.has_lock_prefix() {
        return false;
    }
    let Some(code) = immediate_form(one) else { return false };
    if let Form::Shift(code) = code {
        return count(one, code, state);
    }
    let Some(bits) = width(one, 1).filter(|bits| matches!(bits, 32 | 64)) else { return false };
    let Some(value) = operands::value(one, 1, state, constants).low(bits) else { return false };
    let wide = bits == 64;
    let number = if wide { value.cast_signed() } else { i64::from(value as u32 as i32) };
    let Ok(number) = i32::try_from(number) else { return false };
    let kind = if wide { OpKind::Immediate32to64 } else { OpKind::Immediate32 };
    match code {
        Form::Two(code) => {
            one.set_code(code);
            one.set_op1_kind(kind);
        }
        Form::Three(code) => {
            one.set_code(code);
            one.set_op1_kind(OpKind::Register);
            one.set_op1_register(one.op0_register());
            one.set_op2_kind(kind);
        }
        Form::Shift(_) => return false,
    }
    set_number(one, wide, number);
    shorten(one, number);
    if kinds.1 == OpKind::Memory {
        one.set_memory_base(Register::None);
        one.set_memory_index(Register::None);
        one.set_memory_displacement64(0);
        one.set_memory_displ_size(0);
    }
    true
}

fn set_number(one: &mut Instruction, wide: bool, number: i32) {
    match wide {
        true => one.set_immediate32to64(number.into()),
        false => one.set_immediate32(number.cast_unsigned()),
    }
}

/// Chooses the form with an immediate of one byte, if the number fits and there is one.
fn shorten(one: &mut Instruction, number: i32) {
    use Code as C;
    let Ok(byte) = i8::try_from(number) else { return };
    let (code, operand) = match one.code() {
        C::Add_rm32_imm32 => (C::Add_rm32_imm8, 1),
        C::Add_rm64_imm32 => (C::Add_rm64_imm8, 1),
        C::Or_rm32_imm32 => (C::Or_rm32_imm8, 1),
        C::Or_rm64_imm32 => (C::Or_rm64_imm8, 1),
        C::Adc_rm32_imm32 => (C::Adc_rm32_imm8, 1),
        C::Adc_rm64_imm32 => (C::Adc_rm64_imm8, 1),
        C::Sbb_rm32_imm32 => (C::Sbb_rm32_imm8, 1),
        C::Sbb_rm64_imm32 => (C::Sbb_rm64_imm8, 1),
        C::And_rm32_imm32 => (C::And_rm32_imm8, 1),
        C::And_rm64_imm32 => (C::And_rm64_imm8, 1),
        C::Sub_rm32_imm32 => (C::Sub_rm32_imm8, 1),
        C::Sub_rm64_imm32 => (C::Sub_rm64_imm8, 1),
        C::Xor_rm32_imm32 => (C::Xor_rm32_imm8, 1),
        C::Xor_rm64_imm32 => (C::Xor_rm64_imm8, 1),
        C::Cmp_rm32_imm32 => (C::Cmp_rm32_imm8, 1),
        C::Cmp_rm64_imm32 => (C::Cmp_rm64_imm8, 1),
        C::Imul_r32_rm32_imm32 => (C::Imul_r32_rm32_imm8, 2),
        C::Imul_r64_rm64_imm32 => (C::Imul_r64_rm64_imm8, 2),
        _ => return,
    };
    let wide = one.op_kind(operand) == OpKind::Immediate32to64;
    one.set_code(code);
    one.set_op_kind(operand, if wide { OpKind::Immediate8to64 } else { OpKind::Immediate8to32 });
    match wide {
        true => one.set_immediate8to64(byte.into()),
        false => one.set_immediate8to32(byte.into()),
    }
}

/// A form with an immediate.
enum Form {
    /// In place of the second operand.
    Two(Code),
    /// As the third operand; the second one is the first.
    Three(Code),
    /// In place of the count.
    Shift(Code),
}

/// Returns the form of an instruction that has an immediate operand.
fn immediate_form(one: &Instruction) -> Option<Form> {
    use Code as C;
    Some(match one.code() {
        C::Add_rm32_r32 | C::Add_r32_rm32 => Form::Two(C::Add_rm32_imm32),
        C::Add_rm64_r64 | C::Add_r64_rm64 => Form::Two(C::Add_rm64_imm32),
        C::Or_rm32_r32 | C::Or_r32_rm32 => Form::Two(C::Or_rm32_imm32),
        C::Or_rm64_r64 | C::Or_r64_rm64 => Form::Two(C::Or_rm64_imm32),
        C::Adc_rm32_r32 | C::Adc_r32_rm32 => Form::Two(C::Adc_rm32_imm32),
        C::Adc_rm64_r64 | C::Adc_r64_rm64 => Form::Two(C::Adc_rm64_imm32),
        C::Sbb_rm32_r32 | C::Sbb_r32_rm32 => Form::Two(C::Sbb_rm32_imm32),
        C::Sbb_rm64_r64 | C::Sbb_r64_rm64 => Form::Two(C::Sbb_rm64_imm32),
        C::And_rm32_r32 | C::And_r32_rm32 => Form::Two(C::And_rm32_imm32),
        C::And_rm64_r64 | C::And_r64_rm64 => Form::Two(C::And_rm64_imm32),
        C::Sub_rm32_r32 | C::Sub_r32_rm32 => Form::Two(C::Sub_rm32_imm32),
        C::Sub_rm64_r64 | C::Sub_r64_rm64 => Form::Two(C::Sub_rm64_imm32),
        C::Xor_rm32_r32 | C::Xor_r32_rm32 => Form::Two(C::Xor_rm32_imm32),
        C::Xor_rm64_r64 | C::Xor_r64_rm64 => Form::Two(C::Xor_rm64_imm32),
        C::Cmp_rm32_r32 | C::Cmp_r32_rm32 => Form::Two(C::Cmp_rm32_imm32),
        C::Cmp_rm64_r64 | C::Cmp_r64_rm64 => Form::Two(C::Cmp_rm64_imm32),
        C::Test_rm32_r32 => Form::Two(C::Test_rm32_imm32),
        C::Test_rm64_r64 => Form::Two(C::Test_rm64_imm32),
        C::Mov_rm32_r32 => Form::Two(C::Mov_rm32_imm32),
        C::Mov_rm64_r64 => Form::Two(C::Mov_rm64_imm32),
        C::Imul_r32_rm32 => Form::Three(C::Imul_r32_rm32_imm32),
        C::Imul_r64_rm64 => Form::Three(C::Imul_r64_rm64_imm32),
        C::Shl_rm32_CL => Form::Shift(C::Shl_rm32_imm8),
        C::Shl_rm64_CL => Form::Shift(C::Shl_rm64_imm8),
        C::Shr_rm32_CL => Form::Shift(C::Shr_rm32_imm8),
        C::Shr_rm64_CL => Form::Shift(C::Shr_rm64_imm8),
        C::Sar_rm32_CL => Form::Shift(C::Sar_rm32_imm8),
        C::Sar_rm64_CL => Form::Shift(C::Sar_rm64_imm8),
        _ => return None,
    })
}

/// Puts the count into a shift. A count of 0 leaves the flags, and the form with `cl` tells that
/// they may change; so it stays.
fn count(one: &mut Instruction, code: Code, state: &State) -> bool {
    let Some(bits) = width(one, 0) else { return false };
    let limit = u64::from(bits - 1);
    let Some(count) = state.read(Register::CL).low(8).map(|count| count & limit) else {
        return false;
    };
    // The overflow flag is defined for a count of 1, which has a form of its own.
    if count < 2 {
        return false;
    }
    one.set_code(code);
    one.set_op1_kind(OpKind::Immediate8);
    one.set_immediate8(count as u8);
    true
}

/// Puts the registers of an address that are known into the displacement.
fn address(one: &mut Instruction, state: &State) {
    let has = (0..one.op_count()).any(|operand| one.op_kind(operand) == OpKind::Memory);
    let (base, index) = (one.memory_base(), one.memory_index());
    let of = |register: Register| match register.is_gpr64() {
        true => state.read(register).whole(),
        false => None,
    };
    // Vectors of addresses have no such form.
    let plain = |register: Register| register == Register::None || register.is_gpr64();
    if !has || !plain(base) || !plain(index) {
        return;
    }
    // An address with one of these bases is one of the stack segment, and faults in another way.
    let stack = |register| matches!(register, Register::RSP | Register::RBP);
    let scale = u64::from(one.memory_index_scale());
    let known_base = of(base).filter(|_| !stack(base));
    let known_index = of(index).map(|value| value.wrapping_mul(scale));
    if known_base.is_none() && known_index.is_none() {
        return;
    }
    let sum = one
        .memory_displacement64()
        .wrapping_add(known_base.unwrap_or(0))
        .wrapping_add(known_index.unwrap_or(0));
    let keeps_base = base != Register::None && known_base.is_none();
    let keeps_index = index != Register::None && known_index.is_none();
    if !keeps_base && !keeps_index {
        absolute(one, sum);
        return;
    }
    if i32::try_from(sum.cast_signed()).is_err() {
        return;
    }
    if !keeps_base && scale == 1 && !stack(index) {
        // An index alone takes a longer form than a base alone.
        one.set_memory_base(index);
        one.set_memory_index(Register::None);
    } else {
        one.set_memory_base(if keeps_base { base } else { Register::None });
        one.set_memory_index(if keeps_index { index } else { Register::None });
    }
    if !keeps_index {
        one.set_memory_index_scale(1);
    }
    one.set_memory_displacement64(sum);
    one.set_memory_displ_size(match (sum, one.memory_base()) {
        (_, Register::None) => 8,
        (0, base) if base != Register::R13 => 0,
        _ => 1,
    });
}

/// Makes the operand an address that is relative to the instruction.
fn absolute(one: &mut Instruction, address: u64) {
    let segment = one.segment_prefix() != Register::None;
    if segment || address.abs_diff(one.ip()) > NEAR || one.mnemonic() == Mnemonic::Lea {
        return;
    }
    one.set_memory_base(Register::RIP);
    one.set_memory_index(Register::None);
    one.set_memory_index_scale(1);
    one.set_memory_displacement64(address);
    one.set_memory_displ_size(8);
}
