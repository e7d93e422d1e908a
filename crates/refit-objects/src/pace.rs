//! Waiting for a moment while a cancellation may arrive.

use std::time::{Duration, Instant};

/// Sleeps until `then` (`None`: forever), and calls `over` every `look`. Returns false as soon as
/// `over` returns true, even if `then` has passed.
pub fn sleep_until(then: Option<Instant>, look: Duration, over: &dyn Fn() -> bool) -> bool {
    loop {
        if over() {
            return false;
        }
        let left = then.map_or(look, |then| then.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(look));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const LOOK: Duration = Duration::from_millis(1);

    #[test]
    fn it_waits_for_the_moment_and_no_longer_than_it_is_wanted() {
        let then = Instant::now() + 3 * LOOK;
        assert!(sleep_until(Some(then), LOOK, &|| false));
        assert!(Instant::now() >= then);
        let looks = Cell::new(0);
        let over = || looks.replace(looks.get() + 1) == 3;
        assert!(!sleep_until(None, LOOK, &over), "it would be for ever");
        assert!(!sleep_until(Some(then), LOOK, &|| true), "the moment has come, but too late");
    }
}
