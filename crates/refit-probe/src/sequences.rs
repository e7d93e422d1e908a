//! Restartable sequences of a function, and the bytes that must stay as they are because of them.
//!
//! The kernel restarts a sequence (rseq(2)) only while the thread is at one of its addresses.
//! Outside of them it forgets that the thread has announced the sequence: the store that announces
//! one is therefore the instruction before it, and no site may come between the two.

use std::ops::Range;

use refit_analysis::Module;
use refit_analysis::flow::Flow;
use refit_analysis::image::Sequence;

/// The restartable sequences that a function holds, in whole or in part.
#[derive(Debug)]
pub(crate) struct Sequences {
    own: Vec<Sequence>,
    /// Ranges in which no byte may change.
    fixed: Vec<Range<u64>>,
}

impl Sequences {
    /// Returns those of a function: all that overlap it or are aborted to it.
    pub(crate) fn of(module: &Module, flow: &Flow) -> Self {
        let code = &module.function(flow.function()).ranges;
        let touches = |one: &&Sequence| one.touches(code);
        let own: Vec<_> = module.image().sequences().iter().filter(touches).cloned().collect();
        let announced = |start: u64| {
            let before = flow.instructions().iter().find(|one| one.end() == start);
            before.map_or(start, |one| one.address)
        };
        let fixed = own.iter().flat_map(|one| {
            let Range { start, end } = one.addresses;
            [announced(start)..end, one.signature()]
        });
        Self { fixed: fixed.collect(), own }
    }

    /// Returns the address of the first sequence.
    pub(crate) fn first(&self) -> Option<u64> {
        self.own.first().map(|one| one.addresses.start)
    }

    /// Returns the addresses before which a change has to end.
    pub(crate) fn entered(&self) -> impl Iterator<Item = u64> {
        let handlers = self.own.iter().map(|one| one.abort);
        self.fixed.iter().map(|range| range.start).chain(handlers)
    }

    /// Whether the byte at `address` must not change.
    pub(crate) fn contain(&self, address: u64) -> bool {
        self.fixed.iter().any(|range| range.contains(&address))
    }
}
