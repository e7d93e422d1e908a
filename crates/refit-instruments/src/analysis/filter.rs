//! The selection of a part of a trace.

use std::ops::Range;

use crate::definition::Definition;

/// A selection of a part of a trace. An empty criterion selects everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Classes, or complete names of events.
    pub classes: Vec<String>,
    /// Threads, by their kernel ID.
    pub threads: Vec<u32>,
    /// Processors.
    pub processors: Vec<u32>,
    /// A time range, in ticks.
    pub time: Option<Range<u64>>,
}

impl Filter {
    /// Returns whether an event at this time is selected. The place and the time of an interval are
    /// those of its end.
    pub fn wants(
        &self,
        definition: Option<&Definition>,
        thread: u32,
        processor: u32,
        time: u64,
    ) -> bool {
        self.wants_class(definition) && self.wants_place(thread, processor, time)
    }

    /// Returns whether a record of this thread, on this processor, at this time is selected.
    pub fn wants_place(&self, thread: u32, processor: u32, time: u64) -> bool {
        (self.threads.is_empty() || self.threads.contains(&thread))
            && (self.processors.is_empty() || self.processors.contains(&processor))
            && self.time.as_ref().is_none_or(|range| range.contains(&time))
    }

    fn wants_class(&self, definition: Option<&Definition>) -> bool {
        let is = |definition: &Definition| {
            let named = |class: &String| definition.class() == class || definition.name == *class;
            self.classes.iter().any(named)
        };
        self.classes.is_empty() || definition.is_some_and(is)
    }
}
