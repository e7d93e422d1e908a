//! Records events of refit's own steps.
//!
//! ```no_run
//! use refit_log::{Filter, Format};
//!
//! refit_log::start(Filter::parse("info,refit_migrate=debug")?, Format::Text)?;
//! tracing::info!(process = 4711, "a program is followed");
//! for event in refit_log::recent().events {
//!     println!("{event}");
//! }
//! # Ok::<(), refit_log::LogError>(())
//! ```
//!
//! Code that acts records `tracing` events: each transition, request, message and refusal that a
//! person needs in order to understand a hang, with ids that mean the same on every host (a
//! program's group, a thread, its residency). This crate sends them two ways:
//!
//! - **to standard error**, as far as a [`Filter`] permits, in a [`Format`] for people, programs or
//!   the journal;
//! - **into a ring in memory** ([`recent`]), which keeps the last [`CAPACITY`] events of refit's
//!   own crates from level `DEBUG` up, whatever the filter is. `refit debug-dump` reads it while
//!   the process runs, and a panic writes it to a file.
//!
//! A level that neither wants costs one comparison with a static number. An event that the ring
//! keeps takes less than a microsecond, most of it for formatting its fields, so no event is
//! recorded on a hot path: no system call of a program, no page, no call of an object.

#![forbid(unsafe_code)]

mod error;
mod event;
mod filter;
mod layer;
mod panic;
mod record;
mod ring;

pub use error::LogError;
pub use event::Event;
pub use filter::Filter;
pub use layer::Format;
pub use ring::{CAPACITY, Recent};

use std::io::{self, Write};

use refit_sys::printable;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins to record the events of this process, and to write the ring to a file when a thread
/// panics.
///
/// # Errors
/// [`LogError::Taken`]: it was called before.
pub fn start(filter: Filter, format: Format) -> Result<(), LogError> {
    let layer = layer::Recorder::new(filter, format);
    tracing_subscriber::registry().with(layer).try_init().map_err(|_| LogError::Taken)?;
    panic::write_ring_on_panic();
    Ok(())
}

/// Writes a line for the user to standard error, whatever the filter is. The ring keeps it too.
pub fn say(text: &str) {
    // Without a reader the line is lost there.
    let _ = writeln!(io::stderr(), "refit: {}", printable::line(text));
    tracing::warn!(target: layer::SAID, "{text}");
}

/// Returns the last events of this process, oldest first.
pub fn recent() -> Recent {
    ring::recent()
}
