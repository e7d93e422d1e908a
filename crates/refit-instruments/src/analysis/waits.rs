//! Who waited for whom.

use std::collections::HashMap;

use serde::Serialize;

use super::spans::{Open, Span};
use crate::definition::Role;

/// How long one thread waited for one other, for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Who waited.
    pub waiter: u32,
    /// For which thread; 0: unknown.
    pub holder: u32,
    /// The event by which it is known.
    pub event: u32,
    /// The object or lock.
    pub what: u64,
    /// How often.
    pub count: u64,
    /// Ticks in sum.
    pub ticks: u64,
    /// Ticks of the longest.
    pub longest: u64,
}

/// All of that.
#[derive(Debug, Default)]
pub struct Waits {
    /// Who holds a thing.
    holders: HashMap<u64, u32>,
    /// Who held what a thread waits for when it began to.
    awaited: HashMap<(u32, u64), u32>,
    waits: HashMap<(u32, u32, u32, u64), Wait>,
}

impl Waits {
    /// An interval begins.
    pub fn begin(&mut self, thread: u32, role: Role, open: &Open) {
        let what = open.payload[0];
        match role {
            Role::Hold => {
                self.holders.insert(what, thread);
            }
            Role::Wait => {
                let told = open.payload[1] as u32;
                let holder =
                    if told != 0 { told } else { self.holders.get(&what).copied().unwrap_or(0) };
                self.awaited.insert((thread, open.begin), holder);
            }
            _ => {}
        }
    }

    /// An interval ends; `wanted`: it counts if it is one of waiting.
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

    /// What was found, the longest sums first.
    pub fn list(&self) -> Vec<Wait> {
        let mut all: Vec<Wait> = self.waits.values().copied().collect();
        all.sort_by_key(|wait| {
            (std::cmp::Reverse(wait.ticks), wait.waiter, wait.holder, wait.event, wait.what)
        });
        all
    }
}
