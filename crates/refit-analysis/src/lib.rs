//! Understands the machine code of unmodified x86-64 programs: bytes in, facts out.
//!
//! ```no_run
//! let module = refit_analysis::Module::open("/bin/bash")?;
//! for id in module.find("execute_command*") {
//!     let flow = module.flow(id);
//!     println!("{}: {} blocks", module.function(id).name(), flow.blocks().len());
//!     if let Some(first) = flow.instructions().first() {
//!         println!("live before {:#x}: {:?}", first.address, flow.live_before(first.address));
//!     }
//! }
//! # Ok::<(), refit_analysis::OpenError>(())
//! ```
//!
//! A [`Module`] is one ELF file: a program or a shared object. All addresses are those that the
//! linker assigned; for a process, the caller adds the address at which the kernel mapped the file.
//!
//! # Modules, lowest first
//!
//! - [`image`] reads the file: segments, symbols, frame descriptions, stubs, Go's function table,
//!   separate debug symbols.
//! - [`functions`] holds the list of functions, in which each byte of code belongs to at most one.
//! - [`flow`] follows the instructions of a function and builds basic blocks and edges.
//! - [`registers`] has the numbers of registers, and sets of live ones.
//! - [`live`] computes which registers, flags and vectors are live before each instruction.
//! - [`beginning`] has what is enough to insert code at the entry of a function.
//! - `survey` finds all functions of a file, by [`flow`] and [`live`], and summarises each.
//! - [`cache`] stores the result of a survey on disk, keyed by the content of the file.
//! - [`lines`] maps instructions to lines of source, where debug information exists.
//! - [`types`] tells what data is, where debug information exists: members of structures,
//!   parameters of functions.
//!
//! Each module imports only from those above it in this list; [`Module`] puts them together.
//!
//! # What it does not do
//!
//! It neither looks at processes nor runs or changes what it reads. It trusts nothing in a file:
//! damaged or hostile input yields an error, or an answer that says that it is unknown, never a
//! panic or an endless loop. Code is for x86-64 only, and an indirect jump that is not understood
//! is reported as such ([`Flow::targets_known`]).

#![forbid(unsafe_code)]

pub mod beginning;
pub mod cache;
pub mod flow;
pub mod functions;
pub mod image;
pub mod lines;
pub mod live;
mod module;
mod nearest;
pub mod registers;
mod survey;
pub mod types;

pub use flow::Flow;
pub use functions::{Function, FunctionId};
pub use image::OpenError;
pub use live::Live;
pub use module::Module;
