//! Waiting for a word of shared memory to change, and waking the waiters, across processes.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Waits until another thread [`wake`]s the word, or for `limit`. Returns at once if the low half
/// of the word is not `expected`. May also return spuriously, so the caller has to check the word
/// again. Safe in signal handlers.
pub fn wait(word: &AtomicU64, expected: u32, limit: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
    };
    // SAFETY: the low half of a little-endian word is at its own address and is aligned for 32
    // bits; the kernel reads the word and the timeout, both of which outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr().cast::<u32>(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
        );
    }
}

/// Wakes all waiters of this word.
pub fn wake(word: &AtomicU64) {
    // SAFETY: as in `wait`; the kernel only uses the address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr().cast::<u32>(),
            libc::FUTEX_WAKE,
            libc::c_int::MAX,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn who_waits_is_woken_and_who_comes_late_does_not_wait() {
        let word = Arc::new(AtomicU64::new(1 << 32));
        let waiting = std::thread::spawn({
            let word = word.clone();
            move || {
                while word.load(Ordering::Acquire) & 1 == 0 {
                    wait(&word, 0, Duration::from_secs(60));
                }
            }
        });
        word.fetch_or(1, Ordering::Release);
        wake(&word);
        waiting.join().expect("it does not panic");
        wait(&word, 0, Duration::from_secs(600));
    }
}
