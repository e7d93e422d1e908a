//! Types and constants that a script declares before its probes, as C and bpftrace do: `struct`,
//! `union`, `enum`, `typedef` and `#define`.
//!
//! `parse` reads them, `layout` places members as the System V ABI does. A type that a script
//! defines is meant wherever its name is used, whatever the debug information of a file says.

mod constant;
mod declared;
mod directive;
mod layout;
mod measure;
mod parse;
#[cfg(test)]
mod tests;
mod tokens;
mod words;

pub use declared::Declarations;
pub(crate) use declared::Type;
pub(crate) use parse::parse;
pub(crate) use tokens::Wrong;
