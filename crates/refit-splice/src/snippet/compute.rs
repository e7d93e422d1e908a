//! Computes formulas, and keeps their results in locals of the snippet.
//!
//! Locals are words of the stack, from the snippet's first action to its last. A word of bits
//! before them says which of them have a value: a formula that reads memory that cannot be read
//! gives none, and actions that need it are skipped.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::formula::{Formula, Operator, Unary};
use super::item::Item;
use super::value::Relation;
use super::writer::{Label, Writer};
use crate::why::Why;

/// The most locals of a snippet.
pub const LOCALS: u8 = 31;

/// Returns the operand of a word of a formula.
fn word(at: usize) -> MemoryOperand {
    MemoryOperand::with_base_displ_size(Register::RSP, at as i64 * 8, 1)
}

impl Writer<'_> {
    /// Makes room for this many locals, none of which has a value.
    pub(super) fn open_locals(&mut self, count: u8) -> Result<(), Why> {
        if count == 0 {
            return Ok(());
        }
        self.deepen(i64::from(count) * 8 + 8)?;
        self.locals = self.depth;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, self.local_word(0), 0))
    }

    /// Gives the room back.
    pub(super) fn close_locals(&mut self, count: u8) -> Result<(), Why> {
        if count == 0 { Ok(()) } else { self.deepen(-(i64::from(count) * 8 + 8)) }
    }

    /// Returns the operand of the bits for 0, of the first local for 1, and so on.
    fn local_word(&self, number: u8) -> MemoryOperand {
        let offset = self.depth - self.locals + i64::from(number) * 8;
        MemoryOperand::with_base_displ_size(Register::RSP, offset, 1)
    }

    /// Gives a local the value 0.
    pub(super) fn begin_local(&mut self, local: u8) -> Result<(), Why> {
        let bit = 1_u32 << local;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, self.local_word(local + 1), 0))?;
        self.put(Instruction::with2(Code::Or_rm32_imm32, self.local_word(0), bit))
    }

    /// Loads a local; jumps if it has no value.
    pub(super) fn load_local(
        &mut self,
        local: u8,
        into: Register,
        nowhere: Label,
    ) -> Result<(), Why> {
        let bit = 1_u32 << local;
        self.put(Instruction::with2(Code::Test_rm32_imm32, self.local_word(0), bit))?;
        self.jump(Code::Je_rel32_64, nowhere)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, into, self.local_word(local + 1)))
    }

    /// Computes a local. Jumps if that fails; then it has no value.
    pub(super) fn assign(
        &mut self,
        local: u8,
        formula: &Formula,
        nowhere: Label,
    ) -> Result<(), Why> {
        let (bytes, bit) = (formula.words() as i64 * 8, 1_u32 << local);
        let (unreadable, done) = (self.label(), self.label());
        let result = self.scratch(0);
        self.deepen(bytes)?;
        self.compute(formula, 0, unreadable)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, result, word(0)))?;
        self.deepen(-bytes)?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, self.local_word(local + 1), result))?;
        self.put(Instruction::with2(Code::Or_rm32_imm32, self.local_word(0), bit))?;
        if formula.fails() {
            self.jump(Code::Jmp_rel32_64, done)?;
            self.bind(unreadable);
            self.depth += bytes;
            self.deepen(-bytes)?;
            self.put(Instruction::with2(Code::And_rm32_imm32, self.local_word(0), !bit))?;
            self.jump(Code::Jmp_rel32_64, nowhere)?;
            self.bind(done);
        }
        Ok(())
    }

    /// Leaves the number in the word `at`; changes the words after it. Jumps if a value cannot be
    /// read.
    fn compute(&mut self, formula: &Formula, at: usize, nowhere: Label) -> Result<(), Why> {
        let result = self.scratch(0);
        match formula {
            Formula::Number(number) => {
                self.put(Instruction::with2(Code::Mov_r64_imm64, result, *number))?;
            }
            Formula::Value(value) => self.load(*value, result, nowhere)?,
            Formula::Kept(kept) => {
                self.look_up(kept, nowhere)?;
                self.copy(result, Register::RDX)?;
            }
            Formula::Same { item, words } => self.same(item, words, nowhere)?,
            Formula::Read(place, width) => {
                self.compute(place, at, nowhere)?;
                self.put(Instruction::with2(Code::Mov_r64_rm64, result, word(at)))?;
                self.fetch(result, *width, nowhere)?;
            }
            Formula::Unary(unary, inner) => {
                self.compute(inner, at, nowhere)?;
                return self.unary(*unary, at);
            }
            Formula::Binary(operator @ (Operator::Both | Operator::Either), both) => {
                return self.logical(*operator, both, at, nowhere);
            }
            Formula::Binary(operator, both) => {
                self.compute(&both[0], at, nowhere)?;
                self.compute(&both[1], at + 1, nowhere)?;
                return self.binary(*operator, at);
            }
            Formula::Choice(all) => {
                let (otherwise, done) = (self.label(), self.label());
                self.compute(&all[0], at, nowhere)?;
                self.compare_with_0(at)?;
                self.jump(Code::Je_rel32_64, otherwise)?;
                self.compute(&all[1], at, nowhere)?;
                self.jump(Code::Jmp_rel32_64, done)?;
                self.bind(otherwise);
                self.compute(&all[2], at, nowhere)?;
                self.bind(done);
                return Ok(());
            }
        }
        self.put(Instruction::with2(Code::Mov_rm64_r64, word(at), result))
    }

    fn compare_with_0(&mut self, at: usize) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, word(at), 0))
    }

    /// Leaves in a word whether the last comparison had this result: 1 or 0.
    fn set(&mut self, code: Code, at: usize) -> Result<(), Why> {
        self.put(Instruction::with1(code, Register::AL))?;
        self.put(Instruction::with2(Code::Movzx_r32_rm8, Register::EAX, Register::AL))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, word(at), Register::RAX))
    }

    fn unary(&mut self, unary: Unary, at: usize) -> Result<(), Why> {
        match unary {
            Unary::Negate => self.put(Instruction::with1(Code::Neg_rm64, word(at))),
            Unary::Invert => self.put(Instruction::with1(Code::Not_rm64, word(at))),
            Unary::Not => {
                self.compare_with_0(at)?;
                self.set(Code::Sete_rm8, at)
            }
        }
    }

    fn logical(
        &mut self,
        operator: Operator,
        both: &[Formula; 2],
        at: usize,
        nowhere: Label,
    ) -> Result<(), Why> {
        let decided =
            if operator == Operator::Both { Code::Je_rel32_64 } else { Code::Jne_rel32_64 };
        let done = self.label();
        self.compute(&both[0], at, nowhere)?;
        self.compare_with_0(at)?;
        self.jump(decided, done)?;
        self.compute(&both[1], at, nowhere)?;
        self.bind(done);
        self.compare_with_0(at)?;
        self.set(Code::Setne_rm8, at)
    }

    /// Applies an operator to the word `at` and the next one.
    fn binary(&mut self, operator: Operator, at: usize) -> Result<(), Why> {
        let (left, right, next) = (Register::RAX, Register::RCX, word(at + 1));
        self.put(Instruction::with2(Code::Mov_r64_rm64, left, word(at)))?;
        let simple = match operator {
            Operator::Or => Code::Or_r64_rm64,
            Operator::Xor => Code::Xor_r64_rm64,
            Operator::And => Code::And_r64_rm64,
            Operator::Add => Code::Add_r64_rm64,
            Operator::Subtract => Code::Sub_r64_rm64,
            Operator::Multiply => Code::Imul_r64_rm64,
            Operator::Left | Operator::Right => {
                let shift =
                    if operator == Operator::Left { Code::Shl_rm64_CL } else { Code::Shr_rm64_CL };
                self.put(Instruction::with2(Code::Mov_r64_rm64, right, next))?;
                self.put(Instruction::with2(shift, left, Register::CL))?;
                return self.put(Instruction::with2(Code::Mov_rm64_r64, word(at), left));
            }
            Operator::Divide | Operator::Remainder => {
                self.put(Instruction::with2(Code::Mov_r64_rm64, right, next))?;
                return self.divide(operator == Operator::Remainder, at);
            }
            Operator::Compare(relation) => {
                self.put(Instruction::with2(Code::Cmp_r64_rm64, left, next))?;
                return self.set(relation.sets(), at);
            }
            // They have code of their own.
            Operator::Both | Operator::Either => return Ok(()),
        };
        self.put(Instruction::with2(simple, left, next))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, word(at), left))
    }

    /// Divides `rax` by `rcx`. Division by 0 would fault, as would that of the least number by -1.
    fn divide(&mut self, remainder: bool, at: usize) -> Result<(), Why> {
        let (quotient, rest, by) = (Register::RAX, Register::RDX, Register::RCX);
        let (plain, done) = (self.label(), self.label());
        let result = if remainder { rest } else { quotient };
        // 0 and -1 become 1 and 0.
        let next = MemoryOperand::with_base_displ(by, 1);
        self.put(Instruction::with2(Code::Lea_r64_m, rest, next))?;
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, rest, 1))?;
        self.jump(Code::Ja_rel32_64, plain)?;
        // Nothing remains, and the quotient is the product.
        self.put(Instruction::with2(Code::Imul_r64_rm64, quotient, by))?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX))?;
        self.jump(Code::Jmp_rel32_64, done)?;
        self.bind(plain);
        self.plain(Code::Cqo);
        self.put(Instruction::with1(Code::Idiv_rm64, by))?;
        self.bind(done);
        self.put(Instruction::with2(Code::Mov_rm64_r64, word(at), result))
    }

    /// Leaves in the first scratch register whether an item has these words: 1 or 0.
    fn same(&mut self, item: &Item, words: &[u64], nowhere: Label) -> Result<(), Why> {
        let bytes = words.len() as i64 * 8;
        let (result, different) = (self.scratch(0).full_register32(), self.label());
        self.gather(std::slice::from_ref(item), 0, words.len(), nowhere)?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, result, result))?;
        for (at, wanted) in words.iter().enumerate() {
            self.put(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, *wanted))?;
            self.put(Instruction::with2(Code::Cmp_rm64_r64, word(at), Register::RAX))?;
            self.jump(Code::Jne_rel32_64, different)?;
        }
        self.put(Instruction::with1(Code::Inc_rm32, result))?;
        self.bind(different);
        self.deepen(-bytes)
    }
}

impl Relation {
    /// Returns the instruction that stores whether it holds.
    fn sets(self) -> Code {
        match self {
            Self::Equal => Code::Sete_rm8,
            Self::Unequal => Code::Setne_rm8,
            Self::Less => Code::Setl_rm8,
            Self::AtMost => Code::Setle_rm8,
            Self::More => Code::Setg_rm8,
            Self::AtLeast => Code::Setge_rm8,
        }
    }
}
