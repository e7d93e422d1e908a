//! `refit repair`: cleaning up after a refit that was killed.

use clap::Args;
use refit_probe::modules;
use refit_splice::process::Program;
use refit_splice::remains;
use serde::Serialize;

use super::tell::tell_kept;
use crate::commands::code::program::{failure, open_to_clean};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Arguments of `refit repair`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  refit repair -p 4711\n  refit repair -p 4711 --verify")]
pub(crate) struct RepairArgs {
    /// Process ID of the program
    #[arg(short, long, value_name = "PID")]
    pid: u32,

    /// Change nothing; check whether all its code equals that in its files
    #[arg(long)]
    verify: bool,
}

/// Takes out what a killed refit has left in a program, or says that there is nothing.
pub(crate) fn repair(args: &RepairArgs, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        areas: usize,
        sites: usize,
        foreign: usize,
        kept: usize,
    }
    let id = args.pid;
    let program = open_to_clean(id)?;
    if args.verify {
        return verify(&program, out);
    }
    let removed = remains::repair(&program).map_err(|why| failure(id, &why.into()))?;
    let remains::Removed { areas, sites, foreign, kept, because, .. } = removed;
    if out.json() {
        out.object(&Line { areas, sites, foreign, kept })?;
    } else if areas + sites + foreign + kept == 0 {
        out.line("nothing of refit is in the process")?;
    } else {
        let (sites, areas) =
            (format::counted(sites as u64, "site"), format::counted(areas as u64, "patch area"));
        out.line(&format!("{sites} removed, {areas} unmapped"))?;
    }
    out.flush()?;
    if kept > 0 {
        let why = because.map_or_else(String::new, |because| format!(": {because}"));
        return Err(Failure::new(
            format!("repair process {id}"),
            format!(
                "{} left mapped, which no code enters{why}",
                format::counted(kept as u64, "patch area")
            ),
            "end any other tool that changes the process, then try again",
        ));
    }
    if foreign > 0 {
        tell_kept(id, &removed);
    }
    Ok(())
}

fn verify(program: &Program, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        files: usize,
        areas: usize,
        differences: Vec<String>,
    }
    let id = program.id();
    let failed = |obstacle: String| {
        Failure::new(format!("verify process {id}"), obstacle, "run refit as root")
    };
    let mapped = modules::of(program).map_err(|refusal| failed(refusal.to_string()))?;
    let mut differences = Vec::new();
    for file in &mapped {
        let found =
            file.differences(program).map_err(|e| failed(format!("{}: {e}", file.name())))?;
        differences.extend(found.iter().map(|address| format!("{}: {address:#x}", file.name())));
    }
    let areas = remains::find(program).map_err(|refusal| failed(refusal.to_string()))?.len();
    if out.json() {
        out.object(&Line { files: mapped.len(), areas, differences: differences.clone() })?;
    } else {
        out.line(&format!(
            "{} of code compared, {}",
            format::counted(mapped.len() as u64, "file"),
            if differences.is_empty() { "all as on disk" } else { "not all as on disk" }
        ))?;
    }
    out.flush()?;
    if differences.is_empty() && areas == 0 {
        return Ok(());
    }
    let mut obstacle = format!("{areas} patch areas are mapped");
    if let Some(first) = differences.first() {
        obstacle = format!(
            "code differs from its file at {} places, first {first}; {obstacle}",
            differences.len()
        );
    }
    Err(Failure::new(
        format!("verify process {id}"),
        obstacle,
        "remove code of refit with `refit repair`",
    ))
}
