//! A place in a program's code, and what is done there.

use std::sync::Arc;

use refit_analysis::live::Live;

use crate::body::Body;
use crate::snippet::Step;

/// A place in a program's code, and what is to be done there.
#[derive(Clone, Debug)]
pub struct Site {
    /// Address of its first instruction in the program.
    pub address: u64,
    /// When something is done there.
    pub at: At,
    /// The code from there on, at least as far as `room` goes.
    pub code: Vec<u8>,
    /// How many bytes from `address` on may change: up to the next address that anything jumps or returns to, padding that
    /// follows included.
    pub room: usize,
    /// Whether `room` is one instruction because nobody knows where else control comes from.
    pub alone: bool,
    /// What the code still needs of the registers before the first instruction.
    pub live: Live,
    /// Unused bytes within 127 bytes, for jumps that do not fit at the site.
    pub springboards: Vec<Springboard>,
    /// What is to be done there, in this order.
    pub actions: Vec<Step>,
    /// The function that it is in, for a copy of it where there is too little room; `None` if it cannot be copied.
    pub function: Option<Arc<Body>>,
}

/// When something is done at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// Before it.
    Before,
    /// On the way that it takes, if it is a direct jump, when it takes it. Only a copy of the function can do that.
    Taken,
    /// Before it, when control comes from elsewhere than the function itself. Only a copy of the function can tell.
    Entered,
}

/// Bytes that are never run: padding between functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Springboard {
    /// Where in the program.
    pub address: u64,
    /// What stands there.
    pub code: [u8; 5],
}
