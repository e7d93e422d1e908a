//! `concurrency`: the number of calls that are inside at the same time, now and at most.
//!
//! The maximum depends on the calls of all threads, so they share a counter here.

use std::sync::atomic::{AtomicU64, Ordering};

use super::cells::Padded;
use super::options::{Settings, WrapperError};
use crate::description::InterfaceInfo;
use crate::wrapper::{After, PostCall, PreCall, Wrapper};

#[derive(Debug)]
pub(super) struct Concurrency {
    interface: &'static InterfaceInfo,
    only: Option<usize>,
    inside: Padded<AtomicU64>,
    at_most: Padded<AtomicU64>,
}

impl Concurrency {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, WrapperError> {
        let (interface, only) = (settings.interface, settings.method()?);
        Ok(Concurrency { interface, only, inside: Padded::default(), at_most: Padded::default() })
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
        vec![stat("inside", &self.inside.0), stat("at_most", &self.at_most.0)]
    }
}
