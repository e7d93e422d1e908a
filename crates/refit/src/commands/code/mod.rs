//! Look into code: probes in running programs, and the functions of programs and libraries.

mod cfg;
mod cover;
mod drill;
mod edge;
mod funcs;
mod layout;
mod listing;
mod picture;
pub(crate) mod probe;
mod subject;
pub(crate) mod watching;

use clap::Subcommand;

use self::cfg::CfgArgs;
use self::cover::CoverArgs;
use self::drill::DrillArgs;
use self::funcs::FuncsArgs;
use self::probe::{ProbeArgs, RepairArgs};
use crate::failure::Failure;
use crate::output::Output;

/// Commands that look into the code of programs.
#[derive(Debug, Subcommand)]
pub(crate) enum CodeCommand {
    /// Watch functions and instructions of a program that runs: how often, how long, with what
    Probe(ProbeArgs),

    /// Watch which basic blocks of a program are reached, at a cost that vanishes as they are
    Cover(CoverArgs),

    /// Measure where the time in a function goes: its callees, and on into the one that takes most
    Drill(DrillArgs),

    /// Take out of a program what a killed refit has left
    Repair(RepairArgs),

    /// List functions of a program or library: where they are, how large, who knows of them
    Funcs(FuncsArgs),

    /// Show the control flow of a function: basic blocks, edges, instructions, what is dead where
    Cfg(CfgArgs),
}

impl CodeCommand {
    /// Runs the command, which needs no instance.
    pub(crate) fn run(&self, out: &mut Output) -> Result<(), Failure> {
        match self {
            CodeCommand::Probe(args) => probe::run(args, out),
            CodeCommand::Cover(args) => cover::run(args, out),
            CodeCommand::Drill(args) => drill::run(args, out),
            CodeCommand::Repair(args) => probe::repair(args, out),
            CodeCommand::Funcs(args) => funcs::run(args, out),
            CodeCommand::Cfg(args) => cfg::run(args, out),
        }
    }
}
