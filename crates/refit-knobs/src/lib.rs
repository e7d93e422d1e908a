//! Finds constants in the code of unmodified programs that act as tunables, and sets them while the
//! programs run.
//!
//! ```no_run
//! use refit_analysis::Module;
//! use refit_knobs::{find, rank};
//!
//! let module = Module::open("/usr/bin/redis-server")?;
//! let mut knobs = find::find(&module, &module.find("*sds*"));
//! rank::sort(&mut knobs, &Default::default());
//! for knob in knobs.iter().filter(|knob| knob.score >= rank::LIKELY) {
//!     println!("{}: {}", knob.name, knob.usage.text(knob.value));
//! }
//! # Ok::<(), refit_analysis::OpenError>(())
//! ```
//!
//! # How it works
//!
//! A *knob* is a number in an instruction: one that a counter or another number is compared with,
//! one that a loop counts down from, or one that is passed to a function. Data flow within the
//! function tells its *web*, the instructions that have to change together, and how the number
//! *escapes* from what can be followed. What is not known is a *risk*, and a knob with risks is set
//! only if the caller takes them.
//!
//! A knob is set by rewriting the bytes of its immediates in place
//! ([`refit_splice::immediates`]), so it costs the program nothing. It stays set after refit has
//! ended, and `refit repair` restores it.
//!
//! # What is not known
//!
//! A compiler draws conclusions from constants: after `if (n > 1000)`, it may leave out a later
//! check of `n > 2000`, or add up two constants to a third. Nothing in the machine code tells that.
//! Nor does it tell of the size of an array, or of copies of the constant in functions into which
//! the source was inlined. See `docs/guide/knobs.md`.
//!
//! # Modules, lowest first
//!
//! - [`code`]: the instructions of a function, and what each reads and writes.
//! - [`immediate`]: where numbers are, and which fit there.
//! - [`loops`]: the loops of a function.
//! - [`trace`]: from definitions to uses, and back.
//! - [`compare`]: what comparisons decide.
//! - [`guard`]: whether they may guard memory, and whether loops go through it.
//! - `callers`: whether callers use what a function leaves in a register.
//! - [`arguments`]: library functions whose arguments may change.
//! - [`knob`]: constants, their uses, risks and escapes.
//! - [`web`]: def-use webs.
//! - [`name`], [`rank`]: names and scores of knobs.
//! - [`mod@find`], [`mod@locate`]: all knobs of functions, and one by its name.
//! - [`mod@set`]: changes a program.
//! - [`saved`]: settings on disk, by build id.

#![forbid(unsafe_code)]

pub mod arguments;
mod callers;
pub mod code;
pub mod compare;
pub mod find;
pub mod guard;
pub mod immediate;
pub mod knob;
pub mod locate;
pub mod loops;
pub mod name;
pub mod rank;
pub mod saved;
pub mod set;
pub mod trace;
pub mod web;

pub use knob::{Escape, Knob, Risk, Use};
pub use locate::{NotFound, locate};
pub use set::{Changed, Error, current, set, unset};
