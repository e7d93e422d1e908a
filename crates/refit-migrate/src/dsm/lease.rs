//! Leases: when two holders write to the same pages, each keeps its pages for a while.
//!
//! Without leases, two threads at two nodes that write to the same memory lose each page soon after
//! they have received it: each access costs a transfer, and neither thread makes progress. If one
//! of them waits instead, the other soon holds all pages and runs as if it was alone; then they
//! change places.
//!
//! The page home therefore examines the most recent transfers. If nearly all of them go back and
//! forth between holders that write, and concern many different pages, it grants a holder a
//! *lease*: no other holder takes from it a page to which it may write. The lease ends when the
//! holder has requested no page for a while, because it holds all that it needs or waits for
//! another thread; or when the lease has reached its maximum duration. The next lease is another
//! holder's.
//!
//! Memory that one thread writes and another one reads alternates without leases and never gets
//! one: half of its transfers are for reading. Leases cause no visible reordering: a holder that
//! waits has not received its page yet, as if its request had been in flight for longer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use refit_messages::InstanceId;

/// The number of transfers that are looked at.
const WINDOW: usize = 256;
/// At least this many of them take a page from a holder that may write, for writing.
const MIN_TAKEN: usize = WINDOW / 10 * 9;
/// At least this many of them are by each of two holders.
const MIN_EACH: usize = WINDOW / 4;
/// At least this many different pages are among them: half as many as transfers if one holder has
/// nearly all pages, and each that the other gets is taken back at once, and some of them again.
/// Fewer pages are soon gathered, and may be those by which threads synchronize.
const MIN_PAGES: usize = WINDOW / 4;
/// A lease ends when its holder has needed nothing for this time.
pub(super) const MAX_IDLE: Duration = Duration::from_millis(2);
/// The longest time of a lease.
const MAX_LEASE: Duration = Duration::from_millis(50);

/// The transfer of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) by: InstanceId,
    pub(crate) page: u64,
    /// Whether the page is taken from a holder that may write to it, for writing.
    pub(crate) taken: bool,
}

/// The lease of a holder.
#[derive(Clone, Copy, Debug)]
struct Lease {
    of: InstanceId,
    /// When the holder needed a page last.
    needed: Instant,
    began: Instant,
}

/// The lease of a group, and the transfers that may lead to the next.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The transfers since they were looked at last.
    last: Vec<Transfer>,
    current: Option<Lease>,
    /// The holder of the last lease.
    before: Option<InstanceId>,
}

impl Leases {
    /// Notes a transfer. Returns whether a lease begins.
    pub(crate) fn note(&mut self, transfer: Transfer, now: Instant) -> bool {
        if let Some(lease) = self.current.as_mut().filter(|lease| lease.of == transfer.by) {
            lease.needed = now;
        }
        if self.current.is_some() {
            return false;
        }
        self.last.push(transfer);
        if self.last.len() < WINDOW {
            return false;
        }
        let last = std::mem::take(&mut self.last);
        let Some(of) = self.next_holder(&last) else { return false };
        self.current = Some(Lease { of, needed: now, began: now });
        self.before = Some(of);
        true
    }

    /// Returns the holder that gets a lease after these transfers, if one does.
    fn next_holder(&self, last: &[Transfer]) -> Option<InstanceId> {
        let taken = || last.iter().filter(|transfer| transfer.taken);
        let different = taken().map(|transfer| transfer.page).collect::<BTreeSet<_>>().len();
        if taken().count() < MIN_TAKEN || different < MIN_PAGES {
            return None;
        }
        let holders: BTreeSet<InstanceId> = taken().map(|transfer| transfer.by).collect();
        let often =
            |holder: &InstanceId| taken().filter(|one| one.by == *holder).count() >= MIN_EACH;
        let often: Vec<InstanceId> = holders.into_iter().filter(often).collect();
        let another = often.iter().find(|&&one| Some(one) != self.before);
        another.copied().filter(|_| often.len() > 1)
    }

    /// Returns whether a holder has the lease.
    pub(crate) fn is_held_by(&self, holder: InstanceId) -> bool {
        self.current.is_some_and(|lease| lease.of == holder)
    }

    /// Returns when to look whether the lease has [expired](Self::expire); `None` if there is none.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.current.map(|lease| (lease.needed + MAX_IDLE).min(lease.began + MAX_LEASE))
    }

    /// Ends the lease if it has expired. Returns whether it has.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let over = self.due().is_some_and(|due| due <= now);
        over && self.end()
    }

    /// Ends the lease. Returns whether there was one.
    pub(crate) fn end(&mut self) -> bool {
        self.current.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InstanceId = InstanceId(0);
    const OTHER: InstanceId = InstanceId(1);

    /// Makes transfers of `pages` pages in turn, every `reads`-th of which is for reading. Returns
    /// whether a lease begins within twice the number that is looked at.
    fn begins(
        leases: &mut Leases,
        pages: usize,
        reads: usize,
        by: impl Fn(usize) -> InstanceId,
    ) -> bool {
        let now = Instant::now();
        let transfer = |at: usize| Transfer {
            by: by(at),
            page: (at % pages) as u64,
            taken: reads == 0 || !at.is_multiple_of(reads),
        };
        (0..2 * WINDOW).any(|at| leases.note(transfer(at), now))
    }

    #[test]
    fn leases_begin_where_two_write_all_over_and_nowhere_else() {
        let both = |at: usize| if (at / 3).is_multiple_of(2) { ONE } else { OTHER };
        assert!(begins(&mut Leases::default(), 1000, 0, both));
        // Pages that one writes and another reads; few pages; pages that only one needs.
        assert!(!begins(&mut Leases::default(), 1000, 2, both));
        assert!(!begins(&mut Leases::default(), 1000, 4, both), "a quarter is for reading");
        assert!(!begins(&mut Leases::default(), MIN_PAGES - 1, 0, both));
        assert!(!begins(&mut Leases::default(), 1000, 0, |_| OTHER));
    }

    #[test]
    fn a_lease_ends_and_the_next_is_anothers() {
        let both = |at: usize| if at.is_multiple_of(2) { ONE } else { OTHER };
        let mut leases = Leases::default();
        assert!(leases.due().is_none() && begins(&mut leases, 1000, 0, both));
        assert!(leases.is_held_by(ONE) && !leases.is_held_by(OTHER));
        assert!(!begins(&mut leases, 1000, 0, both), "there is one at a time");
        let began = leases.due().expect("a lease") - MAX_IDLE;
        let transfer = Transfer { by: ONE, page: 0, taken: true };
        leases.note(transfer, began + MAX_IDLE / 2);
        assert!(!leases.expire(began + MAX_IDLE) && leases.expire(began + 2 * MAX_IDLE));
        assert!(
            !leases.is_held_by(ONE)
                && begins(&mut leases, 1000, 0, both)
                && leases.is_held_by(OTHER)
        );
        let began = leases.due().expect("a lease") - MAX_IDLE;
        // It needs more and more pages.
        for step in 1..=MAX_LEASE.as_millis() {
            let now = began + Duration::from_millis(step as u64);
            leases.note(Transfer { by: OTHER, ..transfer }, now);
            assert_eq!(leases.expire(now), now >= began + MAX_LEASE);
        }
        assert!(!leases.end());
    }
}
