//! Machine code of unmodified programs: what is there, and code spliced in and taken out while they run.
//!
//! ```no_run
//! let module = refit_analysis::Module::open("/bin/bash")?;
//! for id in module.find("execute_command*") {
//!     let flow = module.flow(id);
//!     println!("{}: {} blocks", module.function(id).name(), flow.blocks().len());
//! }
//! # Ok::<(), refit_analysis::OpenError>(())
//! ```
//!
//! A [`Module`] is one ELF file for x86-64: a program or a shared object. All addresses are those of the file, as the
//! linker gave them; whoever looks at a process adds where the kernel put the file.
//!
//! # What it does
//!
//! - [`image`] reads the file: segments, symbols, frame descriptions, stubs, Go's function table, separate debug symbols.
//! - [`functions`] joins these sources to one list, in which every byte of code belongs to one function at most.
//! - [`flow`] follows the instructions of a function to basic blocks and edges.
//! - [`lines`] reads which lines of source that was, where debug information is there.
//! - [`live`] says which registers, flags and vectors are needed later, before each instruction.
//! - [`cache`] keeps what took long on disk, by the content of the file.
//! - [`process`] holds a running program still and makes system calls in it, from outside.
//! - [`splice`] puts code in before an instruction of it, and takes it out.
//! - [`probe`] makes of what people ask for what is spliced, and reads what it counts.
//!
//! Data flows down this list: nothing knows of what stands below it.
//!
//! # What it does not do
//!
//! The first six change nothing, start nothing and run nothing of what they read. They believe nothing either: a file may hold
//! anything, and the worst that comes of it is an error, or an answer that says that it does not know.

#![forbid(unsafe_code)]

pub mod cache;
pub mod flow;
pub mod functions;
pub mod glob;
pub mod image;
pub mod lines;
pub mod live;
mod module;
mod registers;
mod survey;

pub use flow::Flow;
pub use functions::{Function, FunctionId};
pub use image::OpenError;
pub use live::Live;
pub use module::Module;
