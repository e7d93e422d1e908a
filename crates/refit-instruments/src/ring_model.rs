//! Models of the ring under loom, with two writers, a drainer and a close, with a writer that never
//! completes a record, and with messages of two slots.

use super::*;
use crate::messages::{Slots, take, write};
use loom::thread;

/// A ring of two slots that exists for one run of the model.
struct Area {
    reserved: AtomicU64,
    limit: AtomicU64,
    lost: AtomicU64,
    clock: AtomicU64,
    slots: Vec<Slot>,
}

impl Area {
    fn new() -> loom::sync::Arc<Self> {
        loom::sync::Arc::new(Self {
            reserved: AtomicU64::new(0),
            limit: AtomicU64::new(2),
            lost: AtomicU64::new(0),
            clock: AtomicU64::new(1),
            slots: (0..2).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
        })
    }

    fn ring(&self) -> Ring<'_> {
        let Self { reserved, limit, lost, slots, .. } = self;
        Ring { reserved, limit, lost, slots }
    }

    /// Writes a record whose words all contain `mark`.
    fn write(&self, mark: u64) -> Result<(), ReserveError> {
        let clock = || self.clock.fetch_add(1, Ordering::AcqRel);
        self.ring().write(clock, mark, [mark, mark])
    }
}

/// Reads the complete records and gives them back. Returns their marks.
fn drain(ring: &Ring, from: &mut u64, last: &mut u64) -> Vec<u64> {
    let mut marks = Vec::new();
    // Not only up to the count: loom's loads of it always return the first value here.
    while let Ok([time, a, b, c]) = ring.read(*from) {
        assert!(a != 0 && a == b && b == c, "torn: {a} {b} {c}");
        assert!(time > *last, "{time} after {last}");
        *last = time;
        marks.push(a);
        ring.give_back(*from, *from + 1);
        *from += 1;
    }
    marks
}

#[test]
fn every_record_is_whole_in_order_and_there_once_while_a_drainer_gives_slots_back() {
    loom::model(|| {
        let area = Area::new();
        let writers = [1, 2].map(|mark| {
            let area = area.clone();
            thread::spawn(move || (0..2).filter(|_| area.write(mark).is_ok()).count())
        });
        let (mut from, mut last) = (0, 0);
        let mut marks = drain(&area.ring(), &mut from, &mut last);
        let written: usize = writers.map(|w| w.join().unwrap()).iter().sum();
        marks.extend(drain(&area.ring(), &mut from, &mut last));
        assert_eq!(marks.len(), written);
    });
}

#[test]
fn nothing_is_taken_from_a_closed_ring_and_all_before_is_waited_for() {
    loom::model(|| {
        let area = Area::new();
        let writer = {
            let area = area.clone();
            thread::spawn(move || area.write(1))
        };
        let taken = area.ring().close();
        let refused = area.write(2);
        assert_eq!(refused, Err(ReserveError::Closed));
        let result = writer.join().unwrap();
        assert_eq!(taken, u64::from(result.is_ok()));
        let (mut from, mut last) = (0, 0);
        assert_eq!(drain(&area.ring(), &mut from, &mut last).len() as u64, taken);
        area.ring().open();
        assert_eq!(area.write(3), Ok(()));
    });
}

#[test]
fn a_record_that_is_never_ended_holds_up_nobody_but_the_drainer() {
    loom::model(|| {
        let area = Area::new();
        let dead = {
            let area = area.clone();
            thread::spawn(move || area.ring().reserve(1, || 1).is_ok())
        };
        let result = area.write(2);
        assert!(dead.join().unwrap() && result.is_ok());
        let ring = area.ring();
        let torn = (0..2).filter(|number| ring.read(*number) == Err(0)).count();
        assert_eq!(torn, 1);
        ring.give_back(0, 2);
        assert_eq!(area.write(3), Ok(()));
    });
}

#[test]
fn who_sees_the_time_of_a_record_sees_the_record() {
    loom::model(|| {
        let area = Area::new();
        let writer = {
            let area = area.clone();
            thread::spawn(move || area.write(1))
        };
        if let Ok([_, a, b, c]) = area.ring().read(0) {
            assert_eq!([a, b, c], [1; 3]);
        }
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn a_message_is_whole_and_there_once_beside_another_writer() {
    loom::model(|| {
        let area = Area::new();
        let writers = [1, 2].map(|mark| {
            let area = area.clone();
            thread::spawn(move || {
                let clock = || 2 * area.clock.fetch_add(1, Ordering::AcqRel);
                write(&area.ring(), clock, mark, &[mark; 5]).is_ok()
            })
        });
        let (mut from, mut messages) = (0, Vec::new());
        let mut read = || {
            let ring = area.ring();
            // As if both had reserved their slots already.
            let reserved = from + 2;
            while let Slots::Message { slots, what, words, .. } =
                take(&ring, from, reserved, |_| Some(5))
            {
                assert_eq!((what > 0, words), (true, vec![u64::from(what); 5]));
                ring.give_back(from, from + slots);
                from += slots;
                messages.push(what);
            }
        };
        read();
        let written = writers.map(|writer| writer.join().unwrap());
        read();
        messages.sort_unstable();
        let marks = [1, 2].into_iter().zip(written).filter(|(_, written)| *written);
        assert_eq!(messages, marks.map(|(mark, _)| mark).collect::<Vec<_>>());
    });
}
