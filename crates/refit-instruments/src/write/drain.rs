//! Reads the records of one ring in order and gives the slots back.

use std::time::{Duration, Instant};

use refit_sys::process;
use zerocopy::IntoBytes;

use crate::block::{End, Kind, RecordsHead};
use crate::record::{SIZE, What};
use crate::ring::Ring;
use crate::session::Area;

use super::output::Output;

/// The time to wait for a record that was begun before checking whether its writer is alive.
const TORN_TIMEOUT: Duration = Duration::from_secs(1);
/// The time to wait for a record whose writer is alive, since the writer may have left it by a jump
/// out of a signal handler.
const STUCK_TIMEOUT: Duration = Duration::from_secs(10);
/// If a time is further than this before the previous one (in ticks of either clock), it was stored
/// by a writer whose record had been abandoned. The clocks of two processors differ by far less,
/// and the timeouts are far longer.
const MAX_BACKWARD: u64 = 1 << 20;

/// The drainer's side of a ring.
#[derive(Debug)]
pub(super) struct Drain {
    ring: Ring<'static>,
    /// The number of records given back, or copied and about to be given back.
    drained: u64,
    /// The time of the last record.
    last: u64,
    /// The number of records reported as lost for lack of slots.
    lost: u64,
    /// The time at which the drainer began to wait for record `drained`.
    waiting: Option<Instant>,
    timeout: Duration,
    /// The number of records written to the trace.
    written: u64,
    /// The head of the next block, with the losses since the beginning.
    head: RecordsHead,
    records: Vec<u8>,
}

impl Drain {
    /// Creates the drain of a processor's ring, which continues where the last one stopped.
    pub(super) fn new(area: &Area, processor: usize) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        let ring = area.rings()[processor];
        let drained = ring.limit.load(Relaxed).saturating_sub(ring.slots.len() as u64);
        let head = RecordsHead::new(u16::try_from(processor).unwrap_or(u16::MAX), 0);
        let lost = ring.lost.load(Relaxed);
        let records = Vec::new();
        Self {
            ring,
            drained,
            last: 0,
            lost,
            waiting: None,
            timeout: TORN_TIMEOUT,
            written: 0,
            head,
            records,
        }
    }

    /// Sets the timeouts, for tests.
    #[cfg(test)]
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns the number of waiting records.
    pub(super) fn backlog(&self) -> u64 {
        self.ring.reserved().saturating_sub(self.drained).min(self.capacity())
    }

    pub(super) fn capacity(&self) -> u64 {
        self.ring.slots.len() as u64
    }

    /// Closes the ring, so that no more records can be reserved.
    pub(super) fn close(&self) {
        self.ring.close();
    }

    /// Reopens the ring after [`Drain::close`].
    pub(super) fn open(&self) {
        self.ring.open();
    }

    /// Drops the oldest records until at most `most` are waiting (flight recorder), as far as they
    /// are complete.
    pub(super) fn forget(&mut self, most: u64, area: &Area) {
        let first = self.drained;
        self.take(self.backlog().saturating_sub(most), area);
        self.ring.give_back(first, self.drained);
        self.head.lost_old += (self.records.len() / SIZE) as u64;
    }

    /// Reads up to `most` records and writes them as one block. Returns how many were removed from
    /// the ring.
    pub(super) fn write(&mut self, most: u64, area: &Area, output: &mut Output) -> u64 {
        let first = self.drained;
        self.take(most, area);
        let taken = self.drained - first;
        if taken > 0 {
            self.ring.give_back(first, self.drained);
            self.emit(output);
        }
        taken
    }

    /// Writes an empty block with the losses since the last one, if there are any.
    pub(super) fn write_rest(&mut self, output: &mut Output) {
        let accounted = self.head.sequence + u64::from(self.head.count);
        self.count_lost();
        if self.written + self.losses() > accounted {
            self.records.clear();
            self.emit(output);
        }
    }

    fn emit(&mut self, output: &mut Output) {
        self.count_lost();
        let count = (self.records.len() / SIZE) as u64;
        self.head.count = count as u32;
        self.head.sequence = self.written + self.losses();
        if output.block(Kind::Records, &[self.head.as_bytes(), &self.records]) {
            self.written += count;
        } else {
            // Reported by the next block that can be written.
            self.head.lost_unwritten += count;
        }
    }

    fn losses(&self) -> u64 {
        let RecordsHead { lost_full, lost_torn, lost_old, lost_unwritten, .. } = self.head;
        lost_full + lost_torn + lost_old + lost_unwritten
    }

    /// Adds the counts of this ring to `end`.
    pub(super) fn add_to(&self, end: &mut End) {
        end.written += self.written;
        end.lost_full += self.head.lost_full;
        end.lost_torn += self.head.lost_torn;
        end.lost_old += self.head.lost_old;
        end.lost_unwritten += self.head.lost_unwritten;
    }

    fn count_lost(&mut self) {
        let lost = self.ring.lost.load(std::sync::atomic::Ordering::Relaxed);
        self.head.lost_full += lost.wrapping_sub(self.lost);
        self.lost = lost;
    }

    /// Copies records until one is incomplete.
    fn take(&mut self, most: u64, area: &Area) {
        self.records.clear();
        let end = self.drained + self.backlog().min(most);
        while self.drained < end {
            match self.ring.read(self.drained) {
                Ok(record) if record[0].saturating_add(MAX_BACKWARD) < self.last => {
                    self.head.lost_torn += 1
                }
                Ok(record) => {
                    self.last = self.last.max(record[0]);
                    let id = What::of_word(record[1] as u32).id();
                    if let Some([count, _]) = area.cell(self.head.processor as usize, id) {
                        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    self.records.extend_from_slice(record.as_bytes());
                }
                Err(head) if self.gives_up((head >> 32) as u32) => {
                    self.head.lost_torn += 1;
                }
                Err(_) => break,
            }
            self.drained += 1;
            self.waiting = None;
        }
    }

    /// Returns whether to abandon the record that is waited for: after a first timeout if its
    /// thread has ended or is unknown, and after a second one in any case.
    fn gives_up(&mut self, thread: u32) -> bool {
        let waited = self.waiting.get_or_insert_with(Instant::now).elapsed();
        if waited < self.timeout {
            return false;
        }
        let life = (thread != 0).then(|| process::life(thread)).flatten();
        waited >= STUCK_TIMEOUT || life.is_none_or(|life| life.ended() || life.stopped())
    }
}
