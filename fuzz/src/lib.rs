//! Every reader of bytes that somebody else wrote, as a function that takes any: it may refuse them or make sense of them, but has
//! to come to an end, in a time and with memory that the length of them bounds, and without a panic.
//!
//! `ci/fuzz.sh` looks for bytes that break this, and `regressions/` holds what has broken it, for the tests.

mod code;
mod file;
mod instance;
mod peer;
mod splice;
mod trace;

/// A reader of foreign bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called; so is its folder in `regressions/`.
    pub name: &'static str,
    /// Reads the bytes in all ways in which they could be read.
    pub feed: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 11] = [
    Target { name: "analyse_code", feed: code::analyse },
    Target { name: "read_lines", feed: code::lines },
    Target { name: "remember_analysis", feed: code::remember },
    Target { name: "read_probe", feed: splice::probe },
    Target { name: "read_patch_area", feed: splice::patch_area },
    Target { name: "read_trace", feed: trace::read },
    Target { name: "read_message", feed: instance::message },
    Target { name: "read_composition", feed: instance::composition },
    Target { name: "read_peer", feed: peer::messages },
    Target { name: "read_rings", feed: peer::rings },
    Target { name: "inspect_plugin", feed: instance::plugin },
];

/// The one that is called so.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
