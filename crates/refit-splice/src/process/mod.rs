//! A running program as splicing sees it: its memory, its mappings, its stopped threads, and system
//! calls made in it.
//!
//! Everything is done from outside. Programs that cannot be changed are refused before anything is
//! touched ([`Program::open`]). Nothing here knows of sites or patch areas.

mod borrow;
mod call;
mod complete;
pub(crate) mod contexts;
mod find_slots;
mod held;
mod hold;
mod lender;
pub(crate) mod own_memory;
mod pass;
mod program;
mod refusal;
pub(crate) mod search_before;
pub(crate) mod searched;
pub(crate) mod signal_frames;
mod slots;
mod still;
mod stop_log;
mod tasks;

pub use call::Call;
pub(crate) use call::clean;
pub use hold::STOP_TIMEOUT;
pub use lender::{Lender, Loan};
pub use program::Program;
pub use refusal::Refusal;
pub use still::Still;
pub(crate) use still::general;
pub use stop_log::Stops;
