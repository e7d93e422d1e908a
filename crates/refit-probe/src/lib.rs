//! Probes of running, unmodified programs: the places to watch, their sites, and the counts made
//! there.
//!
//! ```no_run
//! use refit_probe::spec::Spec;
//! use refit_probe::watch;
//! use refit_splice::process::Program;
//!
//! let spec: Spec = "uprobe:redis-server:lookupKey* { count, histogram arg1 }".parse()?;
//! let program = Program::open(4711)?;
//! let prepared = watch::prepare(&program, &[spec], None)?;
//! let watch = prepared.install(&program)?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! for watched in &watch.watched {
//!     for action in &watched.actions {
//!         println!("{}: {:?}", watched.name, watch.read(action)?.all);
//!     }
//! }
//! watch.remove(&program)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules, lowest first
//!
//! - [`modules`]: the files whose code a program runs, and their load addresses.
//! - [`file_pattern`]: which of these files a name means.
//! - [`stacks`]: the table by which snippets walk stacks, and the names of frames.
//! - [`unwinder`]: the stacks of threads that are switched out, for recordings.
//! - [`operand`], `quotes`, [`type_name`], [`arithmetic`], [`argument`], `path`, [`expression`],
//!   [`datum`]: values and texts, as they are asked for and as they are read.
//! - [`declarations`]: the types that scripts declare.
//! - `map_kinds`: the maps that keep functions and addresses of structures.
//! - [`lowering`]: locals for what is computed.
//! - [`forms`], [`computing`]: types at a place, and formulas with members of structures.
//! - [`mod@format`], [`action`]: messages, and everything that is done at places.
//! - `not_understood`, `flow`, [`statement`], [`spec`], [`script`]: the language, from text to
//!   places, conditions and actions.
//! - `kept_maps`: the maps that keep values, and whether their uses fit each other.
//! - [`tails`]: the steps by which a return is seen in another function.
//! - [`steps`]: the actions of a place as steps of a splice, at the entry and the exits of a
//!   function.
//! - [`places`], [`code`], `sequences`, [`body`], [`sites`], `exits`, [`placing`]: from places in a
//!   file to sites, with the bytes that may change there.
//! - [`reading`]: from counted cells to counts, times and distributions.
//! - [`printing`]: the messages that probes write.
//! - [`error`]: why nothing is watched.
//! - `files`, `tail_calls`: the files of a program, and the functions that return for others.
//! - `kept_types`: the types of the addresses that maps keep.
//! - [`finder`]: where unwinders learn of spliced code.
//! - `wanted`: the places that were asked for, until it is decided which are watched.
//! - `direct_calls`, `hot`: functions that are called often are counted without jumps.
//! - [`watch`]: installs the probes of several specifications, and reads and removes them.
//! - [`implied`], `blocks`: which blocks of a function need a flag.
//! - [`cover`]: coverage of basic blocks by flags that are removed once they are set; [`drcov`]
//!   writes it for other tools.
//! - [`drill`]: how the time in a function divides among its callees.
//!
//! Each module imports only from those above it in this list.
//!
//! # What it does not do
//!
//! It changes no program itself: `refit-splice` does so, and `refit-analysis` analyses the code. It
//! neither prints nor serves anything, and runs no threads: installed probes keep counting without
//! refit, until [`watch::Watch::remove`] or [`refit_splice::remains::repair`] removes them.

#![forbid(unsafe_code)]

pub mod action;
pub mod argument;
pub mod arithmetic;
mod blocks;
pub mod body;
pub mod code;
pub mod computing;
pub mod conservation;
pub mod cover;
pub mod datum;
pub mod declarations;
pub mod direct_calls;
pub mod drcov;
pub mod drill;
pub mod error;
mod exits;
pub mod expression;
pub mod file_pattern;
pub mod files;
pub mod finder;
mod flow;
pub mod format;
pub mod forms;
mod hot;
pub mod implied;
mod kept_maps;
mod kept_types;
pub mod lcov;
mod libunwind;
pub mod lowering;
mod map_kinds;
pub mod modules;
mod not_understood;
pub mod operand;
mod path;
pub mod places;
pub mod placing;
pub mod printing;
mod quotes;
pub mod reading;
pub mod script;
mod sequences;
mod session;
mod silent;
pub mod sites;
pub mod spec;
pub mod stacks;
pub mod statement;
pub mod steps;
mod tail_calls;
pub mod tails;
pub mod type_name;
pub mod unwinder;
mod wanted;
pub mod watch;
