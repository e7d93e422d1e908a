//! The code of what is done at a site, in registers that nobody needs.
//!
//! ```text
//! save        registers that are taken and still needed go to others, or onto the stack, as do flags
//! step …      each: conditions, else jump over it; the cells of its key; what it does
//! restore
//! ```
//!
//! `actions` says what can be done, `registers` who is taken for it, `writer` writes instructions one by one; `values`,
//! `cells`, `search`, `timer`, `spread` and `event` are the parts of a step.

mod actions;
mod cells;
mod event;
mod registers;
mod search;
mod spread;
mod timer;
mod values;
mod writer;

use iced_x86::Instruction;

pub use actions::{Action, Clock, DURATIONS, KEYS, Step, TIMER};
pub(super) use cells::{Cells, Lane};
pub(super) use event::Rings;
pub use values::{Base, Relation, Test, Value, Width};

use super::Why;
use refit_analysis::live::Live;
use registers::Taken;
use writer::Writer;

/// What snippets find in a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) cells: Cells,
    /// Where the C library keeps a thread's number, from the thread pointer on; `None`: the kernel is asked.
    pub(super) thread: Option<i32>,
    /// Whether threads can be told by their thread pointers, which an instruction reads.
    pub(super) pointers: bool,
    /// Where records go, if any do.
    pub(super) rings: Option<Rings>,
}

/// Adds the code of `steps` to `to`.
pub(super) fn write(
    address: u64,
    steps: &[Step],
    live: Live,
    setting: Setting,
    to: &mut Vec<Instruction>,
) -> Result<(), Why> {
    let taken = Taken::new(steps, live, setting);
    let mut writer = Writer::new(address, taken, setting, to);
    writer.save()?;
    for step in steps {
        writer.step(step)?;
    }
    writer.restore()?;
    for step in steps {
        if let Action::Poison { stack } = step.action {
            writer.poison(live, stack)?;
        }
    }
    Ok(())
}
