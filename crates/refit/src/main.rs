//! The refit command: a thin layer over the control API of the instances of this user.
//!
//! `refit mount` *is* an instance and runs until it is told to stop; every other command finds the
//! live instances, asks each of them, and prints what they say. Exit codes: 0 done, 1 refused or
//! failed, 2 usage.

#![forbid(unsafe_code)]

/// Says something on standard error, with what would act on a terminal escaped.
macro_rules! say {
    ($($text:tt)*) => { crate::output::say(&format!($($text)*)) };
}

mod cli;
mod commands;
#[cfg(test)]
mod documentation;
mod failure;
mod format;
mod help;
mod histogram;
mod instances;
mod journal;
mod logging;
mod output;
mod table;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::output::Output;

/// Analyses and plans of whole programs are millions of small objects, which all processors make at
/// once. Glibc's allocator takes twice as long for them: an arena other than the first thread's
/// grows by single pages.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output::new(cli.json);
    let result =
        logging::start(&cli.log).and_then(|()| run(&cli, &mut out)).and_then(|()| out.flush());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => error.format(&mut Cli::command()).exit(),
        Err(failure) => ExitCode::from(failure.report()),
    }
}

fn run(cli: &Cli, out: &mut Output) -> Result<(), Failure> {
    let only = cli.instance;
    match &cli.command {
        Command::Files(command) => command.run(only, out),
        Command::Objects(command) => command.run(only, out),
        Command::Code(command) => command.run(out),
        Command::Observe(command) => command.run(only, out),
        Command::Programs(command) => command.run(only, out),
        Command::Moves(command) => command.run(only, out),
        Command::Host(command) => command.run(Cli::command(), only, out),
    }
}
