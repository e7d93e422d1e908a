//! Splices code into running, unmodified programs, and takes it out again.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use refit_analysis::Live;
//! use refit_splice::process::Program;
//! use refit_splice::{Action, At, Installed, Plan, Site, remains};
//!
//! // Counts how often process 4711 runs the `nop dword [rax+rax]` at this address.
//! let program = Program::open(4711)?;
//! let code = vec![0x0f, 0x1f, 0x44, 0x00, 0x00];
//! let site = Site {
//!     address: 0x55d0_c0de_1000,
//!     at: At::Before,
//!     room: code.len(),
//!     code,
//!     alone: false,
//!     live: Live::ALL,
//!     springboards: Vec::new(),
//!     actions: vec![Action::Count { cell: 0 }.into()],
//!     function: None,
//!     procedures: Arc::default(),
//! };
//! let (plan, refused) = Plan::new(vec![site]);
//! assert!(refused.is_empty());
//! let installed = Installed::new(&program, &plan, 1, None)?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! println!("{} times", installed.cell(0)?);
//! remains::repair(&program)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! At a *site*, a jump into the *patch area*, memory of refit's in the program near its code,
//! replaces the first instructions. The patch area holds the *snippet* (the code of the actions),
//! the displaced instructions, and a jump back:
//!
//! ```text
//! site:  push rbp          site:  jmp patch        patch: mov r11d, fs:[…]   ┐
//!        mov rbp, rsp  ──►        (rest unused)            …                  │ snippet
//!        sub rsp, 32              sub rsp, 32  ◄┐          lock inc [r11+16]  ┘
//!                                               │          push rbp           ┐ displaced
//!                                               │          mov rbp, rsp       ┘
//!                                               └───────── jmp back
//! ```
//!
//! The snippet uses dead registers where there are some, and saves the others that it needs. It
//! counts into memory that refit has mapped too, so reading the counts costs the program nothing.
//!
//! A function with a site that has no room for a jump is copied as a whole, with snippets between
//! its instructions (`layout` decides what of the original stays and what changes, `copy` writes
//! the copy). Calls, system calls and traps run at their old places.
//!
//! # Why a thread is never lost
//!
//! Bytes change only while no thread runs
//! ([`Program::stand_still`](process::Program::stand_still)). At that time
//!
//! 1. a thread whose program counter is *inside* the bytes that change, after the first
//!    instruction, is moved to the copy of the same instruction in the patch area; a thread at the
//!    first instruction stays there, and runs the jump as any caller does;
//! 2. the same holds for program counters that the kernel saved on stacks, to which signal handlers
//!    return (`process::signal_frames`);
//! 3. no return address leads inside: a call ends its basic block, so the instruction after it is
//!    a leader, and the bytes of a site hold no leader but the first ([`Site::room`]). A displaced
//!    call pushes the address that it always pushed: nothing on any stack refers to the patch area,
//!    and unwinding works as before.
//!
//! A program that switches threads in user space saves program counters in its own memory;
//! `process::contexts` searches for them.
//!
//! Threads in a copied function move in the same way: from every instruction that neither stays nor
//! becomes a jump, to the snippet before its copy. Return addresses lead to places that become
//! jumps, or that stay.
//!
//! Removal is the same in the other direction: threads in displaced instructions move back to the
//! originals, and threads in a snippet run until they have left it. The patch area is unmapped
//! when no thread and no signal frame can be in it.
//!
//! # What remains if refit is killed
//!
//! The program keeps running, and counting. Each change is recorded in the patch area before it is
//! made, so [`remains::repair`] can take out the work of another process.
//!
//! # Modules, lowest first
//!
//! - [`process`]: a program whose tasks can be stopped, read and changed, and made to run system
//!   calls.
//! - `record`, `indices`, `debugger`, `libunwind`, `area`, `patches`: the patch area, what is in
//!   it, and changes that survive a kill.
//! - `changed`: the bytes of the program that are not those of its file.
//! - `procedures`, `site`, `body`, `relocate`, `jump`, `layout`, `arrange`, `versions`, `ready`,
//!   `plan`: decide which bytes change; no process needed.
//! - `store`, `kept`, `stacks`: what snippets have stored once, under a number: keys and stacks;
//!   values that they keep by key; the table by which they walk stacks.
//! - `listing`, `snippet`, `copy`, `generate`: machine code for the patch area.
//! - `unwind`: the same code, described for unwinders and debuggers.
//! - `assemble`: all code of a patch area, on all processors.
//! - `rules`: where return addresses are on stacks.
//! - `move_threads`, `returns`: program counters and return addresses that the changes affect.
//! - `moving`: sites that move, with the calls that lead to them.
//! - [`remains`], `unchanged`, `install`, `withdraw`, `move_sites`, `enter`: put a plan in, take
//!   everything out, take single sites out, move those that run often, enter and leave copies.
//! - [`immediates`]: replace numbers in instructions, in place.
//! - `counted`, `lanes`, `taken`: read what snippets have counted and stored, and take it.
//!
//! # What it does not do
//!
//! It does not decide where sites are or what may change there: the caller derives that from
//! `refit-analysis`, as `refit-probe` does. It loads no library into the program and starts no
//! thread in it. Programs for other machines than x86-64, and processes that another tracer holds,
//! are refused ([`process::Refusal`]) before anything is touched.

#![forbid(unsafe_code)]

mod area;
mod arrange;
mod assemble;
mod body;
mod changed;
mod copy;
#[cfg(test)]
mod count_model;
mod counted;
mod debugger;
mod encode;
mod enter;
#[cfg(test)]
mod fold_model;
mod generate;
pub mod immediates;
mod indices;
mod install;
mod jump;
mod kept;
#[cfg(test)]
mod kept_model;
mod lanes;
mod layout;
mod libunwind;
mod listing;
mod move_sites;
mod move_threads;
mod moving;
mod patches;
mod plan;
mod procedures;
pub mod process;
mod ready;
mod record;
mod relocate;
pub mod remains;
mod reserved;
mod returns;
mod rules;
mod semaphores;
mod site;
mod snippet;
mod stacks;
mod steady;
mod stops;
mod store;
mod taken;
mod unchanged;
mod unwind;
mod versions;
mod why;
mod withdraw;

pub use arrange::{Alignment, ArrangedBlock, ArrangedCall, ArrangedTable, Arrangement, Callee};
pub use body::{Body, Part};
pub use changed::Changed;
pub use counted::{ENTRIES, EXITS, Keyed, TIME};
pub use install::{Installed, StopTimes};
pub use jump::JUMP;
pub use kept::KeptValues;
pub use lanes::{AHEAD, Lanes};
pub use libunwind::{DynamicList, WALKERS, Walker};
pub use move_sites::Moved;
pub use moving::{DISPLACEMENT, DirectCall};
pub use plan::Plan;
pub use procedures::Procedures;
pub use relocate::Displaced;
pub use site::{At, Site, Springboard};
pub use snippet::{
    Action, Base, Clock, DURATIONS, Fold, Formula, Item, KEYS, Kept, Key, LOCALS, Operator,
    Relation, Step, TIMER, Test, Text, Unary, Value, Width, text,
};
pub use stacks::{
    FRAMES, Position, Row, Stacks, UNKNOWN_FRAME, Walked, WalkedFrame, walk, word_of,
};
pub use versions::{ConstantCall, Goal, Version, VersionBlock, VersionInstruction, Versions};
pub use why::Why;
pub use withdraw::Withdrawn;
