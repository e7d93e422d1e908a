//! Instructions that are about to be encoded, with what an unwinder has to know at each of them.

use iced_x86::Instruction;

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
    /// That at the first instruction of a called function.
    Called,
}

/// Instructions, and the frames that unwinders find at them.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) instructions: Vec<Instruction>,
    /// Positions from which frames hold, ascending; each up to the next one.
    pub(crate) frames: Vec<(usize, Frame)>,
}

impl Listing {
    pub(crate) fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
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
}
