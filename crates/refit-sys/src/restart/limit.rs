//! Time limits among the arguments of calls that are made again. The repeated call waits only for
//! the time that remains.

use std::time::Duration;

use super::registers::{ERESTARTNOHAND, arguments};
use super::table::{Limit, Restart, of};
use crate::trace::Registers;

/// A call that waits for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedCall {
    /// The whole time.
    pub whole: Duration,
    /// The value that the call returns when the time is over.
    pub late: i64,
    limit: Limit,
}

impl LimitedCall {
    /// Returns the arguments with which the call waits for `remains`. `arguments` are those of the
    /// program; `place` is an address in the program at which the caller puts the [`timespec`] of
    /// that time.
    ///
    /// [`timespec`]: Self::timespec
    pub fn shortened(&self, arguments: &[u64; 6], remains: Duration, place: u64) -> [u64; 6] {
        let mut shortened = *arguments;
        match self.limit {
            Limit::None => {}
            Limit::Milliseconds(argument) => {
                // Rounded up, so that a wait never ends too soon.
                let milliseconds = remains.as_nanos().div_ceil(1_000_000);
                let most = i32::MAX.cast_unsigned();
                let milliseconds = u32::try_from(milliseconds).map_or(most, |some| some.min(most));
                shortened[argument] = milliseconds.into();
            }
            Limit::Timespec { argument, .. } => shortened[argument] = place,
        }
        shortened
    }

    /// Returns whether the limit is a `struct timespec` in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.limit, Limit::Timespec { .. })
    }

    /// Returns a duration as the words of a `struct timespec`.
    pub fn timespec(remains: Duration) -> [u64; 2] {
        [remains.as_secs(), remains.subsec_nanos().into()]
    }
}

/// Returns the limited call that a stop has ended and that its thread has to make again; `None` if
/// the thread is in no such call. `word` reads eight bytes of the thread's memory.
///
/// The thread's result is `EINTR`, or already what [`redo`](super::redo) makes of that.
pub fn limit(registers: &Registers, word: impl Fn(u64) -> Option<u64>) -> Option<LimitedCall> {
    let answer = registers.rax.cast_signed();
    if answer != -i64::from(libc::EINTR) && answer != -ERESTARTNOHAND {
        return None;
    }
    let Some(Restart::Again(limit)) = of(registers.orig_rax) else { return None };
    let arguments = arguments(registers);
    let (whole, late) = match limit {
        Limit::None => return None,
        Limit::Milliseconds(argument) => {
            let milliseconds = (arguments[argument] as u32).cast_signed();
            (Duration::from_millis(u64::try_from(milliseconds).ok()?), 0)
        }
        Limit::Timespec { argument, late } => {
            let at = Some(arguments[argument]).filter(|at| *at != 0)?;
            let (seconds, nanoseconds) = (word(at)?, word(at.checked_add(8)?)?);
            // The kernel rejects such a time, so the call does not wait.
            if seconds.cast_signed() < 0 || nanoseconds >= 1_000_000_000 {
                return None;
            }
            (Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds), late)
        }
    };
    Some(LimitedCall { whole, late, limit })
}

#[cfg(test)]
mod tests {
    use super::super::registers::tests::stopped;
    use super::*;

    const REDONE: i64 = -ERESTARTNOHAND;

    #[test]
    fn a_limit_is_where_the_table_says() {
        let of =
            |registers: &Registers| limit(registers, |at| Some(if at == 0x1000 { 7 } else { 5 }));
        let wait = stopped(libc::SYS_epoll_wait, REDONE, [3, 4, 5, 1500, 0, 0]);
        let found = of(&wait).expect("it has one");
        assert_eq!((found.whole, found.late), (Duration::from_millis(1500), 0));
        let short = found.shortened(&arguments(&wait), Duration::from_micros(1001), 0);
        assert_eq!(short, [3, 4, 5, 2, 0, 0], "rounded up");
        let signal = stopped(libc::SYS_rt_sigtimedwait, -4, [3, 0, 0x1000, 8, 0, 0]);
        let found = of(&signal).expect("it has one");
        assert_eq!(found.whole, Duration::new(7, 5));
        assert_eq!((found.late, found.is_in_memory()), (-i64::from(libc::EAGAIN), true));
        let short = found.shortened(&arguments(&signal), Duration::ZERO, 0x2000);
        assert_eq!(short[2], 0x2000);
    }

    #[test]
    fn what_has_no_limit_has_none() {
        let of = |registers: &Registers| limit(registers, |_| Some(u64::MAX));
        assert_eq!(of(&stopped(libc::SYS_epoll_wait, REDONE, [3, 4, 5, u64::MAX, 0, 0])), None);
        assert_eq!(
            of(&stopped(libc::SYS_epoll_wait, 1, [3, 4, 5, 1500, 0, 0])),
            None,
            "it is over"
        );
        assert_eq!(of(&stopped(libc::SYS_epoll_pwait2, REDONE, [3, 4, 5, 0, 0, 0])), None);
        assert_eq!(
            of(&stopped(libc::SYS_epoll_pwait2, REDONE, [3, 4, 5, 8, 0, 0])),
            None,
            "no time"
        );
        assert_eq!(of(&stopped(libc::SYS_read, REDONE, [3, 4, 5, 1500, 0, 0])), None);
    }
}
