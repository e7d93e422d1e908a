//! Look into code: probes in running programs, and the functions of programs and libraries.

mod cfg;
mod cover;
mod drill;
mod edge;
mod flame;
mod footprint;
mod funcs;
mod knob;
mod layout;
mod listing;
mod optimize;
mod picture;
pub(crate) mod probe;
pub(crate) mod program;
mod proof;
mod specialize;
mod subject;
pub(crate) mod watching;

use clap::Subcommand;

use self::cfg::CfgArgs;
use self::cover::CoverArgs;
use self::drill::DrillArgs;
use self::funcs::FuncsArgs;
use self::knob::KnobArgs;
use self::optimize::OptimizeArgs;
use self::probe::{ProbeArgs, RepairArgs};
use self::specialize::SpecializeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Commands that look into the code of programs.
#[derive(Debug, Subcommand)]
pub(crate) enum CodeCommand {
    /// Probe functions and instructions of a running program: counts, times and values
    Probe(ProbeArgs),

    /// Report which basic blocks of a program execute; each block costs time only until reached
    Cover(CoverArgs),

    /// Measure the time in a function and its callees, then descend into the slowest callee
    Drill(DrillArgs),

    /// Lay out the hot code of a running program anew, and keep that if it pays
    Optimize(OptimizeArgs),

    /// Find constants in the code of a running program that act as tunables, and set them
    Knob(KnobArgs),
    /// Make versions of a function for the hot values of an argument, and keep them if they pay
    Specialize(SpecializeArgs),

    /// Remove spliced code that a killed refit left in a program
    Repair(RepairArgs),

    /// List functions of a program or library: address, size, blocks, and sources
    Funcs(FuncsArgs),

    /// Show the control flow of a function: basic blocks, edges, instructions, dead registers
    Cfg(CfgArgs),
}

impl CodeCommand {
    /// Runs the command, which needs no instance.
    pub(crate) fn run(&self, out: &mut Output) -> Result<(), Failure> {
        match self {
            CodeCommand::Probe(args) => probe::run(args, out),
            CodeCommand::Cover(args) => cover::run(args, out),
            CodeCommand::Drill(args) => drill::run(args, out),
            CodeCommand::Optimize(args) => optimize::run(args, out),
            CodeCommand::Knob(args) => knob::run(args, out),
            CodeCommand::Specialize(args) => specialize::run(args, out),
            CodeCommand::Repair(args) => probe::repair(args, out),
            CodeCommand::Funcs(args) => funcs::run(args, out),
            CodeCommand::Cfg(args) => cfg::run(args, out),
        }
    }
}
