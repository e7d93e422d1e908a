//! The errors of a thread's own request to run elsewhere (`include/refit_move.h`).

use crate::error::MoveError;

/// There is no such node.
pub(crate) const NO_INSTANCE: i64 = libc::ENOENT as i64;
/// The program cannot move.
pub(crate) const NOT_MOVABLE: i64 = libc::EPERM as i64;
/// The thread cannot move now.
pub(crate) const NOT_NOW: i64 = libc::EBUSY as i64;

/// Returns the error number of an error.
pub(crate) fn number(error: &MoveError) -> i64 {
    match error {
        MoveError::NoInstance(_) => NO_INSTANCE,
        MoveError::NotMovable(_) => NOT_MOVABLE,
        _ => NOT_NOW,
    }
}
