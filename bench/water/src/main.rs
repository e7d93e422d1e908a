//! WATER: molecular dynamics of liquid water on several threads, with its procedures, barriers and locks instrumented.
//!
//! ```text
//! water --molecules 64 --steps 2 --threads 2             # no instruments at all
//! refit record -o water.trace -- water --traced …        # the same, instrumented
//! ```
//!
//! Prints the energies of the last step and the time of the simulation, in nanoseconds, on the last line.

#![forbid(unsafe_code)]

mod molecule;
mod pair;
mod simulation;
mod trace;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::simulation::{Energies, Setting};
use crate::trace::{Plain, Timed, Traced};

/// Molecular dynamics of water, to be measured
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  refit record -o water.trace -- water --traced --threads 2")]
struct Arguments {
    /// How many molecules
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..100_000))]
    molecules: u32,

    /// How many steps of time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// How many threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..1024))]
    threads: u32,

    /// With instruments, on everything or on a part of it
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "all")]
    traced: Option<What>,

    /// Without instruments, but with a clock around this procedure, e.g. INTERF; prints its time instead
    #[arg(long, conflicts_with = "traced", value_name = "PROCEDURE")]
    time: Option<String>,
}

/// What is instrumented.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// Procedures, barriers and locks
    All,
    /// Procedures
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
    if arguments.time.as_deref().is_some_and(|name| !trace::select(name)) {
        eprintln!("water: there is no such procedure; see Kohr 1994, table 2");
        return ExitCode::from(2);
    }
    let begin = Instant::now();
    let energies = match arguments.traced {
        Some(What::All) => simulation::run::<Traced<true, true>>(setting),
        Some(What::Procedures) => simulation::run::<Traced<true, false>>(setting),
        Some(What::Waits) => simulation::run::<Traced<false, true>>(setting),
        None if arguments.time.is_some() => simulation::run::<Timed>(setting),
        None => simulation::run::<Plain>(setting),
    };
    let took = begin.elapsed();
    let last = energies.last().copied().unwrap_or_default();
    let Energies { kinetic, potential } = last;
    println!("kinetic {kinetic:.6e}, potential {potential:.6e}, total {:.6e}", last.total());
    let nanos = if arguments.time.is_some() { u128::from(trace::timed()) } else { took.as_nanos() };
    println!("{nanos}");
    ExitCode::SUCCESS
}
