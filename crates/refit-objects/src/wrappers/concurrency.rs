//! `concurrency`: the number of calls that are inside at the same time, now and at most, and how
//! many began while another was inside.
//!
//! All threads share the counter of the calls that are inside, since it relates their calls to each
//! other.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cells::{Padded, PerProcessor, count, read};
use super::options::{Settings, WrapperError};
use crate::description::InterfaceInfo;
use crate::wrapper::{After, PostCall, PreCall, Wrapper};

#[derive(Debug)]
pub(super) struct Concurrency {
    interface: &'static InterfaceInfo,
    only: Option<usize>,
    inside: Padded<AtomicU64>,
    at_most: Padded<AtomicU64>,
    calls: PerProcessor<Calls>,
}

/// The calls that began on one processor.
#[derive(Debug, Default)]
struct Calls {
    all: AtomicU64,
    overlapping: AtomicU64,
}

impl Concurrency {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, WrapperError> {
        let (interface, only) = (settings.interface, settings.method()?);
        let calls = PerProcessor::new(Calls::default);
        let (inside, at_most) = (Padded::default(), Padded::default());
        Ok(Concurrency { interface, only, inside, at_most, calls })
    }
}

impl Wrapper for Concurrency {
    fn name(&self) -> &str {
        "concurrency"
    }

    fn precall(&self, call: &PreCall<'_>) -> After {
        if self.only.is_some_and(|only| only != call.method()) {
            return After::Forward;
        }
        let inside = self.inside.0.fetch_add(1, Ordering::Relaxed) + 1;
        if inside > self.at_most.0.load(Ordering::Relaxed) {
            self.at_most.0.fetch_max(inside, Ordering::Relaxed);
        }
        let calls = self.calls.at(call.processor());
        count(&calls.all);
        if inside > 1 {
            count(&calls.overlapping);
        }
        After::Postcall(0)
    }

    fn postcall(&self, _call: &PostCall<'_>) {
        self.inside.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn options(&self) -> String {
        super::options::only(self.interface, self.only)
    }

    fn stats(&self) -> Vec<(String, u64)> {
        let stat = |name: &str, n: &AtomicU64| (name.to_owned(), n.load(Ordering::Relaxed));
        let sum = |name: &str, of: fn(&Calls) -> &AtomicU64| {
            (name.to_owned(), self.calls.iter().map(|calls| read(of(calls))).sum())
        };
        vec![
            stat("inside", &self.inside.0),
            stat("at_most", &self.at_most.0),
            sum("calls", |calls| &calls.all),
            sum("overlapping", |calls| &calls.overlapping),
        ]
    }
}
