//! The last events of the process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::event::Event;

/// The number of events that are kept.
pub const CAPACITY: usize = 10_000;

/// The last events of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// The number of older events that were dropped.
    pub dropped: u64,
    /// The kept events, oldest first.
    pub events: Vec<Event>,
}

/// Protects the events. Held for one operation on the queue; nothing is recorded meanwhile, so a
/// thread never waits for itself.
static RING: Mutex<Ring> = Mutex::new(Ring { next: 0, events: VecDeque::new() });

struct Ring {
    /// The number of events so far.
    next: u64,
    events: VecDeque<Event>,
}

fn ring() -> MutexGuard<'static, Ring> {
    // Each change is one operation on the queue.
    RING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an event, and gives it its number.
pub(crate) fn push(mut event: Event) {
    let mut ring = ring();
    event.number = ring.next;
    ring.next += 1;
    let oldest = if ring.events.len() == CAPACITY { ring.events.pop_front() } else { None };
    ring.events.push_back(event);
    drop(ring);
    // Freed outside of the lock.
    drop(oldest);
}

/// Returns the kept events.
pub(crate) fn recent() -> Recent {
    let ring = ring();
    let events: Vec<Event> = ring.events.iter().cloned().collect();
    Recent { dropped: ring.next - events.len() as u64, events }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: String) -> Event {
        Event {
            number: 0,
            time_ns: 0,
            level: "DEBUG".into(),
            target: "refit_log".into(),
            thread: String::new(),
            spans: Vec::new(),
            message,
            fields: Vec::new(),
        }
    }

    #[test]
    fn the_last_are_kept_in_order_and_the_others_counted() {
        let more = 5;
        for number in 0..CAPACITY + more {
            push(event(number.to_string()));
        }
        let recent = recent();
        assert_eq!(recent.events.len(), CAPACITY);
        assert!(recent.dropped >= more as u64);
        let numbers = recent.events.windows(2).all(|two| two[1].number == two[0].number + 1);
        assert!(numbers, "each has the number after the one before");
        assert_eq!(recent.events[0].number, recent.dropped);
    }
}
