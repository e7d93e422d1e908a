//! The versions of a function, and their instructions.

use std::sync::Arc;

use iced_x86::Instruction;

use crate::body::Body;
use crate::jump::JUMP;
use crate::moving::DirectCall;
use crate::patches::in_one_page;
use crate::relocate::Displaced;
use crate::site::Site;
use crate::why::Why;

/// A function, and the versions of it that run instead for values of a register.
#[derive(Clone, Debug)]
pub struct Versions {
    /// The entry of the function, without actions. The flags are dead there, and so is register 11
    /// if a test needs it ([`Version::needs_register`]).
    pub site: Site,
    /// The function.
    pub body: Arc<Body>,
    /// The versions, the most frequent first.
    pub versions: Vec<Version>,
    /// Calls whose argument always has the value of a version.
    pub calls: Vec<ConstantCall>,
}

/// A direct call of a function, or a direct jump to it, at which the register that chooses the
/// version always has one value. It leads to the version without a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantCall {
    /// The call, which leads to the site of the versions.
    pub call: DirectCall,
    /// Index of the version.
    pub version: usize,
}

/// A version of a function.
#[derive(Clone, Debug)]
pub struct Version {
    /// Number of the general register whose value chooses the version.
    pub register: u8,
    /// The value of all of its 64 bits.
    pub value: u64,
    /// The blocks; the first one stands for the entry of the function.
    pub blocks: Vec<VersionBlock>,
}

/// Instructions that run one after the other. A call is the last one of its block.
#[derive(Clone, Debug)]
pub struct VersionBlock {
    /// The address of the function for which its beginning stands.
    pub start: u64,
    /// The instructions.
    pub instructions: Vec<VersionInstruction>,
    /// The goal that follows the last one; `None` if that leaves the function, or jumps.
    pub next: Option<Goal>,
    /// The address of the function whose frame is that behind the last instruction: it follows the
    /// last one, or is that of a jump that is left out.
    pub end: u64,
    /// The address of the function at which a thread behind the last instruction can continue, if
    /// the position is exact.
    pub back: Option<u64>,
}

/// An instruction of a version.
#[derive(Clone, Debug)]
pub struct VersionInstruction {
    /// The address of the instruction of the function that it stands for.
    pub original: u64,
    /// The instruction.
    pub instruction: Instruction,
    /// Where it leads, if it is a direct jump or call.
    pub to: Option<Goal>,
    /// The address of the function at which a thread at this position can continue, if the position
    /// is exact.
    pub back: Option<u64>,
}

/// Where control goes from a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A block of the version, by its index.
    Block(usize),
    /// An address of the program.
    Program(u64),
}

/// Versions that can be installed.
#[derive(Debug)]
pub(crate) struct ReadyVersions {
    pub(crate) of: Versions,
    pub(crate) displaced: Displaced,
}

impl Version {
    /// Whether the test for a value needs register 11 besides the flags.
    pub fn needs_register(value: u64) -> bool {
        i32::try_from(value.cast_signed()).is_err()
    }
}

impl ReadyVersions {
    /// Decides which instructions at the entry are displaced.
    ///
    /// # Errors
    /// [`Why::Short`], [`Why::Alone`], [`Why::Fixed`] or [`Why::NoCode`].
    pub(crate) fn new(of: Versions) -> Result<Self, Why> {
        let Site { address, room, alone, ref code, .. } = of.site;
        let displaced = Displaced::new(address, code, JUMP)?;
        let length = displaced.length().max(JUMP);
        if length > room.min(code.len()) || !in_one_page(address, JUMP) {
            return Err(match alone {
                true => Why::Alone { address, room },
                false => Why::Short { address, room },
            });
        }
        Ok(Self { of, displaced })
    }

    /// Returns the number of instructions of all versions.
    pub(crate) fn instructions(&self) -> usize {
        let blocks = self.of.versions.iter().flat_map(|version| &version.blocks);
        blocks.map(|block| block.instructions.len() + 1).sum()
    }

    pub(crate) fn line(&self) -> String {
        let (at, count) = (self.of.site.address, self.of.versions.len());
        format!("{at:#x}: {count} versions of {} instructions", self.instructions())
    }
}
