//! Takes single sites out of a program while the others stay.
//!
//! Only the bytes at the sites change back; the patch area stays as it is until everything is taken
//! out. So no thread has to be moved:
//!
//! - a thread at a site runs the original instruction there, like any thread that arrives later. No
//!   thread is further inside the bytes that change: they are one jump;
//! - a thread that has already jumped, or whose signal handler will return there, finishes the
//!   snippet and the displaced instructions in the patch area and jumps back after them, where
//!   nothing has changed;
//! - the long half of a short jump stays: a thread may be about to run it.
//!
//! A site in a copied function can be taken out if it only sets a flag: one byte of the copy
//! changes, and the store becomes a jump over itself. A forked child shares the code of copies and
//! is not stopped, but a processor finds a byte either as it was or as it is, and both begin an
//! instruction. Other sites in copies stay.
//!
//! The removal is not recorded either: [`remains::repair`](crate::remains::repair) leaves a site
//! alone that has its original bytes already, so refit may be killed at any moment.

use std::time::Duration;

use tracing::debug;

use crate::area::Area;
use crate::encode::{SETS_FLAG, SKIPS};
use crate::install::Installed;
use crate::patches::{Now, Places};
use crate::process::{Program, Refusal, Still, contexts};
use crate::record::Record;
use crate::why::Why;

/// Result of taking out single sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withdrawn {
    /// Sites whose original bytes were restored.
    pub sites: usize,
    /// Sites whose bytes another tool has changed, or that are no longer mapped; they were left
    /// alone.
    pub foreign: usize,
    /// Time for which the program was stopped.
    pub stood: Duration,
}

impl Installed {
    /// Whether the site at this address can be taken out by itself.
    pub fn is_removable(&self, address: u64) -> bool {
        self.change_at(address).is_some() || self.store_at(address).is_some()
    }

    /// Takes out the sites at these addresses, in one stop; addresses at which none can be taken
    /// out by itself are skipped. The counts stay readable. Processes forked from the program keep
    /// their sites. `within` is the time that threads have to stop.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be stopped or changed; all sites are still installed then.
    pub fn remove_sites(
        &self,
        program: &Program,
        addresses: &[u64],
        within: Duration,
    ) -> Result<Withdrawn, Why> {
        let mut changes: Vec<_> =
            addresses.iter().filter_map(|&address| self.change_at(address)).collect();
        changes.sort_by_key(|record| record.address);
        let stores: Vec<u64> = addresses.iter().filter_map(|one| self.store_at(*one)).collect();
        let places = Places::new(changes);
        let work = |still: &mut Still<'_>| {
            let mut withdrawn = Withdrawn::default();
            let change = places.decide(still.program(), |record, now| {
                match now {
                    Now::New => withdrawn.sites += 1,
                    Now::Foreign | Now::Replaced | Now::Gone => withdrawn.foreign += 1,
                    Now::Old => {}
                }
                Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
            })?;
            change.make(still.program())?;
            for &store in &stores {
                withdrawn.sites += usize::from(self.skip(still.program(), store)?);
            }
            Ok::<_, Why>(withdrawn)
        };
        let (withdrawn, stood) = contexts::stand_still(program, within, None, work)?;
        debug!(process = program.id(), sites = withdrawn.sites, ?stood, "sites taken out");
        Ok(Withdrawn { stood, ..withdrawn })
    }

    /// Turns the store of a flag, in a copy, into a jump over itself; returns whether it was a
    /// store.
    fn skip(&self, program: &Program, store: u64) -> Result<bool, Why> {
        let within = |area: &&Area| area.head.code_range().contains(&store);
        let Some(area) = self.areas.iter().find(within) else { return Ok(false) };
        let at = store - area.head.address;
        if area.byte(program, at)? != SETS_FLAG {
            return Ok(false);
        }
        area.put(program, at, &[SKIPS])?;
        Ok(true)
    }

    /// Returns the address of the instruction, in a copy, that sets the flag of a site.
    fn store_at(&self, address: u64) -> Option<u64> {
        let at = self.removable.flags.binary_search_by_key(&address, |&(site, _)| site).ok()?;
        self.removable.flags.get(at).map(|&(_, store)| store)
    }

    pub(crate) fn change_at(&self, address: u64) -> Option<&Record> {
        let at =
            self.removable.places.binary_search_by_key(&address, |record| record.address).ok()?;
        self.removable.places.get(at)
    }
}
