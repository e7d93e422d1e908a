//! Counts the instructions of the steps of a call and of a switch (Hui 2000, tab. 5.1) by stepping
//! through them.
//!
//! The bench starts itself once more, stepped, with [`ARGUMENT`]; that process runs each step
//! between two marks.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use refit_objects::change::Phase;
use refit_objects::{SwapOptions, destroy, discard_entries, request, swap_named};
use refit_sys::step::{count_instructions, mark};

use crate::counter;

/// The argument with which this program is stepped.
pub(crate) const ARGUMENT: &str = "--stepped";

/// The number of instructions of each step.
pub(crate) struct Instructions {
    pub(crate) call: u64,
    pub(crate) call_within: u64,
    pub(crate) miss: u64,
    pub(crate) first_mediated: u64,
    pub(crate) forwarded: u64,
}

impl Instructions {
    /// Returns the cost of the first call after the installation of the mediator beyond a miss and
    /// a forwarded call.
    pub(crate) fn mediator_rep(&self) -> u64 {
        self.first_mediated.saturating_sub(self.miss + self.forwarded)
    }
}

pub(crate) fn measure() -> std::io::Result<Instructions> {
    let counts = count_instructions(Command::new(std::env::current_exe()?).arg(ARGUMENT))?;
    let [empty, call, call_within, missed, first_mediated, forwarded] = counts[..] else {
        return Err(std::io::Error::other(format!("there are {} counts", counts.len())));
    };
    let net = |count: u64| count.saturating_sub(empty);
    Ok(Instructions {
        call: net(call),
        call_within: net(call_within),
        // A call that misses does the work of any call in addition to the miss.
        miss: net(missed).saturating_sub(net(call)),
        first_mediated: net(first_mediated),
        forwarded: net(forwarded),
    })
}

/// Runs the steps.
pub(crate) fn steps() {
    let counter = counter::object();
    let between = |step: &mut dyn FnMut()| {
        mark();
        step();
        mark();
    };
    let mut call = || {
        counter.next(1);
    };
    call();
    between(&mut || {});
    between(&mut call);
    request(|| between(&mut call));
    discard_entries();
    between(&mut call);
    let installed = AtomicU32::new(0);
    let hook = move |phase| {
        if phase == Phase::Install && installed.fetch_add(1, Ordering::Relaxed) == 1 {
            let call = || {
                counter.next(1);
            };
            mark();
            call();
            mark();
            mark();
            call();
            mark();
        }
        Ok(())
    };
    let options = SwapOptions { hook: Some(Arc::new(hook)), ..SwapOptions::default() };
    // The first swap warms up.
    for change in 0..2 {
        assert!(swap_named(counter.id(), "plain", change, &options).committed());
    }
    destroy(counter.id());
}
