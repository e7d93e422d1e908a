//! Changes a program in one stop, or in several that are short.
//!
//! A stop takes some four microseconds for each page that changes. Sites that only count or set
//! flags may come into the program one after the other, since it can run with any prefix of the
//! changes ([`patches`](crate::patches)). Yet all counts begin at the same moment: the last stop
//! clears the cells. A thread that is in a snippet then counts afterwards, as if it had just come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::area::Area;
use crate::move_threads::{move_contexts, move_counters, ranges};
use crate::patches::{Now, PAGES_AT_ONCE, Places};
use crate::process::search_before::search_before;
use crate::process::searched::Searched;
use crate::process::{Program, STOP_TIMEOUT, Still, contexts};
use crate::record::Record;
use crate::why::Why;
use crate::{debugger, libunwind, semaphores};

/// The changes of a program, and how they are made.
pub(crate) struct Stops<'c> {
    pub(crate) records: &'c [Record],
    /// Instructions that will run elsewhere, and where.
    pub(crate) moves: &'c BTreeMap<u64, u64>,
    /// Whether there may be several stops.
    pub(crate) in_parts: bool,
    /// Number of bytes of cells, of each area, that the last of several stops clears.
    pub(crate) cells: Option<u64>,
}

impl Stops<'_> {
    /// Makes the changes; returns the time of all stops, and that of the longest.
    ///
    /// # Errors
    /// [`Why`]; the caller has to take out what was changed.
    pub(crate) fn make(
        &self,
        program: &Program,
        areas: &[Area],
    ) -> Result<(Duration, Duration), Why> {
        let list = debugger::first(program);
        // Moves are the same in all stops.
        let searched = self.searched(program);
        // Otherwise each of them takes as long as the search.
        let is_searched = searched.is_some() || !contexts::switches(program);
        let pages = if self.in_parts && is_searched { PAGES_AT_ONCE } else { usize::MAX };
        let parts = Places::new(self.records).divide(pages);
        let count = parts.len();
        let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
        for (number, places) in (1..).zip(parts) {
            let work = |still: &mut Still<'_>| {
                for head in areas.iter().map(|area| &area.head).filter(|_| number == 1) {
                    // A program without such a list is spliced as well.
                    list.and_then(|list| debugger::show(still, list, head));
                    libunwind::register(still.program(), head);
                }
                self.change(still, places)?;
                if number == count { self.complete(still, areas, count > 1) } else { Ok(()) }
            };
            let ((), stood) =
                contexts::stand_still(program, STOP_TIMEOUT, searched.as_ref(), work)?;
            (all, longest) = (all + stood, longest.max(stood));
        }
        Ok((all, longest))
    }

    /// Searches the memory of a program for contexts that move, if it may have some.
    fn searched(&self, program: &Program) -> Option<Arc<Searched>> {
        let within = || ranges(self.moves.keys().copied());
        contexts::switches(program).then(|| search_before(program, within)).flatten()
    }

    /// Changes bytes while the program is stopped. If this fails, the bytes are as before, but
    /// program counters may have moved: those threads continue in a copy.
    ///
    /// Program counters move first. The copies that they move to lead back to the original, whether
    /// it has changed by then or not.
    fn change(&self, still: &mut Still<'_>, places: Places<'_>) -> Result<(), Why> {
        let change = places.decide(still.program(), |record, now| match now {
            Now::Old => Ok(Some(&*record.new)),
            _ => Err(Why::Changed { address: record.address }),
        })?;
        move_counters(still, self.moves)?;
        move_contexts(still, self.moves)?;
        change.make(still.program())?;
        Ok(())
    }

    /// Does what comes after all changes.
    fn complete(&self, still: &Still<'_>, areas: &[Area], clears: bool) -> Result<(), Why> {
        if let Some(bytes) = self.cells.filter(|_| clears) {
            areas.iter().try_for_each(|area| area.clear(still.program(), bytes))?;
        }
        // The first area counts the semaphores that are raised.
        if let Some(Area { head, .. }) = areas.first() {
            semaphores::raise(still.program(), head, self.records)?;
        }
        Ok(())
    }
}
