//! `refit knob set` and `refit knob unset`.

use refit_knobs::saved::{self, Saved, SavedError};
use refit_knobs::{Error, Knob};
use refit_splice::remains::{self, Which};
use serde::Serialize;

use super::arguments::{SetArgs, UnsetArgs};
use super::subject::Subject;
use crate::commands::code::probe::tell_kept;
use crate::commands::code::program::{failure, open, open_to_clean};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// A knob that was set, for programs.
#[derive(Serialize)]
struct Line {
    name: String,
    before: Option<i64>,
    value: i64,
    stop_ns: u64,
}

/// Sets a knob.
pub(super) fn set(
    id: u32,
    file: Option<&str>,
    args: &SetArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let program = open(id)?;
    let subject = Subject::of(&program, file)?;
    let knob = subject.knob("set", &args.knob)?;
    let module = subject.module();
    let done = refit_knobs::set(&program, module, &knob, args.number, args.unchecked);
    let done = done.map_err(|error| refused(id, &knob, args.number, &error))?;
    if args.save {
        let path = &subject.files.mapped(subject.file).path;
        let kept = Saved::of(module.0, path, &knob, args.number, args.unchecked)
            .and_then(|one| saved::add(&saved::path()?, one));
        kept.map_err(|error| not_kept(&knob, &error))?;
    }
    let stop_ns = done.stood.as_nanos() as u64;
    if out.json() {
        let (name, before, value) = (knob.name, done.before, args.number);
        out.object(&Line { name, before, value, stop_ns })?;
    } else {
        let before = done.before.map_or_else(|| "?".to_owned(), |before| before.to_string());
        let stopped = format::nanos(stop_ns);
        out.line(&format!("{}: {before} → {}; stopped for {stopped}", knob.name, args.number))?;
    }
    out.flush()
}

/// Why a knob was not set, with what to do.
pub(super) fn refused(id: u32, knob: &Knob, number: i64, error: &Error) -> Failure {
    let remedy = match error {
        Error::Splice(why) => {
            let remedy = match why {
                refit_splice::Why::Program(_) => "see the limitations in docs/guide/knobs.md",
                refit_splice::Why::Changed { .. } => {
                    "take out probes of that function, or run `refit repair`"
                }
                _ => "see docs/guide/knobs.md",
            };
            return Failure::new(what(id, knob, number), why.to_string(), remedy);
        }
        Error::Escapes { .. } => "set another knob: what depends on this one cannot be followed",
        Error::Unchecked { .. } | Error::Direction { .. } => {
            "look at the code (`refit cfg`), and set it with --unchecked if that is no obstacle"
        }
        Error::Range { .. } => "give a number in this range",
        Error::Endless { .. } => "give another number",
        _ => "see docs/guide/knobs.md",
    };
    Failure::new(what(id, knob, number), error.to_string(), remedy)
}

fn what(id: u32, knob: &Knob, number: i64) -> String {
    format!("set {} of process {id} to {number}", knob.name)
}

fn not_kept(knob: &Knob, error: &SavedError) -> Failure {
    let remedy = match error {
        SavedError::NoDirectory => "set HOME or XDG_STATE_HOME",
        SavedError::NoBuildId { .. } => "set it again after each start",
        SavedError::Damaged { .. } => "correct the file, or remove it",
        _ => "make the file writable",
    };
    let what = format!("save {}, which is set", knob.name);
    Failure::new(what, error.to_string(), remedy)
}

/// Restores one knob, or all of them.
pub(super) fn unset(
    id: u32,
    file: Option<&str>,
    args: &UnsetArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Unset {
        knobs: usize,
    }
    let program = open_to_clean(id)?;
    let Some(text) = &args.knob else {
        let removed = remains::take_out(&program, Which::Immediates);
        let removed = removed.map_err(|why| failure(id, &why.into()))?;
        let knobs = removed.areas + removed.kept;
        if out.json() {
            out.object(&Unset { knobs })?;
        } else if knobs == 0 {
            out.line("no knob is set")?;
        } else {
            out.line(&format!("{} restored", format::counted(knobs as u64, "knob")))?;
        }
        out.flush()?;
        if removed.kept + removed.foreign > 0 {
            tell_kept(id, &removed);
        }
        return Ok(());
    };
    let subject = Subject::of(&program, file)?;
    let knob = subject.knob("unset", text)?;
    let (module, bias) = subject.module();
    let was_set = refit_knobs::unset(&program, bias, &knob);
    let was_set = was_set.map_err(|error| refused(id, &knob, knob.value, &error))?;
    if args.forget {
        let forgotten = saved::path()
            .and_then(|path| saved::remove(&path, &saved::build_id(module), knob.address()));
        forgotten.map_err(|error| not_kept(&knob, &error))?;
    }
    if out.json() {
        out.object(&Unset { knobs: usize::from(was_set) })?;
    } else if was_set {
        out.line(&format!("{}: {}", knob.name, knob.value))?;
    } else {
        out.line(&format!("{} is not set", knob.name))?;
    }
    out.flush()
}
