//! Taking single sites out of a program while the others stay.
//!
//! Only the bytes at the sites change back; the patch area stays as it is until everything is taken out. So nobody has to be
//! moved:
//!
//! - a thread whose program counter is at a site finds the original instruction there, as any that comes later. None is further inside the
//!   bytes that change: they are one jump;
//! - one that has jumped already, or whose handler of a signal will return there, finishes the snippet and the displaced instructions in
//!   the patch area and jumps back behind them, where nothing has changed;
//! - where a short jump leads to a long one, the long one stays: a thread may stand before it.
//!
//! Nothing is written down for it either: bytes that are as before are left alone by [`remains::repair`](crate::remains::repair),
//! whenever refit was killed.

use std::time::Duration;

use crate::contexts;
use crate::install::Installed;
use crate::patches::{self, Now};
use crate::process::{Program, Refusal, Still};
use crate::record::Record;
use crate::why::Why;

/// What has become of sites that were to be taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withdrawn {
    /// Sites whose bytes are as before.
    pub sites: usize,
    /// Sites whose bytes somebody else has changed, or that are not mapped any more; they were left.
    pub foreign: usize,
    /// How long the program stood still.
    pub stood: Duration,
}

impl Installed {
    /// Whether the site at this address can be taken out by itself.
    pub fn is_removable(&self, address: u64) -> bool {
        self.change_at(address).is_some()
    }

    /// Takes out the sites at these addresses, in one stop; addresses where none can be taken out by itself are passed over. What they
    /// have counted stays. Processes that were forked from the program keep theirs. `within` is how long threads have to stop.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be stopped or changed; all sites are in then.
    pub fn remove_sites(
        &self,
        program: &Program,
        addresses: &[u64],
        within: Duration,
    ) -> Result<Withdrawn, Why> {
        let mut changes: Vec<_> =
            addresses.iter().filter_map(|&address| self.change_at(address)).collect();
        changes.sort_by_key(|record| record.address);
        let work = |still: &mut Still<'_>| {
            let mut withdrawn = Withdrawn::default();
            let change = patches::decide(still.program(), changes, |record, now| {
                match now {
                    Now::New => withdrawn.sites += 1,
                    Now::Foreign | Now::Replaced | Now::Gone => withdrawn.foreign += 1,
                    Now::Old => {}
                }
                Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
            })?;
            change.make(still.program())?;
            Ok::<_, Why>(withdrawn)
        };
        let (withdrawn, stood) = contexts::stand_still(program, within, work)?;
        Ok(Withdrawn { stood, ..withdrawn })
    }

    fn change_at(&self, address: u64) -> Option<&Record> {
        let at = self.places.binary_search_by_key(&address, |record| record.address).ok()?;
        self.places.get(at)
    }
}
