//! Waits of threads for one another.

use std::collections::HashMap;

use serde::Serialize;

use super::spans::{Open, Span};
use crate::definition::Role;

/// The waits of one thread for another thread and one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The thread that waited.
    pub waiter: u32,
    /// The thread that it waited for; 0 if it is unknown.
    pub holder: u32,
    /// The event that recorded the waits.
    pub event: u32,
    /// The object or lock.
    pub what: u64,
    /// The number of waits.
    pub count: u64,
    /// The total duration, in ticks.
    pub ticks: u64,
    /// The longest duration, in ticks.
    pub longest: u64,
}

/// All waits of a trace.
#[derive(Debug, Default)]
pub struct Waits {
    /// The holder of each object.
    holders: HashMap<u64, u32>,
    /// The holder of what a thread waits for, at the time when it began to wait.
    awaited: HashMap<(u32, u64), u32>,
    waits: HashMap<(u32, u32, u32, u64), Wait>,
}

impl Waits {
    /// Processes the begin of an interval.
    pub fn begin(&mut self, thread: u32, role: Role, open: &Open) {
        let what = open.payload[0];
        match role {
            Role::Hold => {
                self.holders.insert(what, thread);
            }
            Role::Wait => {
                let named = open.payload[1] as u32;
                let holder =
                    if named != 0 { named } else { self.holders.get(&what).copied().unwrap_or(0) };
                self.awaited.insert((thread, open.begin), holder);
            }
            _ => {}
        }
    }

    /// Processes the end of an interval. A wait is counted if it is `wanted`.
    pub fn end(&mut self, span: &Span, role: Role, wanted: bool) {
        let what = span.open.payload[0];
        match role {
            Role::Hold if self.holders.get(&what) == Some(&span.thread) => {
                self.holders.remove(&what);
            }
            Role::Wait => {
                let holder = self.awaited.remove(&(span.thread, span.open.begin)).unwrap_or(0);
                if !wanted {
                    return;
                }
                let (waiter, event) = (span.thread, span.open.event);
                let new = Wait { waiter, holder, event, what, count: 0, ticks: 0, longest: 0 };
                let wait = self.waits.entry((waiter, holder, event, what)).or_insert(new);
                wait.count += 1;
                wait.ticks = wait.ticks.saturating_add(span.ticks());
                wait.longest = wait.longest.max(span.ticks());
            }
            _ => {}
        }
    }

    /// Returns the waits, sorted by total duration in descending order.
    pub fn list(&self) -> Vec<Wait> {
        let mut all: Vec<Wait> = self.waits.values().copied().collect();
        all.sort_by_key(|wait| {
            (std::cmp::Reverse(wait.ticks), wait.waiter, wait.holder, wait.event, wait.what)
        });
        all
    }
}
