//! The effect of an instruction on what is known.
//!
//! Moves and integer arithmetic are computed as the processor computes them, bit by bit where only
//! some bits are known. After every other instruction, everything that it writes is unknown. No
//! flag that the manual calls undefined is ever known.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use refit_analysis::live::{effects, flag};

use crate::arithmetic::{self, Logic, Outcome, Shift};
use crate::bits::Bits;
use crate::condition::holds;
use crate::constants::Constants;
use crate::operands;
use crate::set::Set;
use crate::state::{ARITHMETIC, State};

/// Computes states of code whose memory has these constants.
pub struct Evaluator<'c> {
    constants: &'c dyn Constants,
    info: InstructionInfoFactory,
}

impl<'c> Evaluator<'c> {
    /// Returns an evaluator.
    pub fn new(constants: &'c dyn Constants) -> Self {
        Self { constants, info: InstructionInfoFactory::new() }
    }

    /// Returns the memory that is constant.
    pub fn constants(&self) -> &'c dyn Constants {
        self.constants
    }

    /// Changes a state as an instruction does that neither calls nor returns. Jumps change it as
    /// other instructions do.
    pub fn step(&mut self, instruction: &Instruction, state: &mut State) {
        let known = Context { instruction, state, constants: self.constants };
        if let Some(change) = known.change() {
            change.make(state);
        } else {
            let writes = effects(&mut self.info, instruction).writes;
            state.forget(Set::of(&writes));
        }
    }

    /// Whether a conditional jump is taken, if that is known.
    pub fn is_taken(&self, jump: &Instruction, state: &State) -> Option<bool> {
        holds(jump.condition_code(), state)
    }

    /// Returns the target of an indirect jump, if it is known.
    pub fn target(&self, jump: &Instruction, state: &State) -> Option<u64> {
        let indirect = jump.flow_control() == FlowControl::IndirectBranch;
        let near = jump.is_jmp_near_indirect() && indirect;
        near.then(|| operands::value(jump, 0, state, self.constants).whole())?
    }
}

/// The registers and flags that change.
#[derive(Default)]
struct Change {
    /// Registers, and their values in their low bits.
    registers: Vec<(Register, Bits)>,
    changed: u8,
    flags: Bits,
}

impl Change {
    fn register(register: Register, value: Bits) -> Self {
        Self { registers: vec![(register, value)], ..Self::default() }
    }

    fn make(self, state: &mut State) {
        for (register, value) in self.registers {
            state.write(register, value);
        }
        state.set_flags(self.changed, self.flags);
    }
}

/// An instruction, and what is known before it.
struct Context<'a> {
    instruction: &'a Instruction,
    state: &'a State,
    constants: &'a dyn Constants,
}

