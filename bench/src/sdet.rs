//! Measures single, replicated and adaptive file caches (Soules 2003, §6.3, fig. 5).
//!
//! The work is Postmark, whose many small files are each used by one program, and a software
//! development workload in the manner of SDET, whose scripts share a tree of files.
//!
//! Every read and write goes to the caches (`--cache direct`). The three take turns, round after
//! round; each round mounts afresh.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::files::{Place, Postmark, Serving, postmark, variable};
use crate::stats::Sample;

/// The workloads.
pub(crate) const WORK: [&str; 4] = [
    "Postmark, 10,000 files, 50,000 transactions: transactions per second",
    "SDET, 2 scripts: commands per second",
    "SDET, 8 scripts: commands per second",
    "one after the other: rounds per hour",
];
/// The ways to choose the implementation of caches.
pub(crate) const CACHES: [&str; 3] = ["single", "replicated", "adaptive"];

const ROUNDS: usize = 5;
const POSTMARK: Postmark = Postmark { files: 10_000, sizes: [512, 16_384], transactions: 50_000 };
/// The number of commands of a script.
const COMMANDS: u32 = 100;

/// `[work][cache]`.
pub(crate) type Rates = [[Sample; CACHES.len()]; WORK.len()];

pub(crate) fn measure() -> Result<Rates, String> {
    let place = Place::new().map_err(|e| format!("a scratch directory: {e}"))?;
    let mut rates = Rates::default();
    for round in 0..ROUNDS {
        for turn in 0..CACHES.len() {
            let cache = (round + turn) % CACHES.len();
            let measured = one_round(CACHES[cache], &place)?;
            for (rate, measured) in rates.iter_mut().zip(measured) {
                rate[cache].push(measured);
            }
        }
        eprintln!("sdet: round {} of {ROUNDS}", round + 1);
    }
    Ok(rates)
}

fn one_round(cache: &str, place: &Place) -> Result<[f64; WORK.len()], String> {
    let implementation = if cache == "replicated" { "partitioned" } else { "shared" };
    let _serving =
        Serving::refit(place, &["--cache", "direct", "--implementation", implementation]);
    let _adapts = (cache == "adaptive").then(Adapting::start).transpose()?;
    let began = Instant::now();
    let transactions = postmark(&place.mountpoint(), POSTMARK);
    let tree = place.mountpoint().join("tree");
    let made = sdet().arg("tree").arg(&tree).status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("the tree of files could not be made".into());
    }
    let two = scripts(place, 2)?;
    let eight = scripts(place, 8)?;
    Ok([transactions, two, eight, 3600.0 / began.elapsed().as_secs_f64()])
}

/// Runs `count` scripts at once. Returns the commands per second of all of them.
fn scripts(place: &Place, count: u32) -> Result<f64, String> {
    let tree = place.mountpoint().join("tree");
    let began = Instant::now();
    let start = |seed: u32| {
        let own = place.mountpoint().join(format!("{count}-{seed}"));
        let [seed, commands] = [seed, COMMANDS].map(|n| n.to_string());
        sdet().arg("script").args([&tree, &own]).args([seed, commands]).spawn()
    };
    let running: Vec<Child> =
        (0..count).map(start).collect::<Result<_, _>>().map_err(|e| format!("a script: {e}"))?;
    let mut failed = 0;
    for mut script in running {
        failed += u32::from(!script.wait().is_ok_and(|status| status.success()));
    }
    if failed > 0 {
        return Err(format!("{failed} of {count} scripts failed"));
    }
    Ok(f64::from(count * COMMANDS) / began.elapsed().as_secs_f64())
}

fn sdet() -> Command {
    let mut command = Command::new("sh");
    command.arg(variable("SDET")).stdout(Stdio::null());
    command
}

/// A running `refit adapt`, which ends on drop.
struct Adapting(Child);

impl Adapting {
    fn start() -> Result<Self, String> {
        let mut command = Command::new(variable("REFIT"));
        command.args(["adapt", "fcm:*"]).stdout(Stdio::null());
        command.spawn().map(Self).map_err(|e| format!("refit adapt: {e}"))
    }
}

impl Drop for Adapting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
