//! Why events of this process cannot be recorded.

use thiserror::Error;

/// Why [`start`](crate::start) or [`Filter::parse`](crate::Filter::parse) has failed.
#[derive(Debug, Error)]
pub enum LogError {
    /// This text is not a filter.
    #[error("`{0}` is not a filter; give levels as in `info` or `warn,refit_migrate=debug`")]
    Filter(String),
    /// The process has a `tracing` subscriber already.
    #[error("this process has another log already")]
    Taken,
}
