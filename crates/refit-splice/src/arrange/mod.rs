//! Copies of the hot parts of functions, one behind the other in a given order.
//!
//! Unlike the copy of a single function ([`copy`](crate::copy)), this one
//!
//! - has those blocks only that were asked for. All code of the program stays as it is but for some
//!   jumps to the copy (*gates*); a branch to a block without a copy leads to the original, and
//!   control that is there comes back at the next gate;
//! - makes its calls itself, so return addresses lead to the copy. `returns` takes them back when
//!   the copy is taken out;
//! - leads calls and jumps to code that has a copy to that copy, and jumps by tables of distances
//!   to copies by copies of the tables.
//!
//! *Why the program computes what it computed.* The copy of an instruction has the same effect as
//! the instruction, and is followed by the copy of the instruction that followed, by that
//! instruction itself, or by a jump to either. A gate overwrites instructions that control comes to
//! through the gate only: no branch of the function, and nothing from outside, leads between them
//! (`gates`). What the program could tell apart are addresses of its code: it finds those of the
//! copy as return addresses. So functions to which a return address is more than a place to return
//! to must not be called from a copy; the caller leaves out those functions that call them.
//!
//! Modules, lowest first: `arrangement`, what is asked for; `gates`, where control enters;
//! `arranged`, what is written; `calls`, calls through pointers; `align`, the bytes before copies;
//! `write`, the instructions; `make`, their code.

mod align;
mod arranged;
mod arrangement;
mod calls;
mod gates;
mod make;
mod write;

pub(crate) use arranged::{Arranged, Function};
pub use arrangement::{Alignment, ArrangedBlock, ArrangedCall, ArrangedTable, Arrangement, Callee};
pub(crate) use make::{make, most_bytes, most_records};
