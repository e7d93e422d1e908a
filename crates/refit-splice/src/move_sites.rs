//! Moves sites that run often to a patch area of their own, and has calls go there directly.
//!
//! Most of what a counter costs are two jumps, to the snippet and back. After a move,
//!
//! - the snippets that run often are next to each other;
//! - what a function does before it calls another one is copied, so no jump leads back if it
//!   returns before, and otherwise one leads to that call;
//! - calls and jumps to the function lead to the snippet: their displacement changes. So no jump
//!   leads there either, except for control that comes through a pointer, from another file, or
//!   from where this was not asked for. A call pushes the return address that it always pushed.
//!
//! # Why each call runs one snippet
//!
//! The displacements, and the jump at each site, change while no thread runs. A thread at a call or
//! at a site runs what is there afterwards. A thread that has left either is in the old snippet, or
//! behind it: the snippet stays as it is and leads back to the original, in which nothing but the
//! jump at the site has changed. Both snippets count into cells of the same number, each in its own
//! area, whose sum is what is read.
//!
//! # Taking out
//!
//! The new area records the original bytes of each place that it changes, and the old area those of
//! the sites. Areas are taken out in reverse order ([`Head::generation`]), in one stop. If refit is
//! killed in between, each place leads to an area that is still there. A child that was forked
//! before the move has the old area only.
//!
//! [`Head::generation`]: crate::record::Head::generation

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::debug;

use crate::install::{Installed, PutIn, put_in};
use crate::moving::{DirectCall, Moving};
use crate::plan::Plan;
use crate::process::Program;
use crate::ready::Ready;
use crate::record::Record;
use crate::why::Why;

/// Result of moving sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of sites.
    pub sites: usize,
    /// Number of functions, among theirs, of which a copy is executed up to their first call.
    pub copies: usize,
    /// Number of calls, and of jumps, that lead to their snippets directly.
    pub calls: usize,
    /// Longest time that the program was stopped.
    pub stood: Duration,
}

impl Installed {
    /// Whether the site at this address can be moved: it is in place, and a jump leads to its
    /// snippet at once.
    pub fn is_movable(&self, address: u64) -> bool {
        self.place_at(address).is_some()
    }

    /// Moves sites, and has these calls lead to them directly. `plan` has the same actions at these
    /// sites as the plan by which they were installed: none that stores keys, stacks or records.
    ///
    /// # Errors
    /// [`Why`]; the sites are where they were then.
    pub fn move_sites(
        &mut self,
        program: &Program,
        plan: &Plan,
        calls: &[DirectCall],
    ) -> Result<Moved, Why> {
        let sites: BTreeSet<u64> = plan.ready.iter().map(Ready::first_site).collect();
        let from: BTreeMap<u64, &Record> =
            sites.iter().filter_map(|&site| Some((site, self.place_at(site)?))).collect();
        if let Some(&address) = sites.iter().find(|site| !from.contains_key(site)) {
            return Err(Why::Changed { address });
        }
        let last = self.areas.iter().map(|area| area.head.generation).max();
        let moving = Moving { from, calls, generation: last.unwrap_or(0) + 1 };
        let PutIn { areas, removable, stood, calls, .. } =
            put_in(program, plan, self.shape, None, &moving)?;
        self.areas.extend(areas);
        let places = &mut self.removable.places;
        places.retain(|place| !sites.contains(&place.address));
        places.extend(removable.places);
        places.sort_by_key(|place| place.address);
        let stood = stood.longest;
        let moved = Moved { sites: sites.len(), copies: plan.copies(), calls, stood };
        debug!(process = program.id(), ?moved, "sites moved");
        Ok(moved)
    }

    fn place_at(&self, address: u64) -> Option<&Record> {
        self.change_at(address).filter(|place| place.target().is_some())
    }
}
