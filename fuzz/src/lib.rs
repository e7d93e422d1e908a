//! Every reader of foreign bytes, as a function that accepts any bytes. It may reject them or
//! interpret them, but it has to return without a panic, in a time and with memory that are bounded
//! by their length.
//!
//! `ci/fuzz.sh` searches for bytes that violate this, and `regressions/` holds bytes that once did,
//! for the tests.

mod code;
mod file;
mod instance;
mod peer;
mod splice;
mod trace;

/// A reader of foreign bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target, and of its folder in `regressions/`.
    pub name: &'static str,
    /// Reads the bytes in every way in which they could be read.
    pub feed: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 14] = [
    Target { name: "analyse_code", feed: code::analyse },
    Target { name: "read_lines", feed: code::lines },
    Target { name: "read_types", feed: code::types },
    Target { name: "read_split_types", feed: code::split_types },
    Target { name: "remember_analysis", feed: code::remember },
    Target { name: "read_profile", feed: code::profile },
    Target { name: "read_probe", feed: splice::probe },
    Target { name: "read_patch_area", feed: splice::patch_area },
    Target { name: "read_trace", feed: trace::read },
    Target { name: "read_message", feed: instance::message },
    Target { name: "read_composition", feed: instance::composition },
    Target { name: "read_peer", feed: peer::messages },
    Target { name: "read_rings", feed: peer::rings },
    Target { name: "inspect_plugin", feed: instance::plugin },
];

/// Returns the target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
