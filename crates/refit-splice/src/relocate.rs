//! Instructions that are displaced by a jump, and run in the patch area instead.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, MemoryOperand, Mnemonic, OpKind,
    Register,
};

use crate::listing::{Frame, Listing, Values};
use crate::process::signal_frames;
use crate::why::Why;

/// The instructions at the beginning of a site that a jump replaces.
#[derive(Clone, Debug)]
pub struct Displaced {
    instructions: Vec<Instruction>,
    /// Address at which execution continues after them, if it does.
    next: Option<u64>,
    /// Their length in bytes.
    length: usize,
}

impl Displaced {
    /// Decodes the instructions in the first `least` bytes of `code`, which is at `address`.
    ///
    /// Padding after an instruction that does not fall through (`ret`, `jmp`) is not displaced.
    ///
    /// # Errors
    /// [`Why::NoCode`], [`Why::Fixed`]: an instruction cannot run elsewhere.
    pub fn new(address: u64, code: &[u8], least: usize) -> Result<Self, Why> {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut found = Self { instructions: Vec::new(), next: None, length: 0 };
        loop {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(Why::NoCode { address: instruction.ip() });
            }
            refuse_fixed(&instruction)?;
            refuse_end_of_handler(&instruction, &code[found.length..])?;
            found.instructions.push(instruction);
            found.length += instruction.len();
            if !goes_on(&instruction) {
                return Ok(found);
            }
            if found.length >= least {
                found.next = Some(instruction.next_ip());
                return Ok(found);
            }
        }
    }

    /// Returns the bytes that they take at the site.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes instructions with the same effect at any address, and a jump to what follows. Returns
    /// the address of each original with the position of its copy.
    pub(crate) fn write(&self, to: &mut Listing) -> Result<Vec<(u64, usize)>, Why> {
        let mut begins = Vec::new();
        for (number, instruction) in self.instructions.iter().enumerate() {
            begins.push((instruction.ip(), to.len()));
            match number {
                0 => to.stand_for(instruction.ip()),
                _ => to.stand_after(&self.instructions[..number]),
            }
            match instruction.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => write_call(instruction, to)?,
                _ => {
                    // Given the original address, the encoder would redirect references to these
                    // instructions to their copies. A loop would then miss its snippet, and a
                    // pointer to this very function would hold an address that no other code knows.
                    let mut copy = *instruction;
                    copy.set_ip(0);
                    to.push(copy);
                }
            }
        }
        if let Some(next) = self.next {
            to.stand_after(&self.instructions);
            to.push(made(
                self.instructions[0].ip(),
                Instruction::with_branch(Code::Jmp_rel32_64, next),
            )?);
        }
        Ok(begins)
    }
}

pub(crate) fn made(
    address: u64,
    made: Result<Instruction, iced_x86::IcedError>,
) -> Result<Instruction, Why> {
    made.map_err(|error| Why::Generate { address, reason: error.to_string() })
}

