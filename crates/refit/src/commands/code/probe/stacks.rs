//! The stacks under which something was counted: folded, or drawn as a flame graph.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use clap::builder::ValueHint;
use refit_instruments::export;
use refit_probe::action::Do;
use refit_probe::argument::Argument;
use refit_probe::datum::Datum;
use refit_probe::reading::Reading;
use refit_probe::spec::Spec;
use refit_probe::stacks::StackFrame;

use super::super::flame;
use super::reading::{Key, Read};
use crate::failure::Failure;

/// The files that stacks go to.
#[derive(Debug, Args)]
pub(super) struct StackFiles {
    /// Draw what was counted by ustack as a flame graph to this file (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    svg: Option<PathBuf>,

    /// Write what was counted by ustack to this file, a line per stack, for other tools
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    folded: Option<PathBuf>,
}

impl StackFiles {
    /// Refuses files of stacks if no probe reads any.
    pub(super) fn check(&self, probes: &[Spec]) -> Result<(), Failure> {
        let Some(file) = self.svg.as_ref().or(self.folded.as_ref()) else { return Ok(()) };
        let mut statements = probes.iter().flat_map(|probe| &probe.actions);
        if statements.any(|one| one.by.iter().any(Argument::is_stack)) {
            return Ok(());
        }
        let remedy = "separate what is counted by stacks: @[ustack] = count()";
        let asked = format!("write stacks to {}", file.display());
        Err(Failure::new(asked, "no probe reads stacks", remedy))
    }

    /// Writes what was counted under stacks.
    pub(super) fn write(&self, read: &[Read<'_>]) -> Result<(), Failure> {
        if self.svg.is_none() && self.folded.is_none() {
            return Ok(());
        }
        let Folded { title, unit, lines } = fold(read);
        let files = [self.svg.as_deref(), self.folded.as_deref()];
        if lines.is_empty() {
            for file in files.into_iter().flatten() {
                say!("refit: {} not written: nothing was counted", file.display());
            }
            return Ok(());
        }
        if let Some(file) = &self.svg {
            flame::draw(&title, &unit, &lines, file)?;
        }
        if let Some(file) = &self.folded {
            fs::write(file, lines.join("\n") + "\n").map_err(|e| {
                let remedy = "make room, or name a file that you may write to";
                Failure::new(format!("write {}", file.display()), e.to_string(), remedy)
            })?;
        }
        Ok(())
    }
}

/// Folded stacks.
struct Folded {
    title: String,
    unit: String,
    lines: Vec<String>,
}

/// Folds what was counted under stacks. If several actions count under stacks, each has a frame of
/// its own below its stacks.
fn fold(read: &[Read<'_>]) -> Folded {
    let sized: Vec<_> =
        read.iter().filter_map(|one| Some((one, frames(one)?, size(one)?))).collect();
    let name = |one: &Read<'_>| format!("{}: {}", one.place(false), one.watching.what);
    let first = sized.first().map(|(one, ..)| name(one)).unwrap_or_default();
    let several = sized.iter().any(|(one, ..)| name(one) != first);
    let lines = sized
        .iter()
        .map(|(one, frames, size)| {
            let root = several.then(|| export::frame(&name(one)));
            let stack: Vec<String> = root.into_iter().chain(frames.iter().cloned()).collect();
            format!("{} {size}", stack.join(";"))
        })
        .collect();
    let unit = match sized.first().map(|(one, ..)| &one.watching.what) {
        Some(Do::Fold(_, number)) => number.to_string(),
        _ => "calls".to_owned(),
    };
    let title = if several { "stacks".to_owned() } else { first };
    Folded { title, unit, lines }
}

/// Returns the names of its frames, the outermost first; `None` if it has no stack.
fn frames(read: &Read<'_>) -> Option<Vec<String>> {
    let Key::Of(data) = &read.key else { return None };
    let frames = data.iter().find_map(Datum::frames)?;
    let name = |frame: &StackFrame| match &frame.function {
        Some(function) => export::frame(function),
        None => export::frame(&frame.to_string()),
    };
    Some(frames.iter().rev().map(name).collect())
}

/// Returns the size of a result, if it is positive.
fn size(read: &Read<'_>) -> Option<u64> {
    let size = match &read.reading {
        Reading::Count(count) => *count,
        Reading::Folded { values: 1.., result } => u64::try_from(*result).ok()?,
        Reading::Histogram(sizes) => sizes.iter().sum(),
        Reading::Linear(buckets) => buckets.iter().sum(),
        _ => return None,
    };
    Some(size).filter(|size| *size > 0)
}
