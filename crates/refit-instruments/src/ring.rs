//! One processor's ring of records: reserved without a lock, drained by one.
//!
//! ```text
//!            drained            reserved                 limit
//!   ─────────────┼──────────────────┼──────────────────────┼────────► records, counted from the begin on
//!    given back    written, or being   free: all times are 0
//! ```
//!
//! `reserved` counts what writers have taken; `limit` is how far they may. Its top bit says that the ring is closed, and
//! a closed ring's count is beyond any limit, so that a writer asks one question: is `reserved` below `limit`?
//!
//! ## Why it is right
//!
//! *Nobody shares a slot.* A writer takes record `r` by a compare-exchange of `reserved` from `r` to `r + 1`. The count
//! never goes back (opening and closing change the top bit only), so success means that `r` was the count all the time
//! since it was loaded, and that no other writer has it. `r < limit` was seen before; `limit` only grows, so it holds.
//! The ring has `capacity` slots and `limit ≤ drained + capacity`: the slot's last record was given back.
//!
//! *A slot with a time is whole.* The drainer zeroes slots and then raises `limit` (Release); the writer loads `limit`
//! (Acquire) before it touches the slot, so its stores come after the zeroes. It stores the time last (Release); who
//! loads a time that is not 0 (Acquire) sees the rest.
//!
//! *Times do not run backwards* but by some hundred cycles: the clock is read between the load of `reserved` and the
//! exchange that proves it current, so whoever has an earlier record had read its clock before. A processor may read its
//! cycle counter ahead of a load that waits for another processor's cache, though (seen: 222 cycles); that takes two
//! writers that are on different processors at this moment, one of which was moved after it had looked where it is. A
//! fence before the counter would cost every record 6 ns; readers sort by time anyway.
//!
//! *Closing is complete.* After [`Ring::close`] has set the bit no compare-exchange succeeds, so the count it returned is
//! final until [`Ring::open`]; the drainer waits for the times of those.
//!
//! *A writer that dies or stops within* leaves a slot whose time is 0. Only the drainer waits for it, and can give it
//! up: it goes on as if the slot were written. A writer that comes back after that (stopped for long) stores an old time
//! into a slot that has become another record's: the drainer finds a time that is long before the one before it, and
//! counts the record as torn.
//!
//! A signal handler that interrupts a writer is one more writer: it reserves a slot of its own.

use crate::sync::{AtomicU64, Ordering};

/// A record as writers store it: time; what and thread; two words of payload. See [`Record`](crate::record::Record).
pub(crate) type Slot = [AtomicU64; 4];

/// Top bit of `reserved`: the ring is closed.
const CLOSED: u64 = 1 << 63;

/// One processor's ring, in memory that any number of processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    /// Records taken by writers, and [`CLOSED`].
    pub(crate) reserved: &'a AtomicU64,
    /// How far writers may take.
    pub(crate) limit: &'a AtomicU64,
    /// Records that found no place, ever.
    pub(crate) lost: &'a AtomicU64,
    /// A power of two of them.
    pub(crate) slots: &'a [Slot],
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// All slots are taken.
    Full,
    /// The ring is closed.
    Closed,
}

impl Ring<'_> {
    /// Writes one record; `clock` is read for its time. Never waits: a loop goes round only when another writer of
    /// this processor got ahead.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        clock: impl Fn() -> u64,
        head: u64,
        payload: [u64; 2],
    ) -> Result<(), Refused> {
        let (number, time) = self.reserve(clock)?;
        let slot = &self.slots[number as usize & (self.slots.len() - 1)];
        // The thread, in `head`, comes first: a drainer that waits for the time looks whether the thread is alive.
        slot[1].store(head, Ordering::Relaxed);
        slot[2].store(payload[0], Ordering::Relaxed);
        slot[3].store(payload[1], Ordering::Relaxed);
        // Pairs with the Acquire in `Ring::read`: who sees the time sees the record.
        slot[0].store(time, Ordering::Release);
        Ok(())
    }

    /// Takes the next record's place, and a time at which it was the next.
    #[inline(always)]
    pub(crate) fn reserve(&self, clock: impl Fn() -> u64) -> Result<(u64, u64), Refused> {
        let mut number = self.reserved.load(Ordering::Relaxed);
        loop {
            // Pairs with the Release in `give_back`: below the limit, slots are zeroed.
            if number >= self.limit.load(Ordering::Acquire) {
                return Err(if number & CLOSED == 0 { Refused::Full } else { Refused::Closed });
            }
            let time = clock();
            match self.reserved.compare_exchange_weak(
                number,
                number + 1,
                // Release: the next writer's clock is not read before ours. Acquire: nor ours before the one's before.
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok((number, time)),
                Err(now) => number = now,
            }
        }
    }

    /// How many records writers have taken.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire) & !CLOSED
    }

    /// From now on nobody takes a record; how many were taken.
    pub(crate) fn close(&self) -> u64 {
        self.reserved.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    /// Undoes [`Ring::close`].
    pub(crate) fn open(&self) {
        self.reserved.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Record `number`, which was taken and not given back: its four words, or, if it is not written (yet), what is
    /// in the second one: the thread is known, or that word is 0.
    pub(crate) fn read(&self, number: u64) -> Result<[u64; 4], u64> {
        let slot = &self.slots[number as usize & (self.slots.len() - 1)];
        // Pairs with the Release in `write`.
        let time = slot[0].load(Ordering::Acquire);
        let [_, head, first, second] =
            std::array::from_fn(|i| if i == 0 { 0 } else { slot[i].load(Ordering::Relaxed) });
        if time == 0 { Err(head) } else { Ok([time, head, first, second]) }
    }

    /// Gives all records before `end` back to the writers; `begin` is the `end` of the call before. Only the drainer
    /// calls this.
    pub(crate) fn give_back(&self, begin: u64, end: u64) {
        for number in begin..end {
            let slot = &self.slots[number as usize & (self.slots.len() - 1)];
            slot[1].store(0, Ordering::Relaxed);
            slot[0].store(0, Ordering::Relaxed);
        }
        // Pairs with the Acquire in `reserve`.
        self.limit.store(end + self.slots.len() as u64, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
#[path = "ring_model.rs"]
mod model;
