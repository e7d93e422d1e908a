//! The flame graph of the stacks under which something was counted.

use std::path::Path;

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

/// Refuses a flame graph of probes that read no stacks.
pub(super) fn check(probes: &[Spec], file: Option<&Path>) -> Result<(), Failure> {
    let mut statements = probes.iter().flat_map(|probe| &probe.actions);
    if file.is_none() || statements.any(|one| one.by.iter().any(Argument::is_stack)) {
        return Ok(());
    }
    let remedy = "separate what is counted by stacks: @[ustack] = count()";
    Err(Failure::new("draw a flame graph", "no probe reads stacks", remedy))
}

/// Draws what was counted under stacks. If several actions count under stacks, each has a frame of
/// its own below its stacks.
pub(super) fn draw(read: &[Read<'_>], file: &Path) -> Result<(), Failure> {
    let sized: Vec<_> =
        read.iter().filter_map(|one| Some((one, frames(one)?, size(one)?))).collect();
    let name = |one: &Read<'_>| format!("{}: {}", one.place(false), one.watching.what);
    let first = sized.first().map(|(one, ..)| name(one)).unwrap_or_default();
    let several = sized.iter().any(|(one, ..)| name(one) != first);
    let lines: Vec<String> = sized
        .iter()
        .map(|(one, frames, size)| {
            let root = several.then(|| export::frame(&name(one)));
            let stack: Vec<String> = root.into_iter().chain(frames.iter().cloned()).collect();
            format!("{} {size}", stack.join(";"))
        })
        .collect();
    if lines.is_empty() {
        say!("refit: {} not drawn: nothing was counted", file.display());
        return Ok(());
    }
    let unit = match sized.first().map(|(one, ..)| &one.watching.what) {
        Some(Do::Fold(_, number)) => number.to_string(),
        _ => "calls".to_owned(),
    };
    let title = if several { "stacks" } else { &first };
    flame::draw(title, &unit, &lines, file)
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
