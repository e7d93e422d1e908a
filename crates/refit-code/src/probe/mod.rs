//! Probes: what people ask to see of a program, turned into sites, and what they count into tables.
//!
//! `spec` understands what is asked for, `modules` says which files the program runs code of, `sites` finds the places in
//! them and what may be changed there, `body` whole functions that can be copied, `watch` puts all of it in and reads it.

pub mod body;
pub mod modules;
pub mod operand;
pub mod reading;
pub mod sites;
pub mod spec;
pub mod steps;
pub mod watch;
