//! Measures what mounts gain whose source nobody else changes, or whose files are passed through,
//! and how far a mount then is from the file system below it (Soules 2003, §6.3, fig. 6: file
//! sessions and small files).
//!
//! The contenders take turns, round after round; each is mounted afresh.

use crate::files::{Place, Server, Serving, WORK, rate};
use crate::stats::Sample;

const ROUNDS: usize = 5;

/// The contenders: the first is what a user gets without options, the last is no server.
pub(crate) const CONTENDERS: [&str; 6] = [
    "`refit mount`",
    "`--cache exclusive --private --no-xattrs`",
    "`--cache passthrough`",
    "`--cache passthrough --private`",
    "passthrough_hp",
    "no server",
];

/// Operations per second: `[contender][work]`.
pub(crate) type Rates = [[Sample; WORK.len()]; CONTENDERS.len()];

pub(crate) fn measure() -> Result<Rates, String> {
    let place = Place::new().map_err(|e| format!("a scratch directory: {e}"))?;
    let mut rates = Rates::default();
    for round in 0..ROUNDS {
        for turn in 0..CONTENDERS.len() {
            let contender = (round + turn) % CONTENDERS.len();
            let server = match contender {
                0 => Some(Serving::refit(&place, &[])),
                1 => Some(Serving::refit(
                    &place,
                    &["--cache", "exclusive", "--private", "--no-xattrs"],
                )),
                2 => Some(Serving::refit(&place, &["--cache", "passthrough"])),
                3 => Some(Serving::refit(&place, &["--cache", "passthrough", "--private"])),
                4 => Some(Serving::start(Server::Peer, true, &place)),
                _ => None,
            };
            let directory = if server.is_some() { place.mountpoint() } else { place.cleared() };
            for (sample, work) in rates[contender].iter_mut().zip(WORK) {
                sample.push(rate(work, &directory));
            }
        }
        eprintln!("passthrough: round {} of {ROUNDS}", round + 1);
    }
    Ok(rates)
}
