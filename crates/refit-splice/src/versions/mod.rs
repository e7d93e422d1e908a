//! Versions of functions that run for one value of a register.
//!
//! At the entry of the function, a jump leads to a *dispatch* that compares the register with the
//! value of each version, and else runs the displaced instructions and jumps back:
//!
//! ```text
//! entry: jmp dispatch      dispatch: cmp rdi, 24
//!        …                           jne other
//!                                    …              version for 24
//!                          other:    push rbp       displaced
//!                                    jmp back
//! ```
//!
//! A call with a constant argument leads to the version of that value, past the tests.
//!
//! The instructions of a version are the caller's. Each stands for an instruction of the function:
//! the unwinding rules there hold at it too. A version makes its calls itself, as the copies of
//! [`arrange`](crate::arrange) do, so return addresses lead to it.
//!
//! *Which threads can leave a version.* A position is *exact* if every register and flag that the
//! function may still read at some address has the value that it would have had there. A thread at
//! an exact position can continue in the function; a thread at another one runs until it has left
//! the version, which stays mapped until then. The instruction behind a call is exact: the caller
//! has to make it so, since return addresses are taken back (`returns`).
//!
//! Modules, lowest first: `version`, what is asked for; `dispatch`, the tests at the entry;
//! `make`, the code and the changes.

mod dispatch;
mod make;
mod version;

pub(crate) use make::{make, most_bytes, most_records};
pub(crate) use version::ReadyVersions;
pub use version::{ConstantCall, Goal, Version, VersionBlock, VersionInstruction, Versions};
