//! Splicing into running programs: counts are exact, results are unchanged, nothing is left behind.

mod caller;
mod calls;
mod immediates;
mod lives;
mod places;
mod sequences;
mod steps;
mod victim;
