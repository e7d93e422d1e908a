//! Instructions that are about to be encoded, with what an unwinder has to know at each of them.

use std::ops::Range;

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess};

/// Where the program's value of a register is while generated code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the register itself.
    Same,
    /// In another register.
    Register(u8),
    /// On the stack, this many bytes below the program's stack pointer.
    Stack(i16),
}

/// Where the program's values are before an instruction of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// Distance of the stack pointer below the program's, in bytes.
    pub(crate) depth: i64,
    /// Homes of the general registers by number; that of the stack pointer has no meaning.
    pub(crate) homes: [Home; 16],
}

impl Values {
    /// All values are where the program has left them.
    pub(crate) const UNMOVED: Self = Self { depth: 0, homes: [Home::Same; 16] };
}

/// The state of the stack before an instruction of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// That before the instruction at this address of the program, with these values moved.
    Of(u64, Values),
    /// That before the instruction at `next`; where the program does not describe `next`, that
    /// before `last`. Control falls through from `last` to `next`, and no instruction on the way
    /// changes a general register, so both frames are the same.
    After { last: u64, next: u64 },
    /// That at the first instruction of a called function.
    Called,
}

/// First label of snippets. Labels are no valid addresses: they differ from those of all
/// instructions, and from the labels of copied functions, which are less.
pub(crate) const FIRST_LABEL: u64 = 1 << 63;

/// First label of copied instructions.
pub(crate) const COPY_LABELS: u64 = 1 << 62;

/// A restartable sequence (rseq(2)) among instructions.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Positions of its first instruction, and of the one behind its last.
    pub(crate) range: Range<usize>,
    /// The code to which it is aborted, behind the signature that the kernel asks for; empty once
    /// it is among the instructions.
    pub(crate) abort_code: Vec<Instruction>,
    /// The frame there.
    pub(crate) frame: Frame,
    /// The position of that code behind the signature.
    pub(crate) abort: usize,
}

/// Instructions, and the frames that unwinders find at them.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) instructions: Vec<Instruction>,
    /// Positions from which frames hold, ascending; each up to the next one.
    pub(crate) frames: Vec<(usize, Frame)>,
    /// The restartable sequences among them.
    pub(crate) sequences: Vec<Sequence>,
}

impl Listing {
    pub(crate) fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    /// Adds the code to which sequences are aborted, behind everything that runs.
    pub(crate) fn push_abort_code(&mut self) {
        let mut sequences = std::mem::take(&mut self.sequences);
        for sequence in &mut sequences {
            self.frame(sequence.frame);
            sequence.abort = self.len() + 1;
            self.instructions.append(&mut sequence.abort_code);
        }
        self.sequences = sequences;
    }

    /// Returns the position of the next instruction.
    pub(crate) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Says what the frame is before the next instruction.
    pub(crate) fn frame(&mut self, frame: Frame) {
        let at = self.len();
        if self.frames.last().is_some_and(|&(from, _)| from == at) {
            self.frames.pop();
        }
        if self.frames.last().is_none_or(|&(_, last)| last != frame) {
            self.frames.push((at, frame));
        }
    }

    /// Says that the next instruction runs in place of the one at `original`.
    pub(crate) fn stand_for(&mut self, original: u64) {
        self.frame(Frame::Of(original, Values::UNMOVED));
    }

    /// Says that the next instruction runs in place of the one that follows the `passed` ones.
    ///
    /// A function can fall out of its end into code that its description does not cover, or that
    /// has another function's: padding before the next function, or that function.
    pub(crate) fn stand_after(&mut self, passed: &[Instruction]) {
        let Some(next) = passed.last().map(Instruction::next_ip) else { return };
        let mut info = InstructionInfoFactory::new();
        match passed.iter().rev().take_while(|one| changes_no_register(&mut info, one)).last() {
            Some(last) => self.frame(Frame::After { last: last.ip(), next }),
            None => self.stand_for(next),
        }
    }
}

/// Whether all general registers, the stack pointer among them, are the same after an instruction.
fn changes_no_register(info: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let used = info.info(instruction).used_registers();
    used.iter().all(|one| {
        let reads = matches!(one.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        reads || !one.register().is_gpr()
    })
}
