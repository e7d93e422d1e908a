//! Generates the code of the actions at a site, in registers that are dead.
//!
//! ```text
//! save        taken registers that are live go to others, or onto the stack, as do flags
//! step …      each: conditions, else jump over it; the cells of its key; what it does
//! restore
//! ```
//!
//! `step` has the actions, `value`, `item`, `key` and `formula` the values and texts that actions
//! can read, `setting` the surroundings of snippets; `needs`, `registers` and `allocation`
//! decide which registers are taken; `writer` writes single instructions. `actions` writes a step,
//! composed of the parts in `values`, `compute`, `cells`, `count`, `search`, `keep`, `timer`,
//! `spread`, `gather`, `intern`, `tuple`, `event`, `print`, `stack` and `find_frame`.

mod actions;
mod allocation;
mod cells;
mod compute;
mod count;
mod event;
mod find_frame;
mod formula;
mod gather;
mod intern;
mod item;
mod keep;
mod key;
mod needs;
mod print;
mod registers;
mod search;
mod setting;
mod spread;
mod stack;
mod step;
mod timer;
mod tuple;
mod value;
mod values;
mod writer;

use refit_analysis::live::Live;

pub use compute::LOCALS;
pub use formula::{Formula, Kept, Operator, Unary};
pub use item::{Item, Text, text};
pub use key::Key;
pub(crate) use needs::most_moved;
pub(super) use setting::{Cells, Lane, Rings, Sequences, Setting};
pub use step::{Action, Clock, DURATIONS, Fold, KEYS, Step, TIMER};
pub use value::{Base, Relation, Test, Value, Width};

use crate::listing::Listing;
use crate::why::Why;
use allocation::Allocation;
use writer::Writer;

/// Appends the code of `steps` to `to`.
pub(super) fn write(
    address: u64,
    steps: &[Step],
    live: Live,
    setting: Setting,
    to: &mut Listing,
) -> Result<(), Why> {
    let taken = Allocation::new(steps, live, setting);
    let mut writer = Writer::new(address, taken, setting, to);
    let locals = steps.iter().map(Step::locals).max().unwrap_or(0);
    writer.save()?;
    writer.open_locals(locals)?;
    for step in steps {
        writer.step(step)?;
    }
    writer.close_locals(locals)?;
    writer.restore()?;
    for step in steps {
        match step.action {
            Action::Poison { stack } => writer.poison(live, stack)?,
            Action::FindFrame => writer.find_frame()?,
            Action::FindObject => writer.find_object()?,
            _ => {}
        }
    }
    Ok(())
}
