//! The last events of the process.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::record::Record;

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
static RING: Mutex<Ring> = Mutex::new(Ring { next: 0, records: VecDeque::new() });

struct Ring {
    /// The number of events so far.
    next: u64,
    records: VecDeque<Record>,
}

fn ring() -> MutexGuard<'static, Ring> {
    // Each change is one operation on the queue.
    RING.lock()
}

/// Keeps an event.
pub(crate) fn push(record: Record) {
    let mut ring = ring();
    ring.next += 1;
    let oldest = if ring.records.len() == CAPACITY { ring.records.pop_front() } else { None };
    ring.records.push_back(record);
    drop(ring);
    // Freed outside of the lock.
    drop(oldest);
}

/// Returns all that are kept, each with the number of events before it.
pub(crate) fn recent() -> Recent {
    let ring = ring();
    let (records, dropped) = (ring.records.clone(), ring.next - ring.records.len() as u64);
    drop(ring);
    let events = (dropped..).zip(&records).map(|(number, record)| record.event(number));
    Recent { dropped, events: events.collect() }
}

/// Held by tests that fill the ring, or look for their own events in it.
#[cfg(test)]
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn the_last_are_kept_in_order_and_the_others_counted() {
        let _alone = ALONE.lock();
        let more = 5;
        let layer = crate::layer::Recorder::new(crate::Filter::default(), crate::Format::Text);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..CAPACITY + more).for_each(|number| tracing::debug!(number, "counted"));
        });
        let recent = recent();
        assert_eq!(recent.events.len(), CAPACITY);
        assert!(recent.dropped >= more as u64);
        let numbers = recent.events.windows(2).all(|two| two[1].number == two[0].number + 1);
        assert!(numbers, "each has the number after the one before");
        assert_eq!(recent.events[0].number, recent.dropped);
    }
}
