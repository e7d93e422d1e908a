//! What of a trace is wanted.

use std::ops::Range;

use crate::definition::Definition;

/// What of a trace is wanted; what is empty wants everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Classes, or whole names of events.
    pub classes: Vec<String>,
    /// Threads, as the kernel numbers them.
    pub threads: Vec<u32>,
    /// Processors.
    pub processors: Vec<u32>,
    /// Ticks.
    pub time: Option<Range<u64>>,
}

impl Filter {
    /// Whether something of this event at this time is wanted. An interval is where and when it ends.
    pub fn wants(
        &self,
        definition: Option<&Definition>,
        thread: u32,
        processor: u32,
        time: u64,
    ) -> bool {
        self.wants_class(definition) && self.wants_place(thread, processor, time)
    }

    /// Whether something of this thread, on this processor, at this time is wanted.
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
