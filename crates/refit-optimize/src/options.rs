//! The options of an optimisation.

use std::path::PathBuf;
use std::time::Duration;

use refit_probe::spec::Spec;

use crate::prove::LOOKS;

/// The parts of a program that are optimised, and the way.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for which the program is profiled.
    pub profile: Duration,
    /// The file: the path, or a part of its name; the program's own if there is none.
    pub file: Option<String>,
    /// Only these functions, and what they call, by a pattern over names; everything if there is
    /// none.
    pub functions: Option<String>,
    /// Calls of this function are the program's progress; found if there is none.
    pub progress: Option<Spec>,
    /// Time of a slot in which progress is measured.
    pub slot: Duration,
    /// Number of rounds in which copies in the old order are measured first; 0 for none.
    pub placebo: usize,
    /// Whether nothing is changed but for the counters of the profile.
    pub rehearse: bool,
    /// Whether the copies are kept without a proof.
    pub unproved: bool,
    /// The directory in which profiles are stored, and to which the one of this time is added; none
    /// is stored without it.
    pub profiles: Option<PathBuf>,
    /// Whether the stored profile is used instead of counting.
    pub from_profile: bool,
    /// Whether the result has the cache lines of the hot code.
    pub footprints: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: Duration::from_secs(3),
            file: None,
            functions: None,
            progress: None,
            slot: Duration::from_millis(25),
            placebo: LOOKS[0],
            rehearse: false,
            unproved: false,
            profiles: None,
            from_profile: false,
            footprints: false,
        }
    }
}
