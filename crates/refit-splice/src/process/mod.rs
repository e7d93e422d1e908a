//! A running program as splicing sees it: its memory, its mappings, its threads held still, system calls made in it.
//!
//! Everything is done from outside. What cannot be done is refused before anything is touched ([`Program::open`]).

mod call;
mod complete;
mod find_slots;
mod hold;
mod pass;
mod program;
mod refusal;
pub(crate) mod signal_frames;
mod slots;
mod still;
mod tasks;

pub use call::Call;
pub(crate) use call::clean;
pub use program::Program;
pub use refusal::Refusal;
pub use still::Still;
