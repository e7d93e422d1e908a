//! Control that enters the copies of an arrangement, and leaves them, while the area stays.
//!
//! On leaving, the gates are restored, and threads and the return addresses on their stacks go back
//! to the originals. On entering, the gates change again, as on installation. In between, whatever
//! still leads to the copies finds them: a handler that returns there, or the stack of a coroutine.
//!
//! Contexts that the program has saved itself (`process::contexts`) are not searched for again: the
//! search takes longer than all the rest, and has been made on installation.

use std::time::Duration;

use crate::install::Installed;
use crate::move_threads;
use crate::patches::{Now, Places};
use crate::process::{Program, Refusal, STOP_TIMEOUT, Still};
use crate::returns;
use crate::rules::Rules;
use crate::why::Why;

impl Installed {
    /// Has control enter the copies of an arrangement, after it has [left](Self::leave) them.
    /// `look` is called first, while no thread runs. Returns the time for which the program was
    /// stopped.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be stopped or changed, or another tool has changed it meanwhile.
    pub fn enter(&self, program: &Program, look: impl FnOnce() + Send) -> Result<Duration, Why> {
        let places = Places::new(&self.removable.places);
        let work = |still: &mut Still<'_>| {
            look();
            let change = places.decide(still.program(), |record, now| match now {
                Now::Old => Ok(Some(&*record.new)),
                Now::New => Ok(None),
                _ => Err(Why::Changed { address: record.address }),
            })?;
            move_threads::move_counters(still, &self.moves)?;
            change.make(still.program())?;
            Ok::<_, Why>(())
        };
        program.stand_still(STOP_TIMEOUT, work).map(|((), stood)| stood)
    }

    /// Has control leave the copies of an arrangement, which stay in the program. `look` is called
    /// first, while no thread runs. Returns the time for which the program was stopped.
    ///
    /// # Errors
    /// [`Why`]: the program cannot be stopped or changed.
    pub fn leave(&self, program: &Program, look: impl FnOnce() + Send) -> Result<Duration, Why> {
        let places = Places::new(self.removable.places.iter().rev());
        // Code that the program maps later has none: walks end there, and say so.
        let rules = self.rules.get_or_init(|| Rules::of(program));
        let work = |still: &mut Still<'_>| {
            look();
            let change = places.decide(still.program(), |record, now| {
                Ok::<_, Refusal>((now == Now::New).then_some(&*record.old))
            })?;
            change.make(still.program())?;
            // A thread that waits for a page continues in the copy.
            let asleep = still.asleep().any(|(_, waits)| self.back.contains_key(&waits.counter));
            if !asleep {
                move_threads::move_positions(still, &self.back)?;
            }
            for area in self.areas.iter().filter(|area| area.head.calls()) {
                returns::take_back(still, &area.head, &self.back, rules)?;
            }
            Ok::<_, Why>(())
        };
        program.stand_still(STOP_TIMEOUT, work).map(|((), stood)| stood)
    }
}
