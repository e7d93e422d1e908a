//! The error of an export or import.

/// The reason that state could not be exported or imported; the change is rolled back with this
/// reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransferError(pub String);
