//! `fault`: delays calls, or makes them fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::cells::{Padded, count, read};
use super::options::{Settings, WrapperError};
use crate::wrapper::{After, PreCall, Wrapper};

/// The largest `errno` of Linux.
const ERRNO_AT_MOST: u64 = 4095;

#[derive(Debug)]
pub(super) struct Fault {
    options: String,
    only: Option<usize>,
    delay: Option<Duration>,
    error: Option<i32>,
    every: u64,
    /// The number of calls that could have been affected. One counter for all, since `every`
    /// applies across threads.
    calls: Padded<AtomicU64>,
    delayed: AtomicU64,
    failed: AtomicU64,
}

impl Fault {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, WrapperError> {
        let (only, delay) = (settings.method()?, settings.duration("delay")?);
        let error = settings.number("error")?;
        if error.is_some_and(|n| n > ERRNO_AT_MOST) {
            return Err(settings.bad("error", "write an errno, e.g. 5 for EIO"));
        }
        if delay.is_none() && error.is_none() {
            return Err(settings.missing("delay", "or error=…, e.g. delay=1ms or error=5"));
        }
        let shapes = settings.interface.interposer.methods.iter().enumerate();
        let mut chosen = shapes.filter(|(n, _)| only.is_none_or(|only| only == *n));
        if error.is_some() && !chosen.any(|(_, shape)| (shape.can_fail)()) {
            return Err(settings.unfit("no chosen method has a result that can express an errno"));
        }
        Ok(Fault {
            options: settings.given(),
            only,
            delay,
            error: error.and_then(|n| i32::try_from(n).ok()),
            every: settings.number("every")?.unwrap_or(1),
            calls: Padded::default(),
            delayed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }
}

impl Wrapper for Fault {
    fn name(&self) -> &str {
        "fault"
    }

    fn precall(&self, call: &PreCall<'_>) -> After {
        let meant = self.only.is_none_or(|only| only == call.method())
            && (self.delay.is_some() || call.can_fail());
        if !meant {
            return After::Forward;
        }
        let n = self.calls.0.fetch_add(1, Ordering::Relaxed) + 1;
        if !n.is_multiple_of(self.every) {
            return After::Forward;
        }
        if let Some(delay) = self.delay {
            count(&self.delayed);
            std::thread::sleep(delay);
        }
        match self.error {
            Some(errno) if call.can_fail() => {
                count(&self.failed);
                After::Fail(errno)
            }
            _ => After::Forward,
        }
    }

    fn options(&self) -> String {
        self.options.clone()
    }

    fn stats(&self) -> Vec<(String, u64)> {
        vec![
            ("calls".into(), read(&self.calls.0)),
            ("delayed".into(), read(&self.delayed)),
            ("failed".into(), read(&self.failed)),
        ]
    }
}
