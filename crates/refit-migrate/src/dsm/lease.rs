//! Turns, where holders take from each other what they write to.
//!
//! Two threads at two instances that write here and there in the same memory have each page taken away soon after they have got it: each access
//! costs a transfer, and neither gets on. If one waits instead, the other has gathered all pages soon, and runs as if it were alone; then the
//! other way round. So he who gives pages looks at the last ones: do nearly all of them go from who has written to them to who wants
//! to, to and fro, and many different ones? Then a holder has a *turn*: nobody takes from it what it may write to, until it has needed nothing for
//! a while, since it has all or waits for somebody, or until it had long enough. The next turn is another holder's.
//!
//! Memory that one writes and another one reads, which takes turns by itself, is never taken for that: half of its transfers are to read.
//! Nothing is reordered that could be seen: who has to wait has not got its page yet, as if its question had been under way for longer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use refit_messages::InstanceId;

/// So many transfers are looked at.
const LOOK: usize = 256;
/// Of those: at least so many are taken from who may write by who is to write.
const TAKEN: usize = LOOK / 10 * 9;
/// And so many by each of two holders at least.
const EACH: usize = LOOK / 4;
/// And so many different pages: half as many as transfers where one has nearly all, and each that the other gets is taken back at once, and some of them
/// again. Fewer are soon gathered, and may be what threads tell each other by.
const DIFFERENT: usize = LOOK / 4;
/// Who has needed nothing for so long has what it needs.
const IDLE: Duration = Duration::from_millis(2);
/// So long a turn lasts at most.
const LONG: Duration = Duration::from_millis(50);

/// A page that was needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    pub(crate) by: InstanceId,
    pub(crate) page: u64,
    /// It is taken from who may write to it, to be written.
    pub(crate) taken: bool,
}

/// A holder's turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    of: InstanceId,
    /// When it needed something last.
    needed: Instant,
    began: Instant,
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The last transfers since somebody looked.
    last: Vec<Needed>,
    now: Option<Turn>,
    /// Whose the last one was.
    before: Option<InstanceId>,
}

impl Turns {
    /// A holder needs a page, and gets it; whether its turn, or another one's, begins.
    pub(crate) fn note(&mut self, needed: Needed, now: Instant) -> bool {
        if let Some(turn) = self.now.as_mut().filter(|turn| turn.of == needed.by) {
            turn.needed = now;
        }
        if self.now.is_some() {
            return false;
        }
        self.last.push(needed);
        if self.last.len() < LOOK {
            return false;
        }
        let last = std::mem::take(&mut self.last);
        let Some(of) = self.next(&last) else { return false };
        self.now = Some(Turn { of, needed: now, began: now });
        self.before = Some(of);
        true
    }

    /// Who is to have a turn after these transfers, if anybody.
    fn next(&self, last: &[Needed]) -> Option<InstanceId> {
        let taken = || last.iter().filter(|needed| needed.taken);
        let different = taken().map(|needed| needed.page).collect::<BTreeSet<_>>().len();
        if taken().count() < TAKEN || different < DIFFERENT {
            return None;
        }
        let holders: BTreeSet<InstanceId> = taken().map(|needed| needed.by).collect();
        let often = |holder: &InstanceId| taken().filter(|one| one.by == *holder).count() >= EACH;
        let often: Vec<InstanceId> = holders.into_iter().filter(often).collect();
        let another = often.iter().find(|&&one| Some(one) != self.before);
        another.copied().filter(|_| often.len() > 1)
    }

    /// Whether nobody but this holder may take from it now.
    pub(crate) fn is_of(&self, holder: InstanceId) -> bool {
        self.now.is_some_and(|turn| turn.of == holder)
    }

    /// When it is to be seen whether the turn [is over](Self::over); `None`: there is none.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.now.map(|turn| (turn.needed + IDLE).min(turn.began + LONG))
    }

    /// Whether a turn is over by now; then there is none.
    pub(crate) fn over(&mut self, now: Instant) -> bool {
        let over = self.due().is_some_and(|due| due <= now);
        over && self.end()
    }

    /// Ends it; whether there was one.
    pub(crate) fn end(&mut self) -> bool {
        self.now.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InstanceId = InstanceId(0);
    const OTHER: InstanceId = InstanceId(1);

    /// Transfers of so many pages in turn, of which each `reads`-th is to be read; whether a turn begins within two looks.
    fn begins(
        turns: &mut Turns,
        pages: usize,
        reads: usize,
        by: impl Fn(usize) -> InstanceId,
    ) -> bool {
        let now = Instant::now();
        let needed = |at: usize| Needed {
            by: by(at),
            page: (at % pages) as u64,
            taken: reads == 0 || !at.is_multiple_of(reads),
        };
        (0..2 * LOOK).any(|at| turns.note(needed(at), now))
    }

    #[test]
    fn turns_begin_where_two_write_here_and_there_and_nowhere_else() {
        let both = |at: usize| if (at / 3).is_multiple_of(2) { ONE } else { OTHER };
        assert!(begins(&mut Turns::default(), 1000, 0, both));
        // What one writes another reads; a few pages; what only one needs.
        assert!(!begins(&mut Turns::default(), 1000, 2, both));
        assert!(!begins(&mut Turns::default(), DIFFERENT - 1, 0, both));
        assert!(!begins(&mut Turns::default(), 1000, 0, |_| OTHER));
    }

    #[test]
    fn a_turn_ends_and_the_next_is_anothers() {
        let both = |at: usize| if at.is_multiple_of(2) { ONE } else { OTHER };
        let mut turns = Turns::default();
        assert!(turns.due().is_none() && begins(&mut turns, 1000, 0, both));
        assert!(turns.is_of(ONE) && !turns.is_of(OTHER));
        let began = turns.due().expect("a turn") - IDLE;
        let needed = Needed { by: ONE, page: 0, taken: true };
        turns.note(needed, began + IDLE / 2);
        assert!(!turns.over(began + IDLE) && turns.over(began + 2 * IDLE));
        assert!(!turns.is_of(ONE) && begins(&mut turns, 1000, 0, both) && turns.is_of(OTHER));
        let began = turns.due().expect("a turn") - IDLE;
        // It needs more and more.
        for step in 1..=LONG.as_millis() {
            let now = began + Duration::from_millis(step as u64);
            turns.note(Needed { by: OTHER, ..needed }, now);
            assert_eq!(turns.over(now), now >= began + LONG);
        }
        assert!(!turns.end());
    }
}
