//! `count`: calls, errors and panics of each method.

use std::sync::atomic::AtomicU64;

use super::cells::{PerProcessor, count, read};
use crate::description::InterfaceInfo;
use crate::wrapper::{After, Outcome, PostCall, PreCall, Wrapper};

/// The counters of one method on one processor.
#[derive(Debug, Default)]
struct Cell {
    calls: AtomicU64,
    errors: AtomicU64,
    panics: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Count {
    interface: &'static InterfaceInfo,
    cells: PerProcessor<Box<[Cell]>>,
}

impl Count {
    pub(super) fn new(interface: &'static InterfaceInfo) -> Self {
        let cells = || interface.methods.iter().map(|_| Cell::default()).collect();
        Count { interface, cells: PerProcessor::new(cells) }
    }
}

impl Wrapper for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn precall(&self, call: &PreCall<'_>) -> After {
        if let Some(cell) = self.cells.at(call.processor()).get(call.method()) {
            count(&cell.calls);
        }
        After::Postcall(0)
    }

    fn postcall(&self, call: &PostCall<'_>) {
        let Some(cell) = self.cells.at(call.processor()).get(call.method()) else { return };
        match call.outcome() {
            Outcome::Returned => {}
            Outcome::Failed => count(&cell.errors),
            Outcome::Unwound => count(&cell.panics),
        }
    }

    fn stats(&self) -> Vec<(String, u64)> {
        let mut stats = Vec::new();
        for (n, method) in self.interface.methods.iter().enumerate() {
            let sum = |of: fn(&Cell) -> &AtomicU64| {
                self.cells.iter().filter_map(|cells| cells.get(n)).map(|cell| read(of(cell))).sum()
            };
            let calls: u64 = sum(|cell| &cell.calls);
            if calls > 0 {
                stats.push((method.name.to_owned(), calls));
            }
            let others = [("errors", sum(|c| &c.errors)), ("panics", sum(|c| &c.panics))];
            for (what, n) in others.into_iter().filter(|(_, n)| *n > 0) {
                stats.push((format!("{}.{what}", method.name), n));
            }
        }
        stats
    }
}
