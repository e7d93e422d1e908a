//! Versions of functions of running, unmodified programs, for hot values of arguments.
//!
//! ```no_run
//! use refit_specialize::{Options, Target, specialize};
//! use refit_splice::process::Program;
//!
//! let program = Program::open(4711)?;
//! let target: Target = "libc:malloc(arg0)".parse()?;
//! let outcome = specialize(&program, &Options::new(target), &mut |step| println!("{step:?}"))?;
//! println!("{:?}", outcome.verdict);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! 1. *Values.* A probe counts the values of the argument for some seconds. A value that nearly all
//!    calls have is hot, or up to four that nearly all calls have together.
//! 2. *Evaluate.* The function is followed from its entry, with the argument known: at each
//!    instruction it is known which bits of the general registers and which flags have which value.
//!    Memory that the file says is constant has the values that it has in the program.
//! 3. *Fold.* Branches whose condition is known are left out, and so are instructions that only
//!    compute what nothing reads any more. Results that are known become moves of constants,
//!    operands that are known become immediates and displacements. Loops of a known count are
//!    unrolled as long as they are short.
//! 4. *Dispatch.* `refit-splice` leads the entry of the function to a comparison of the argument,
//!    and from there to a version or to the function. Direct calls whose argument is a constant
//!    lead to its version without a comparison.
//! 5. *Prove.* Control enters and leaves the versions many times, under the program's own load, as
//!    `refit-optimize` does it with copies. The versions stay only if they pay.
//!
//! # Why a version computes what the function computes
//!
//! Nothing is left out that may fault, that accesses memory other than constants, or that orders
//! accesses. An instruction is left out only if none of the registers and flags that it changes is
//! read in the version before it changes again, or wherever control leaves the version: there, and
//! at calls and returns, `refit-analysis` says what the function or its caller may read, and the
//! frame descriptions say what unwinders read. This is computed twice: backwards, to decide
//! ([`plan`]), and forwards, to check: which registers differ from those of the function. A version
//! that reads one of these is refused ([`NoVersion::Inexact`]).
//!
//! The same check says at which instructions a thread could continue in the function: undoing
//! moves threads there, and waits for others. Return addresses are always such places.
//!
//! # Modules, lowest first
//!
//! - [`set`], [`bits`], [`state`]: what is known of registers.
//! - [`constants`], [`operands`], [`arithmetic`], [`condition`], [`evaluate`]: what an instruction
//!   makes of it.
//! - [`code`]; [`node`], `order`, [`graph`]: a function, and the blocks of a version of it.
//! - [`fold`], [`plan`], `version`: the instructions of a version.
//! - [`target`], [`values`], [`calls`], `specialize`: all of it, in a program.

#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod bits;
pub mod calls;
pub mod code;
pub mod condition;
pub mod constants;
mod error;
pub mod evaluate;
pub mod fold;
pub mod graph;
pub mod node;
pub mod operands;
mod order;
pub mod plan;
pub mod set;
mod specialize;
pub mod state;
pub mod target;
pub mod values;
mod version;

pub use code::entry_site;
pub use error::NoVersion;
pub use specialize::{Error, Options, Outcome, Step, specialize};
pub use target::{NoTarget, Target};
pub use version::{ArgumentValue, Figures, version};