pub(crate) fn goes_on(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// Writes a call that pushes its original return address and jumps: in two halves, since no
/// instruction pushes 64 bits. Neither changes a flag or a register.
pub(crate) fn write_call(call: &Instruction, to: &mut Listing) -> Result<(), Why> {
    let (at, back) = (call.ip(), call.next_ip());
    let low = back as u32;
    to.push(made(at, Instruction::with1(Code::Pushq_imm32, low.cast_signed()))?);
    // A push sign-extends; if the upper half is right already, no second store is needed.
    if i64::from(low.cast_signed()).cast_unsigned() != back {
        to.frame(Frame::Of(at, Values { depth: 8, ..Values::UNMOVED }));
        let high = MemoryOperand::with_base_displ(Register::RSP, 4);
        to.push(made(at, Instruction::with2(Code::Mov_rm32_imm32, high, (back >> 32) as u32))?);
    }
    let jump = match call.op0_kind() {
        OpKind::NearBranch64 => Instruction::with_branch(Code::Jmp_rel32_64, call.near_branch64()),
        OpKind::Register => Instruction::with1(Code::Jmp_rm64, call.op0_register()),
        OpKind::Memory => {
            let mut operand = MemoryOperand::new(
                call.memory_base(),
                call.memory_index(),
                call.memory_index_scale(),
                call.memory_displacement64().cast_signed(),
                call.memory_displ_size(),
                false,
                call.segment_prefix(),
            );
            if call.memory_base() == Register::RSP {
                // The return address is now on the stack, below the operand.
                operand.displacement += 8;
                // One byte; the encoder takes four if one does not suffice.
                operand.displ_size = 1;
            }
            Instruction::with1(Code::Jmp_rm64, operand)
        }
        _ => return Err(fixed(call, "it is a far call")),
    };
    to.frame(Frame::Called);
    to.push(made(at, jump)?);
    Ok(())
}

pub(crate) fn refuse_fixed(instruction: &Instruction) -> Result<(), Why> {
    let reason = match instruction.mnemonic() {
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => {
            "the kernel makes an interrupted system call again by stepping back to it"
        }
        Mnemonic::Xbegin | Mnemonic::Xend | Mnemonic::Xabort => {
            "a transaction aborts to where it began"
        }
        Mnemonic::Jrcxz
        | Mnemonic::Jecxz
        | Mnemonic::Jcxz
        | Mnemonic::Loop
        | Mnemonic::Loope
        | Mnemonic::Loopne => "its jump reaches 127 bytes and has no longer form",
        Mnemonic::Endbr64 => "it is the required target of indirect jumps",
        Mnemonic::Call if instruction.op0_register() == Register::RSP => {
            "it calls through the stack pointer"
        }
        Mnemonic::Call if instruction.is_call_far() || instruction.is_call_far_indirect() => {
            "it is a far call"
        }
        Mnemonic::Int1 | Mnemonic::Int3 | Mnemonic::Into => "it is a breakpoint",
        // The address of the fault tells the handler where it happened.
        Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 | Mnemonic::Hlt => {
            "it is there to stop the program"
        }
        _ => return Ok(()),
    };
    Err(fixed(instruction, reason))
}

/// Refuses the code to which signal handlers return; `code` begins with the instruction.
pub(crate) fn refuse_end_of_handler(instruction: &Instruction, code: &[u8]) -> Result<(), Why> {
    let reason = "debuggers recognize the return from signal handlers by these bytes";
    if signal_frames::ends_a_handler(code) { Err(fixed(instruction, reason)) } else { Ok(()) }
}

fn fixed(instruction: &Instruction, reason: &'static str) -> Why {
    Why::Fixed { address: instruction.ip(), text: instruction.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use iced_x86::{BlockEncoder, BlockEncoderOptions, InstructionBlock};

    use super::*;

    /// Returns the instructions at 0x1000 as they are when moved to 0x2000.
    fn moved(code: &[u8]) -> Vec<Instruction> {
        let mut copies = Listing::default();
        let displaced = Displaced::new(0x1000, code, 5).expect("they can be moved");
        displaced.write(&mut copies).expect("copies");
        let block = InstructionBlock::new(&copies.instructions, 0x2000);
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).expect("encoded");
        let bytes = encoded.code_buffer;
        Decoder::with_ip(64, &bytes, 0x2000, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn a_pointer_to_the_site_stays_one() {
        // sub $0x48, %rsp; lea -11(%rip), %rdi: the address of the first instruction.
        let copies = moved(&[0x48, 0x83, 0xec, 0x48, 0x48, 0x8d, 0x3d, 0xf5, 0xff, 0xff, 0xff]);
        assert_eq!(copies[1].memory_displacement64(), 0x1000);
        // dec %edi; jne -4; ret: a loop that begins there passes there in each round.
        let copies = moved(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]);
        assert_eq!(copies[1].near_branch64(), 0x1000);
    }

    #[test]
    fn calls_through_the_stack_pointer_read_what_they_read() {
        for (code, displacement) in [
            (&[0xff, 0x14, 0x24, 0x66, 0x90][..], 8),
            (&[0xff, 0x54, 0x24, 0x70, 0x90], 0x78),
            (&[0xff, 0x54, 0x24, 0x7c, 0x90], 0x84),
            (&[0xff, 0x94, 0x24, 0x00, 0x01, 0x00, 0x00], 0x108),
        ] {
            let copies = moved(code);
            let jump = copies
                .iter()
                .find(|one| one.op0_kind() == OpKind::Memory && one.is_jmp_near_indirect());
            let jump = jump.expect("a jump through memory");
            let place = (jump.memory_base(), jump.memory_displacement64());
            assert_eq!(place, (Register::RSP, displacement));
        }
    }

    #[test]
    fn jumps_that_only_reach_near_are_refused() {
        for code in [[0xe3, 0x10, 0x90, 0x90, 0x90], [0xe2, 0x10, 0x90, 0x90, 0x90]] {
            assert!(matches!(Displaced::new(0x1000, &code, 5), Err(Why::Fixed { .. })));
        }
    }
}