impl Context<'_> {
    /// Returns the change that the instruction makes; `None` if it is not modelled.
    fn change(&self) -> Option<Change> {
        use Mnemonic as M;
        let one = self.instruction;
        if one.has_lock_prefix() || one.has_rep_prefix() || one.has_repne_prefix() {
            return None;
        }
        match one.mnemonic() {
            M::Nop | M::Endbr64 => Some(Change::default()),
            M::Mov | M::Movzx => self.moves(|value, _| value),
            M::Movsx | M::Movsxd => self.moves(Bits::sign_extended),
            M::Lea => self.lea(),
            M::Cbw => self.extends(Register::AL, Register::AX),
            M::Cwde => self.extends(Register::AX, Register::EAX),
            M::Cdqe => self.extends(Register::EAX, Register::RAX),
            M::Cwd => self.signs(Register::AX, Register::DX),
            M::Cdq => self.signs(Register::EAX, Register::EDX),
            M::Cqo => self.signs(Register::RAX, Register::RDX),
            M::Add | M::Adc | M::Sub | M::Sbb | M::Cmp => self.sums(),
            M::And | M::Or | M::Xor | M::Test => self.logic(),
            M::Inc | M::Dec | M::Neg => self.unary(),
            M::Not => self.not(),
            M::Shl | M::Sal | M::Shr | M::Sar => self.shift(),
            M::Imul => self.multiply(),
            M::Bt => self.bit_test(),
            _ if is_setcc(one) => self.setcc(),
            _ if is_cmov(one) => self.cmov(),
            _ => None,
        }
    }

    fn value(&self, operand: u32) -> Bits {
        operands::value(self.instruction, operand, self.state, self.constants)
    }

    /// Returns the change by which the first operand, which may be memory, becomes the result.
    fn first_becomes(&self, outcome: Outcome) -> Option<Change> {
        let Outcome { value, changed, flags } = outcome;
        let registers = match self.instruction.op0_kind() {
            OpKind::Register => vec![(self.instruction.op0_register(), value)],
            OpKind::Memory => Vec::new(),
            _ => return None,
        };
        Some(Change { registers, changed, flags })
    }

    fn moves(&self, extend: impl Fn(Bits, u32) -> Bits) -> Option<Change> {
        let one = self.instruction;
        // Segment, control and debug registers.
        let odd = |at: u32| one.op_kind(at) == OpKind::Register && !one.op_register(at).is_gpr();
        if odd(0) || odd(1) {
            return None;
        }
        if one.op0_kind() != OpKind::Register {
            return (one.op0_kind() == OpKind::Memory).then(Change::default);
        }
        let value = match operands::width(one, 1) {
            Some(width) => extend(self.value(1).zero_extended(width), width),
            None => self.value(1),
        };
        Some(Change::register(one.op0_register(), value))
    }

    fn lea(&self) -> Option<Change> {
        let one = self.instruction;
        let address = operands::address(one, self.state).map_or(Bits::UNKNOWN, Bits::known);
        Some(Change::register(one.op0_register(), address))
    }

    fn extends(&self, from: Register, to: Register) -> Option<Change> {
        let width = from.size() as u32 * 8;
        Some(Change::register(to, self.state.read(from).sign_extended(width)))
    }

    fn signs(&self, from: Register, to: Register) -> Option<Change> {
        let sign = self.state.read(from).shifted_down(from.size() as u32 * 8 - 1);
        Some(Change::register(to, sign.sign_extended(1)))
    }

    fn sums(&self) -> Option<Change> {
        use Mnemonic as M;
        let one = self.instruction;
        let width = operands::width(one, 0)?;
        let carry = match one.mnemonic() {
            M::Adc | M::Sbb => self.state.flag(flag::CARRY),
            _ => Some(false),
        };
        let (first, second) = match is_same_register(one) {
            // The difference of equal values does not depend on them.
            true if matches!(one.mnemonic(), M::Sub | M::Sbb | M::Cmp) => {
                (Bits::known(0), Bits::known(0))
            }
            _ => (self.value(0), self.value(1)),
        };
        let outcome = match one.mnemonic() {
            M::Add | M::Adc => arithmetic::add(first, second, carry, width),
            _ => arithmetic::subtract(first, second, carry, width),
        };
        match one.mnemonic() {
            M::Cmp => Some(flags_only(outcome)),
            _ => self.first_becomes(outcome),
        }
    }

    fn logic(&self) -> Option<Change> {
        use Mnemonic as M;
        let one = self.instruction;
        let width = operands::width(one, 0)?;
        let (first, second) = match is_same_register(one) {
            true if one.mnemonic() == M::Xor => (Bits::known(0), Bits::known(0)),
            _ => (self.value(0), self.value(1)),
        };
        let what = match one.mnemonic() {
            M::Or => Logic::Or,
            M::Xor => Logic::Xor,
            _ => Logic::And,
        };
        let outcome = arithmetic::logic(what, first, second, width);
        match one.mnemonic() {
            M::Test => Some(flags_only(outcome)),
            _ => self.first_becomes(outcome),
        }
    }

    fn unary(&self) -> Option<Change> {
        let width = operands::width(self.instruction, 0)?;
        let (value, number) = (self.value(0), Bits::known);
        let mut outcome = match self.instruction.mnemonic() {
            Mnemonic::Inc => arithmetic::add(value, number(1), Some(false), width),
            Mnemonic::Dec => arithmetic::subtract(value, number(1), Some(false), width),
            _ => {
                return self.first_becomes(arithmetic::subtract(
                    number(0),
                    value,
                    Some(false),
                    width,
                ));
            }
        };
        outcome.changed &= !flag::CARRY;
        self.first_becomes(outcome)
    }

    fn not(&self) -> Option<Change> {
        let width = operands::width(self.instruction, 0)?;
        let (ones, zeros) = self.value(0).split();
        let value = Bits::partly(ones | zeros, zeros).zero_extended(width);
        self.first_becomes(Outcome { value, changed: 0, flags: Bits::UNKNOWN })
    }

    fn shift(&self) -> Option<Change> {
        let one = self.instruction;
        let width = operands::width(one, 0)?;
        let mask = if width == 64 { 63 } else { 31 };
        let count = self.value(1).low(8)? & mask;
        if count == 0 || count >= u64::from(width) {
            return None;
        }
        let what = match one.mnemonic() {
            Mnemonic::Shr => Shift::Right,
            Mnemonic::Sar => Shift::Arithmetic,
            _ => Shift::Left,
        };
        self.first_becomes(arithmetic::shift(what, self.value(0), count as u32, width))
    }

    fn multiply(&self) -> Option<Change> {
        let one = self.instruction;
        // With one operand, the product is in two registers.
        let (first, second) = match one.op_count() {
            2 => (self.value(0), self.value(1)),
            3 => (self.value(1), self.value(2)),
            _ => return None,
        };
        self.first_becomes(arithmetic::multiply(first, second, operands::width(one, 0)?))
    }

    fn bit_test(&self) -> Option<Change> {
        let one = self.instruction;
        let width = operands::width(one, 0).filter(|_| one.op0_kind() == OpKind::Register)?;
        let number = self.value(1).low(8)? & u64::from(width - 1);
        let carry = self.value(0).bit(number as u32);
        let known = if carry.is_some() { u64::from(flag::CARRY) } else { 0 };
        let value = if carry == Some(true) { known } else { 0 };
        // All others but the zero flag are undefined.
        let (changed, flags) = (ARITHMETIC & !flag::ZERO, Bits::partly(known, value));
        Some(Change { registers: Vec::new(), changed, flags })
    }

    fn setcc(&self) -> Option<Change> {
        let held = holds(self.instruction.condition_code(), self.state);
        let value = held.map_or(Bits::partly(!1, 0), |held| Bits::known(held.into()));
        self.first_becomes(Outcome { value, changed: 0, flags: Bits::UNKNOWN })
    }

    fn cmov(&self) -> Option<Change> {
        let (old, new) = (self.value(0), self.value(1));
        let value = match holds(self.instruction.condition_code(), self.state) {
            Some(true) => new,
            Some(false) => old,
            None => old.or_else(new),
        };
        self.first_becomes(Outcome { value, changed: 0, flags: Bits::UNKNOWN })
    }
}

fn flags_only(outcome: Outcome) -> Change {
    let Outcome { changed, flags, .. } = outcome;
    Change { registers: Vec::new(), changed, flags }
}

/// Whether both operands are the same register.
pub(crate) fn is_same_register(one: &Instruction) -> bool {
    one.op0_kind() == OpKind::Register
        && one.op1_kind() == OpKind::Register
        && one.op0_register() == one.op1_register()
}

/// Whether it sets a byte by a condition.
pub(crate) fn is_setcc(one: &Instruction) -> bool {
    (Code::Seto_rm8 as u32..=Code::Setg_rm8 as u32).contains(&(one.code() as u32))
}

/// Whether it moves by a condition, between general registers or from memory.
pub(crate) fn is_cmov(one: &Instruction) -> bool {
    (Code::Cmovo_r16_rm16 as u32..=Code::Cmovg_r64_rm64 as u32).contains(&(one.code() as u32))
}
