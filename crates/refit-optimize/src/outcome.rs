//! The steps of an optimisation, and its end.

use std::time::Duration;

use refit_splice::Installed;
use refit_splice::process::Stops;

use crate::footprint::Footprints;
use crate::interval::Interval;
use crate::layout::Figures;
use crate::prove::Proof;

/// A step that has been made, for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// This number of functions is left out, since the program has other code for them than its
    /// file.
    LeftOut(usize),
    /// Functions were called, and this number of them was found hot.
    Called(usize, usize),
    /// The blocks of this number of functions were counted for some time.
    Profiled(usize, Duration),
    /// The profile was added to what is stored of the file, which is the sum of this number of
    /// profiles now.
    Stored(u32),
    /// The profile could not be stored, for this reason.
    NotStored(String),
    /// A stored profile is used.
    Restored {
        /// Number of profiles that it is the sum of.
        profiles: u32,
        /// Number of functions that were called.
        called: usize,
        /// Number of functions whose blocks were counted.
        counted: usize,
        /// Number of functions left out, since they have other blocks now.
        left_out: usize,
    },
    /// Functions and blocks are copied; what the code is like before and after that.
    LaidOut(usize, usize, Figures, Figures),
    /// This function's calls are the progress.
    Progress(String),
    /// Copies in the old order were measured.
    Placebo(Proof),
    /// Copies in the new order were measured.
    Measured(Proof),
}

/// The end of an optimisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The copies stay, since they pay.
    Kept(Interval),
    /// They stay, as was asked for.
    Unproved,
    /// They stay, as was asked for, and come from a stored profile.
    FromProfile,
    /// They have been taken out: it is not sure that they pay.
    Undone(Interval),
    /// Nothing was changed, as was asked for.
    Rehearsed,
}

impl Verdict {
    /// Returns the gain that was measured.
    pub fn gain(&self) -> Option<Interval> {
        match *self {
            Self::Kept(gain) | Self::Undone(gain) => Some(gain),
            Self::Unproved | Self::FromProfile | Self::Rehearsed => None,
        }
    }
}

/// The result.
#[derive(Debug)]
pub struct Outcome {
    /// The end of it.
    pub verdict: Verdict,
    /// The stops of the program, with those of the profile.
    pub stops: Stops,
    /// The gain of copies in the old order.
    pub placebo: Option<Interval>,
    /// The copies, if they stay.
    pub installed: Option<Installed>,
    /// The cache lines of the hot code, if that was asked for.
    pub footprints: Option<Footprints>,
}
