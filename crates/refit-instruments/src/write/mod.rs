//! The recorder, which reads records from a session's rings and writes them to a trace.
//!
//! Its *mode* determines what happens when rings fill; writers know only whether to wait. See
//! [`Mode`].

mod cost;
mod drain;
#[cfg(test)]
mod interleavings;
mod output;
mod recorder;
mod scheduler;
mod source;
mod switches;

pub use cost::measure as measure_costs;
pub use output::{OutputError, Rotation, part_path};
pub use recorder::{Mode, Options, Recorder, Summary};
pub use scheduler::{Scheduler, Unwind, Watched};
pub use source::{Source, SourceBatch};
