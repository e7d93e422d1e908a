//! The ring of records of one processor: many writers reserve slots without a lock, and one drainer
//! reads them.
//!
//! ```text
//!            drained            reserved                 limit
//!   ─────────────┼──────────────────┼──────────────────────┼────────► records, from the first
//!    given back    written, or being   free: all times are 0
//! ```
//!
//! `reserved` counts the records that writers have reserved, and `limit` is the number that they
//! may reserve. The top bit of `reserved` marks the ring as closed. The count of a closed ring
//! exceeds any limit, so that a writer needs only one test: whether `reserved` is below `limit`.
//!
//! # Correctness
//!
//! *No slot is shared.* A writer reserves record `r` by a compare-exchange of `reserved` from `r`
//! to `r + 1`. The count never decreases (opening and closing change only the top bit). So if the
//! exchange succeeds, `r` was the count ever since the writer loaded it, and no other writer has
//! reserved record `r`. The writer has seen `r < limit` before, and this still holds because
//! `limit` only grows. A message ([`messages`](crate::messages)) reserves several records at once,
//! all of which are below the limit. The ring has `capacity` slots and `limit ≤ drained +
//! capacity`, so the slot's previous record has been given back.
//!
//! *A slot with a time is complete.* The drainer zeroes slots and then raises `limit` (Release).
//! The writer loads `limit` (Acquire) before it accesses the slot, so its stores come after the
//! zeroes. It stores the time last (Release). A thread that loads a time that is not 0 (Acquire)
//! sees the rest of the record.
//!
//! *Times do not decrease* by more than some hundred cycles. The clock is read between the load of
//! `reserved` and the exchange that proves it current, so the writer of an earlier record has read
//! its clock before. However, a processor may read its cycle counter ahead of a load that waits for
//! another processor's cache (222 cycles were observed). That requires two writers that are on
//! different processors at this moment, one of which was moved after it had determined its
//! processor. A fence before the counter would cost every record 6 ns, and readers sort by time
//! anyway.
//!
//! *Closing is complete.* After [`Ring::close`] has set the bit no compare-exchange succeeds, so
//! the count that it returned is final until [`Ring::open`]. The drainer waits for the times of all
//! these records.
//!
//! *A writer that dies or stops within a record* leaves a slot whose time is 0. Only the drainer
//! waits for that slot. It can abandon the record, and then continues as if the slot were written.
//! A writer that resumes after that stores an old time into a slot that belongs to another record
//! by now. The drainer recognises this by a time long before the previous one, and counts the
//! record as torn.
//!
//! A signal handler that interrupts a writer is another writer, which reserves a slot of its own.

use crate::sync::{AtomicU64, Ordering};

/// A record as writers store it: time; event and thread; two words of payload. See
/// [`Record`](crate::record::Record).
pub(crate) type Slot = [AtomicU64; 4];

/// The top bit of `reserved`: the ring is closed.
const CLOSED: u64 = 1 << 63;

/// The ring of one processor, in memory that any number of processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'a> {
    /// The number of records that writers have reserved, and [`CLOSED`].
    pub(crate) reserved: &'a AtomicU64,
    /// The number of records that writers may reserve.
    pub(crate) limit: &'a AtomicU64,
    /// The total number of records for which there was no slot.
    pub(crate) lost: &'a AtomicU64,
    /// The slots, whose number is a power of two.
    pub(crate) slots: &'a [Slot],
}

/// Why no slot can be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveError {
    /// All slots are reserved.
    Full,
    /// The ring is closed.
    Closed,
}

impl Ring<'_> {
    /// Writes one record with the time from `clock`. Never blocks: the loop repeats only if another
    /// writer of this processor has made progress.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        clock: impl Fn() -> u64,
        head: u64,
        payload: [u64; 2],
    ) -> Result<(), ReserveError> {
        let (number, time) = self.reserve(1, clock)?;
        let slot = &self.slots[number as usize & (self.slots.len() - 1)];
        // The thread, in `head`, is stored first: a drainer that waits for the time checks whether
        // the thread is alive.
        slot[1].store(head, Ordering::Relaxed);
        slot[2].store(payload[0], Ordering::Relaxed);
        slot[3].store(payload[1], Ordering::Relaxed);
        // Pairs with the Acquire in `Ring::read`: a thread that sees the time sees the record.
        slot[0].store(time, Ordering::Release);
        Ok(())
    }

    /// Reserves the next `count` records. Returns the number of the first, and a time at which it
    /// was the next.
    #[inline(always)]
    pub(crate) fn reserve(
        &self,
        count: u64,
        clock: impl Fn() -> u64,
    ) -> Result<(u64, u64), ReserveError> {
        let mut number = self.reserved.load(Ordering::Relaxed);
        loop {
            // Pairs with the Release in `give_back`: below the limit, slots are zeroed.
            if number + count > self.limit.load(Ordering::Acquire) {
                return Err(if number & CLOSED == 0 {
                    ReserveError::Full
                } else {
                    ReserveError::Closed
                });
            }
            let time = clock();
            match self.reserved.compare_exchange_weak(
                number,
                number + count,
                // Release: the next writer's clock is not read before this one. Acquire: nor this
                // one before the previous writer's.
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok((number, time)),
                Err(now) => number = now,
            }
        }
    }

    /// Returns the number of records that writers have reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire) & !CLOSED
    }

    /// Closes the ring, so that no more records can be reserved. Returns how many were.
    pub(crate) fn close(&self) -> u64 {
        self.reserved.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    /// Reopens the ring after [`Ring::close`].
    pub(crate) fn open(&self) {
        self.reserved.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Returns the four words of record `number`, which must be reserved and not given back. If it
    /// is not complete (yet), returns its second word as an error: it contains the thread, or is 0.
    pub(crate) fn read(&self, number: u64) -> Result<[u64; 4], u64> {
        let slot = &self.slots[number as usize & (self.slots.len() - 1)];
        // Pairs with the Release in `write`.
        let time = slot[0].load(Ordering::Acquire);
        let [_, head, first, second] =
            std::array::from_fn(|i| if i == 0 { 0 } else { slot[i].load(Ordering::Relaxed) });
        if time == 0 { Err(head) } else { Ok([time, head, first, second]) }
    }

    /// Gives all records before `end` back to the writers. `begin` is the `end` of the previous
    /// call. Only the drainer calls this.
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
