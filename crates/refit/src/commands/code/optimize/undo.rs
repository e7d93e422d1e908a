//! `refit optimize --undo` and `--status`.

use refit_splice::process::Program;
use refit_splice::remains::{self, Which};
use serde::Serialize;

use super::journaled::Undo;
use crate::commands::code::probe::tell_kept;
use crate::commands::code::program::{failure, open_to_clean};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

pub(super) fn undo(id: u32, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        areas: usize,
        gates: usize,
        kept: usize,
    }
    let program = open_to_clean(id)?;
    let change = Undo::begin();
    let removed = remains::take_out(&program, Which::Arrangements);
    let removed = removed.map_err(|why| failure(id, &why.into()))?;
    let (areas, gates, kept) = (removed.areas, removed.sites, removed.kept);
    if gates > 0 {
        change.end(&program);
    }
    if out.json() {
        out.object(&Line { areas, gates, kept })?;
    } else if areas + kept == 0 {
        out.line("the process is not optimised")?;
    } else {
        let stood = format::nanos(removed.stood.as_nanos() as u64);
        out.line(&format!("undone: {}; stopped for at most {stood}", sites(gates)))?;
    }
    out.flush()?;
    if kept > 0 {
        tell_kept(id, &removed);
    }
    Ok(())
}

fn sites(gates: usize) -> String {
    format!("{} of its code restored", format::counted(gates as u64, "place"))
}

pub(super) fn status(id: u32, out: &mut Output) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line {
        optimised: bool,
        gates: usize,
        bytes: u64,
    }
    let program: Program = open_to_clean(id)?;
    let found = remains::find(&program).map_err(|refusal| failure(id, &refusal.into()))?;
    let arranged = found.iter().filter(|one| one.makes_calls() && !one.has_versions());
    let mut entered = arranged.map(|one| (one.entered(&program), one.code_bytes()));
    let (gates, bytes) = entered.find(|(gates, _)| *gates > 0).unwrap_or_default();
    let optimised = gates > 0;
    if out.json() {
        out.object(&Line { optimised, gates, bytes })?;
    } else if optimised {
        let (places, size) = (format::counted(gates as u64, "place"), format::size(bytes));
        out.line(&format!("optimised: control enters {size} of copies at {places}"))?;
    } else {
        out.line("not optimised")?;
    }
    out.flush()
}
