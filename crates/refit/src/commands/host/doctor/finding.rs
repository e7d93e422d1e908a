//! The result of a check, and what several checks need.

use std::fs;

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// The name of the facility.
    pub(super) name: &'static str,
    /// Whether the facility is available.
    pub(super) ok: bool,
    /// Whether nothing can be mounted without it.
    pub(super) required: bool,
    /// The state of the facility.
    pub(super) found: String,
    /// The cost of its absence; empty if it is available.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) cost: &'static str,
    /// The remedy; empty if it is available.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) remedy: &'static str,
}

impl Finding {
    pub(super) fn new(name: &'static str, ok: bool, found: impl Into<String>) -> Self {
        Finding { name, ok, required: false, found: found.into(), cost: "", remedy: "" }
    }

    pub(super) fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Adds the cost and the remedy of its absence.
    pub(super) fn or(mut self, cost: &'static str, remedy: &'static str) -> Self {
        if !self.ok {
            (self.cost, self.remedy) = (cost, remedy);
        }
        self
    }
}

pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(super) const CAP_SYS_ADMIN: u32 = 21;
pub(super) const CAP_PERFMON: u32 = 38;

/// Returns whether this process has a capability (numbers as in `linux/capability.h`).
pub(super) fn capable(capability: u32) -> bool {
    // The kernel always reports a thread's own capabilities to it.
    let sets = rustix::thread::capabilities(None);
    sets.is_ok_and(|sets| sets.effective.bits() & (1 << capability) != 0)
}

/// Returns the text of a file of the kernel, without the end of the line; empty if it does not
/// exist.
pub(super) fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

/// Returns an error of the system without its number.
pub(super) fn words(text: &str) -> String {
    number_off(text).to_lowercase()
}

pub(super) fn number_off(text: &str) -> &str {
    text.split(" (os error").next().unwrap_or(text)
}
