//! Lays out the hot code of running, unmodified programs anew, and proves that it pays.
//!
//! ```no_run
//! use refit_optimize::{Options, optimize};
//! use refit_splice::process::Program;
//!
//! let program = Program::open(4711)?;
//! let outcome = optimize(&program, &Options::default(), &mut |step| println!("{step:?}"))?;
//! println!("{:?}", outcome.verdict);
//! # Ok::<(), refit_optimize::Error>(())
//! ```
//!
//! # How it works
//!
//! 1. *Profile.* Counters at all entries say which functions run, counters at blocks how often each
//!    block of these does; both are exact, stay for some seconds, and are taken out again.
//! 2. *Lay out.* The hot blocks of each function are ordered such that most jumps fall through, and
//!    functions such that callees follow their callers.
//! 3. *Emit.* `refit-splice` copies the blocks, in this order, into one piece of memory near the
//!    program, and leads control there. Everything else runs where it always did.
//! 4. *Prove.* Control enters and leaves the copies many times, under the program's own load, while
//!    its progress for each nanosecond of processor time is measured. So are copies in the old
//!    order, which show what copying alone does. The new order stays only if it pays.
//!
//! # Modules, lowest first
//!
//! - [`ext_tsp`], [`clusters`], [`weights`]: orders of blocks and functions; numbers only.
//! - [`eligible`]: the functions whose calls can be made from copies.
//! - [`tables`]: jump tables that are copied with their jumps.
//! - [`profile`]: what runs, and how often.
//! - [`calls`]: where calls through pointers lead, and calls that are made in other ways.
//! - [`stored`]: profiles on disk, added up for each binary.
//! - `align`: which copies are aligned.
//! - [`layout`]: from a profile to an arrangement of copies.
//! - [`footprint`]: the cache lines of the hot code, before and after.
//! - [`interval`]: what measured ratios say.
//! - [`prove`]: measures the program with the copies, and without them.
//! - `options`, `outcome`, `error`: what is asked for, and what is told.
//! - `source`: counts, or takes what is stored.
//! - `optimize`: all of it.

#![forbid(unsafe_code)]

mod align;
pub mod calls;
pub mod clusters;
pub mod eligible;
mod error;
pub mod ext_tsp;
pub mod footprint;
pub mod interval;
pub mod layout;
mod optimize;
mod options;
mod outcome;
pub mod profile;
pub mod prove;
mod source;
pub mod stored;
pub mod tables;
pub mod weights;

pub use error::Error;
pub use optimize::optimize;
pub use options::Options;
pub use outcome::{Outcome, Step, Verdict};
pub use source::steady;
