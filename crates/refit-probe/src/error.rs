//! Why nothing is watched.

use std::path::PathBuf;

use refit_analysis::OpenError;
use refit_instruments::session::SessionError;
use refit_splice::Why;
use refit_splice::process::Refusal;

/// Why nothing is watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program cannot be changed.
    #[error(transparent)]
    Splice(#[from] Why),
    /// A file of it cannot be analysed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No file of the program has this name.
    #[error("the program has mapped no code of a file called {wanted}; it has mapped: {}", .there.join(", "))]
    NoModule {
        /// Name that was asked for.
        wanted: String,
        /// Names of its files.
        there: Vec<String>,
    },
    /// No function has this name.
    #[error("no function is called {wanted}{}", nearest(.near))]
    NoFunction {
        /// Name that was asked for.
        wanted: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// Several functions have this name, where one is needed.
    #[error("several functions are called {wanted}: {}", .there.join(", "))]
    Several {
        /// Name that was asked for.
        wanted: String,
        /// Some of them, as they can be named.
        there: Vec<String>,
    },
    /// The file has been replaced since the program was started.
    #[error(
        "{path} is no longer the file that the program runs; restart the program, or restore the old file"
    )]
    Replaced {
        /// Path of the file.
        path: PathBuf,
    },
    /// There are no buffers for messages.
    #[error("there is no memory for messages: {0}")]
    Messages(#[source] SessionError),
    /// Messages and events go to different buffers.
    #[error("printf and records (event, span) cannot be combined")]
    Mixed,
    /// No static tracepoint has this name.
    #[error("no static tracepoint is called {wanted}{}", listed(.there))]
    NoTracepoint {
        /// The name, or pattern.
        wanted: String,
        /// The names that there are.
        there: Vec<String>,
    },
    /// A map is used in ways that do not fit each other.
    #[error("cannot use the map @{name}: {why}")]
    Map {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// Events cannot be recorded.
    #[error("{name} cannot be recorded: {why}")]
    NoEvent {
        /// The place.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// Every place was refused.
    #[error("nothing can be watched: {first}")]
    Nothing {
        /// The first reason.
        first: String,
    },
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Splice(refusal.into())
    }
}

fn nearest(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; there is: {}", near.join(", ")) }
}

fn listed(there: &[String]) -> String {
    match there {
        [] => "; the file has none".to_owned(),
        [first @ .., _] if first.len() >= TOLD => {
            format!("; there is: {}, …", first[..TOLD].join(", "))
        }
        all => format!("; there is: {}", all.join(", ")),
    }
}

/// The most tracepoints that an error lists.
const TOLD: usize = 12;
