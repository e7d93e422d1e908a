//! A place in a program's code, and what happens there.

use std::sync::Arc;

use refit_analysis::live::Live;

use crate::body::Body;
use crate::procedures::Procedures;
use crate::snippet::{Step, most_moved};

/// A place in a program's code, and the actions there.
#[derive(Clone, Debug)]
pub struct Site {
    /// Address of its first instruction in the program.
    pub address: u64,
    /// When the actions run.
    pub at: At,
    /// The code from there on, at least `room` bytes.
    pub code: Vec<u8>,
    /// Bytes from `address` on that may change: up to the next address that a jump or a return
    /// leads to, padding after the function included.
    pub room: usize,
    /// Whether `room` is a single instruction because not all jumps into the function are known.
    pub alone: bool,
    /// The live set before the first instruction.
    pub live: Live,
    /// Unused bytes within reach of a short jump, for long jumps that do not fit at the site.
    pub springboards: Vec<Springboard>,
    /// The actions, in order.
    pub actions: Vec<Step>,
    /// The function around it, which is copied if there is too little room; `None` if it cannot be
    /// copied.
    pub function: Option<Arc<Body>>,
    /// The function around it, as unwinders know it.
    pub procedures: Arc<Procedures>,
}

impl Site {
    /// Whether unwinders learn of generated code there.
    pub(crate) fn finds_frames(&self) -> bool {
        self.actions.iter().any(|step| step.action.finds())
    }

    /// Whether its actions may change a register or a flag, or use the stack.
    pub(crate) fn saves(&self) -> bool {
        !self.actions.iter().all(|step| step.is_flag())
    }

    /// Returns an upper bound of the number of registers that its actions move, with one for flags.
    pub(crate) fn most_moved(&self) -> usize {
        if self.saves() { most_moved(&self.actions) } else { 0 }
    }
}

/// When actions run relative to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// Before it.
    Before,
    /// When the direct jump at this address is taken. Only a copy of the function can run them
    /// then.
    Taken,
    /// Before it, if control comes from outside of the function. Only a copy of the function can
    /// tell.
    Entered,
}

/// Bytes that never run: padding between functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Springboard {
    /// Address in the program.
    pub address: u64,
    /// The bytes there.
    pub code: [u8; 5],
}
