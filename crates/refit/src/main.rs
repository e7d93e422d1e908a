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
mod hierarchy;
mod histogram;
mod instances;
mod logging;
mod output;
mod processors;
mod table;
mod tally;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command, HeaderArg};
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = Output::new(cli.json);
    let result =
        logging::start(&cli.log).and_then(|()| run(&cli, &mut out)).and_then(|()| out.flush());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => exit(failure),
    }
}

/// Says what is to be said and gives the exit code.
fn exit(failure: Failure) -> ExitCode {
    match failure {
        Failure::Unread => ExitCode::SUCCESS,
        Failure::Said => ExitCode::FAILURE,
        Failure::Usage(error) => error.format(&mut Cli::command()).exit(),
        Failure::Several(refusals) => {
            refusals.iter().for_each(|refusal| say!("refit: {refusal}"));
            ExitCode::FAILURE
        }
        refused => {
            say!("{refused}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, out: &mut Output) -> Result<(), Failure> {
    let only = cli.instance;
    match &cli.command {
        Command::Mount(args) => commands::mount::run(args, out),
        Command::Ls(args) => commands::objects::list(args, only, out),
        Command::Show(args) => commands::objects::show(args, only, out),
        Command::Swap(args) => commands::swap::run(args, only, out),
        Command::Adapt(args) => commands::adapt::run(args, only, out),
        Command::Classes => commands::classes::list(only, out),
        Command::Upgrade(args) => commands::classes::upgrade(args, only, out),
        Command::Wrap(args) => commands::wrap::wrap(args, only, out),
        Command::Unwrap(args) => commands::wrap::unwrap(args, only, out),
        Command::Load { plugin } => commands::plugins::load(plugin, only, out),
        Command::Plugins => commands::plugins::list(only, out),
        Command::Unload { plugin } => commands::plugins::unload(plugin, only),
        Command::Changes(args) => commands::changes::run(args, only, out),
        Command::Funcs(args) => commands::code::funcs::run(args, out),
        Command::Cfg(args) => commands::code::cfg::run(args, out),
        Command::Report(args) => commands::report::run(args, out),
        Command::Export(args) => commands::export::run(args),
        Command::Cache { glob, mode } => commands::mounts::cache(glob, *mode, only, out),
        Command::Mounts => commands::mounts::list(only, out),
        Command::Umount { mountpoint, discard } => {
            commands::mounts::unmount(mountpoint, *discard, only, out)
        }
        Command::Run(args) => commands::run::run(args),
        Command::Tend { process, memory, movable } => {
            commands::tend::run(*process, *memory, *movable)
        }
        Command::Boot(args) => commands::boot::run(args, out),
        Command::Kernel { number, processors, setting } => {
            commands::boot::be(*number, processors, setting)
        }
        Command::Instances => commands::boot::list(only, out),
        Command::Shutdown { kill } => commands::boot::shutdown(*kill, only),
        Command::Move(args) => commands::moves::run(args, only),
        Command::Spread { pid } => commands::moves::spread(*pid, only),
        Command::Limit(args) => commands::limit::run(args, only, out),
        Command::Ps => commands::ps::run(only, out),
        Command::Probe(args) => commands::probe::run(args, out),
        Command::Cover(args) => commands::cover::run(args, out),
        Command::Drill(args) => commands::drill::run(args, out),
        Command::Repair(args) => commands::probe::repair(args, out),
        Command::Record(args) => commands::record::run(args, only, out),
        Command::Instruments(args) => commands::instruments::run(args, only, out),
        Command::Top(args) => commands::top::run(args, only, out),
        Command::Metrics(args) => commands::metrics::run(args, only, out),
        Command::DebugDump => commands::debug_dump::run(only, out),
        Command::Doctor => commands::doctor::run(out),
        Command::Tour(args) => commands::tour::run(args, out),
        Command::Completions { shell } => commands::documents::completions(*shell, out),
        Command::Header { which: HeaderArg::Move } => out.raw(refit_migrate::HEADER.as_bytes()),
        Command::Header { which: HeaderArg::Instruments } => {
            out.raw(refit_instruments::HEADER.as_bytes())
        }
        Command::Man { directory } => commands::documents::man(directory, out),
    }
}
