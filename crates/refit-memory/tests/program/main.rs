//! Tests of the objects that serve the memory of unmodified programs: one suite for every
//! implementation, and a pager of this process.

mod budget;
mod common;
mod hat;
mod memory;
mod model;
mod order;
mod pager;
mod races;
