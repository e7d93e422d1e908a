//! Probes: what people ask to see of a program, turned into sites, and what they count into tables.
//!
//! `spec` understands what is asked for, `modules` says which files the program runs code of, `sites` finds the places in
//! them and what may be changed there, `body` whole functions that can be copied, `watch` puts all of it in and reads it. `cover` asks
//! for every basic block which of them are reached, and `drcov` writes that for other tools. `drill` asks where the time in a
//! function goes, with `files` to say whom it called.

#![forbid(unsafe_code)]

pub mod body;
mod code;
pub mod cover;
pub mod drcov;
pub mod drill;
mod files;
pub mod modules;
pub mod operand;
pub mod reading;
mod silent;
pub mod sites;
pub mod spec;
pub mod steps;
pub mod watch;
