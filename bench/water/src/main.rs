//! WATER: molecular dynamics of liquid water on several threads, with its procedures, barriers and
//! locks instrumented.
//!
//! ```text
//! water --molecules 64 --steps 2 --threads 2             # no instruments at all
//! refit record -o water.trace -- water --traced …        # the same, instrumented
//! ```
//!
//! Prints the energies of the last step and the time of the simulation, in nanoseconds, on the last
//! line.

#![forbid(unsafe_code)]

mod molecule;
mod pair;
mod simulation;
mod trace;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::simulation::{Energies, Setting};
use crate::trace::{Plain, Timed, Traced};

/// Molecular dynamics of water, to be measured
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  refit record -o water.trace -- water --traced --threads 2")]
struct Arguments {
    /// Number of molecules
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..100_000))]
    molecules: u32,

    /// Number of time steps
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// Number of threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..1024))]
    threads: u32,

    /// With instruments, on everything or on a part of it
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "all")]
    traced: Option<What>,

    /// Run this number of rounds, by turns without instruments, with nothing but a clock around
    /// barriers and long procedures, and with instruments; print medians of the whole runs, without
    /// and with, and of the procedures
    #[arg(long, requires = "traced", value_name = "N")]
    by_turns: Option<u32>,
}

/// The instrumented parts.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// Procedures, barriers and locks
    All,
    /// Procedures and barriers
    Procedures,
    /// Barriers and locks
    Waits,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let setting = Setting {
        molecules: arguments.molecules as usize,
        steps: arguments.steps as usize,
        threads: arguments.threads as usize,
        dt: 2e-4,
    };
    if arguments.traced.is_some()
        && let Err(error) = refit_instruments::session::attach_environment()
    {
        eprintln!("water: not recorded: {error}");
    }
    let Some(rounds) = arguments.by_turns else {
        let (took, last) = run(setting, arguments.traced);
        let Energies { kinetic, potential } = last;
        println!("kinetic {kinetic:.6e}, potential {potential:.6e}, total {:.6e}", last.total());
        println!("{}", took.as_nanos());
        return ExitCode::SUCCESS;
    };
    by_turns(setting, arguments.traced, rounds);
    ExitCode::SUCCESS
}

/// Returns the time of a run and its last energies.
fn run(setting: Setting, traced: Option<What>) -> (Duration, Energies) {
    let simulate = match traced {
        Some(What::All) => simulation::run::<Traced<true, true>>,
        Some(What::Procedures) => simulation::run::<Traced<true, false>>,
        Some(What::Waits) => simulation::run::<Traced<false, true>>,
        None => simulation::run::<Plain>,
    };
    let begin = Instant::now();
    let energies = simulate(setting);
    (begin.elapsed(), energies.last().copied().unwrap_or_default())
}

/// Alternates the kinds of runs, so that a disturbance slows all of them.
fn by_turns(setting: Setting, traced: Option<What>, rounds: u32) {
    let [mut without, mut with] = [Vec::new(), Vec::new()];
    let nanos = |took: Duration| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    for _ in 0..rounds {
        without.push(nanos(run(setting, None).0));
        simulation::run::<Timed>(setting);
        with.push(nanos(run(setting, traced).0));
    }
    for (name, times) in [("plain", &mut without), ("traced", &mut with)] {
        println!("{name} {}", trace::median(times).unwrap_or(0));
    }
    trace::timed().for_each(|(name, nanos)| println!("{name} {nanos}"));
}
