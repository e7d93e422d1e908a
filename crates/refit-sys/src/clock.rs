//! A clock for frequent measurements of short times: the processor's cycle counter where it runs at
//! a constant rate, else the kernel's clock.
//!
//! `Instant::now` costs 20 ns and more; reading the counter costs a third of that. The counter's
//! unit is calibrated by comparing both clocks over the time since [`prepare`].

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The shortest time over which the two clocks are compared, long enough for an error of some ten
/// nanoseconds to be negligible.
const COMPARED: Duration = Duration::from_millis(2);

struct Clock {
    began: Instant,
    /// The counter and the time since `began`, read together; `None` if the counter is not used.
    first: Option<(u64, Duration)>,
}

static CLOCK: OnceLock<Clock> = OnceLock::new();

fn clock() -> &'static Clock {
    CLOCK.get_or_init(|| {
        let began = Instant::now();
        Clock { began, first: even().then(|| both(began)) }
    })
}

/// Begins to compare the clocks. The earlier this is called, the less [`nanos`] has to wait.
pub fn prepare() {
    clock();
}

/// Returns the current time in the unit of [`nanos`]. Only differences are meaningful.
#[inline]
pub fn ticks() -> u64 {
    let clock = clock();
    match clock.first {
        Some(_) => counter(),
        None => nanos_of(clock.began.elapsed()),
    }
}

/// Converts a difference of [`ticks`] to nanoseconds.
pub fn nanos(ticks: u64) -> u64 {
    let clock = clock();
    let Some((first, since)) = clock.first else { return ticks };
    std::thread::sleep(COMPARED.saturating_sub(clock.began.elapsed()));
    let (now, elapsed) = both(clock.began);
    let counted = u128::from(now.wrapping_sub(first)).max(1);
    let elapsed = u128::from(nanos_of(elapsed.saturating_sub(since)));
    u64::try_from(u128::from(ticks) * elapsed / counted).unwrap_or(u64::MAX)
}

/// Reads the counter and the kernel's clock at the same time. The thread can be interrupted between
/// the two reads, so the closest of several pairs counts.
fn both(began: Instant) -> (u64, Duration) {
    const TRIES: usize = 16;
    let pair = |_| {
        let before = began.elapsed();
        let counter = counter();
        let after = began.elapsed();
        (after - before, (counter, before + (after - before) / 2))
    };
    (0..TRIES).map(pair).min().map_or((0, Duration::ZERO), |(_, pair)| pair)
}

fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the processor's cycle counter; 0 where there is none. Meaningful only if [`even`]
/// returns true.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; where the kernel forbids it, `even`
    // returned false.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns the processor's cycle counter; 0 where there is none. Meaningful only if [`even`]
/// returns true.
#[cfg(not(target_arch = "x86_64"))]
pub fn counter() -> u64 {
    0
}

/// Returns the time of a kernel clock in nanoseconds. Needs no system call where the vDSO offers
/// the clock.
pub fn kernel(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    // None of the clocks asked for here was before its epoch.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds, which is what the kernel's own tracers show.
pub fn monotonic() -> u64 {
    kernel(rustix::time::ClockId::Monotonic)
}

/// Returns the processor time of a process in nanoseconds, with that of threads that have ended.
/// The kernel updates the time of a thread when it leaves its processor, and some milliseconds late
/// while it runs.
///
/// # Errors
/// The error of clock_gettime(3): there is no such process.
pub fn of_process(id: u32) -> io::Result<u64> {
    // As clock_getcpuclockid(3) encodes it: a process, and the time of the scheduler.
    let clock = (!id.cast_signed() << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `time`, which lives until the call has returned.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// Returns the time in nanoseconds since 1970.
pub fn wall() -> u64 {
    kernel(rustix::time::ClockId::Realtime)
}

/// Returns `CLOCK_MONOTONIC_RAW` in nanoseconds: time that is neither stepped nor slewed.
pub fn raw() -> u64 {
    kernel(rustix::time::ClockId::MonotonicRaw)
}

/// Returns whether the counter runs at the same constant rate on all processors; the kernel uses it
/// for its own clock then.
pub fn even() -> bool {
    const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    const FLAGS: [&str; 2] = ["constant_tsc", "nonstop_tsc"];
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let source = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &&str| flags.split_whitespace().any(|f| f == *flag);
    source.trim() == "tsc" || FLAGS.iter().all(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_time_while_it_works() {
        let id = std::process::id();
        let before = of_process(id).expect("it is there");
        // The kernel updates the time of a thread that leaves the processor.
        while of_process(id).expect("it is there") < before + 1_000_000 {
            std::thread::yield_now();
        }
        assert!(of_process(u32::MAX >> 4).is_err());
    }

    #[test]
    fn ticks_in_nanoseconds_are_the_time_that_passed() {
        // The measured interval lies between the two, however long the thread was interrupted.
        let outside = Instant::now();
        let first = ticks();
        let inside = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let at_least = inside.elapsed();
        let last = ticks();
        let at_most = outside.elapsed();
        let measured = Duration::from_nanos(nanos(last - first));
        assert!(measured >= at_least / 100 * 99, "{measured:?} of {at_least:?}");
        assert!(measured <= at_most * 101 / 100, "{measured:?} of {at_most:?}");
    }
}
