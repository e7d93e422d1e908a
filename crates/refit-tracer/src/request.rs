//! The requests of threads to refit by `prctl` (`include/refit_move.h` of `refit-migrate`).

use refit_sys::launch;

/// A request of a thread to the instance that it runs at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Run the thread at the instance with this number.
    Move(i32),
    /// Return the number of the instance that the thread runs at.
    Instance,
}

impl Request {
    /// Returns the request that a system call makes, or `None` if it is none.
    pub fn of(number: u64, arguments: &[u64; 6]) -> Option<Self> {
        // The kernel, too, reads only 32 bits of the first argument.
        let asks = number.cast_signed() == libc::SYS_prctl
            && u64::from(arguments[0] as u32) == launch::REQUEST;
        match arguments[1] {
            launch::MOVE if asks => Some(Self::Move((arguments[2] as u32).cast_signed())),
            launch::INSTANCE if asks => Some(Self::Instance),
            _ => None,
        }
    }

    /// Returns the answer to a thread that runs at instance `at`, or `None` if the thread has to
    /// move first.
    pub fn answer(self, at: u16) -> Option<u64> {
        match self {
            Self::Move(to) => (to == i32::from(at)).then_some(0),
            Self::Instance => Some(at.into()),
        }
    }
}

/// The request of a thread to run at an instance. The thread is stopped before the call by which it
/// asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadMoveRequest {
    /// The thread that asks.
    pub thread: u32,
    /// The instance that it asks for, which need not exist.
    pub to: i32,
    /// The address of the call.
    pub(crate) at: u64,
    /// Distinguishes all requests of a supervisor's threads.
    pub(crate) number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_distinguished_from_other_calls() {
        let prctl = libc::SYS_prctl.cast_unsigned();
        let asks = launch::REQUEST;
        let of = |first, second, third| Request::of(prctl, &[first, second, third, 0, 0, 0]);
        assert_eq!(of(asks, 1, 3), Some(Request::Move(3)));
        // A C program passes this for -1, and bits above an `int`.
        assert_eq!(of(asks, 1, u64::MAX), Some(Request::Move(-1)));
        assert_eq!(of(asks | 1 << 32, 1, 1 << 32), Some(Request::Move(0)));
        assert_eq!(of(asks, 2, 9), Some(Request::Instance));
        assert_eq!((of(asks, 0, 0), of(asks, 3, 0), of(asks + 1, 1, 0)), (None, None, None));
        assert_eq!(Request::of(prctl + 1, &[asks, 1, 0, 0, 0, 0]), None);
        assert_eq!((Request::Move(3).answer(3), Request::Move(3).answer(0)), (Some(0), None));
        assert_eq!(
            (Request::Move(-1).answer(u16::MAX), Request::Instance.answer(7)),
            (None, Some(7))
        );
    }
}
