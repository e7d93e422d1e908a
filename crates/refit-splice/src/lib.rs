//! Code spliced into a running program, and taken out again.
//!
//! ## How it works
//!
//! At a *site*, the first instructions are replaced by a jump into the *patch area*, memory of refit's in the program
//! near its code. There stand the *snippet* (what is to be done), the displaced instructions, and a jump back:
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
//! The snippet takes registers that hold nothing any more, and saves others first. It counts into memory that refit has
//! mapped too, so reading costs the program nothing.
//!
//! A function with a site that has no room is copied as a whole (`layout` says what stays of the original and what changes, `copy` writes
//! the copy): snippets stand between its instructions. Calls, system calls and traps run at their old places.
//!
//! ## Why a thread is never lost
//!
//! Bytes change only while no thread runs ([`process::still`](crate::process)). At that time
//! 1. a thread whose program counter is *inside* the bytes that change, behind the first instruction, is moved to the copy of the same instruction in the
//!    patch area; one at the first instruction stays: it finds the jump, as any caller does;
//! 2. the same holds for program counters that the kernel has put onto stacks for handlers of signals to return to
//!    (`frames`);
//! 3. no return address leads inside: a call ends its basic block, so what follows it is a leader, and a site's bytes hold no
//!    leader but its first ([`Site::room`]). A displaced call pushes the address that it always pushed: nothing on any stack
//!    ever tells of the patch area, and unwinding works as before.
//!
//! A program that switches threads by itself has program counters in memory of its own; they are looked for (`contexts`).
//!
//! Of a copied function, every instruction but those that stay and those that become a jump moves the same way, to the snippet before its
//! copy; return addresses lead to places that become jumps, or that stay.
//!
//! Taking out is the same in the other direction: threads in displaced instructions go back to the originals, threads in a
//! snippet are let run step by step until they are through it. The patch area is given back when no thread and no
//! signal frame can be in it.
//!
//! ## What is left if refit is killed
//!
//! The program goes on, counting. Each change is written down in the patch area before it is made, so
//! [`remains::repair`] takes out what somebody else has left.

#![forbid(unsafe_code)]

mod area;
mod body;
mod contexts;
mod copy;
mod encode;
mod generate;
mod install;
mod jump;
mod layout;
mod move_threads;
mod patches;
mod plan;
pub mod process;
mod record;
mod relocate;
pub mod remains;
mod site;
mod snippet;
mod steady;
mod taken;
mod why;
mod withdraw;

pub use body::{Body, Part};
pub use install::{ENTRIES, EXITS, Installed, Keyed, Stood, TIME};
pub use plan::Plan;
pub use relocate::Displaced;
pub use site::{At, Site, Springboard};
pub use snippet::{
    Action, Base, Clock, DURATIONS, KEYS, Relation, Step, TIMER, Test, Value, Width,
};
pub use why::Why;
pub use withdraw::Withdrawn;
