//! `refit knob apply`: knobs that were saved.

use refit_analysis::image::Image;
use refit_knobs::name::Name;
use refit_knobs::saved::{self, Saved};
use refit_knobs::{Knob, locate};
use refit_probe::files::Files;
use refit_splice::process::Program;
use serde::Serialize;

use super::turn::refused;
use crate::commands::code::program::{failure, open};
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// A knob that was set, for programs.
#[derive(Serialize)]
struct Line {
    name: String,
    file: String,
    value: i64,
}

/// Sets the knobs that were saved for files of the program, by their build ids.
pub(super) fn run(id: u32, out: &mut Output) -> Result<(), Failure> {
    let what = || format!("set the saved knobs of process {id}");
    let failed = |obstacle: String| Failure::new(what(), obstacle, "see docs/guide/knobs.md");
    let all = saved::path().and_then(|path| saved::read(&path));
    let all = all.map_err(|error| failed(error.to_string()))?;
    let program = open(id)?;
    let mut files = Files::new(&program).map_err(|refusal| failure(id, &refusal.into()))?;
    let (mut done, mut first) = (0, None);
    for file in files.all() {
        // A file that cannot be read has no knobs that were saved.
        let image = Image::open(&files.mapped(file).file);
        let id_of = |image: &Image| -> String {
            image.build_id().iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let Ok(build_id) = image.map(|image| id_of(&image)) else { continue };
        for one in all.iter().filter(|one| one.build_id == build_id) {
            match apply(&program, &mut files, file, one) {
                Ok(knob) if out.json() => {
                    let (name, value) = (knob.name, one.value);
                    out.object(&Line { name, file: files.mapped(file).name(), value })?;
                    done += 1;
                }
                Ok(knob) => {
                    out.line(&format!("{}: {} → {}", knob.name, one.original, one.value))?;
                    done += 1;
                }
                // The others are set as well.
                Err(failure) => _ = first.get_or_insert(failure),
            }
        }
    }
    if done == 0 && first.is_none() && !out.json() {
        out.line("no knob was saved for its files")?;
    } else if !out.json() {
        out.line(&format!("{} set", format::counted(done, "knob")))?;
    }
    out.flush()?;
    first.map_or(Ok(()), Err)
}

fn apply(program: &Program, files: &mut Files, file: usize, one: &Saved) -> Result<Knob, Failure> {
    let id = program.id();
    let (module, bias) = files.open(file).map_err(|error| failure(id, &error))?;
    let failed = |obstacle: String| {
        let what = format!("set the saved knob {} of process {id}", one.name);
        Failure::new(what, obstacle, "remove it with `refit knob unset --forget`, and set it anew")
    };
    let knob = locate(module, &Name::Address(one.address)).map_err(|e| failed(e.to_string()))?;
    if knob.value != one.original {
        return Err(failed(format!(
            "its number in the file is {}, not {}",
            knob.value, one.original
        )));
    }
    refit_knobs::set(program, (module, bias), &knob, one.value, one.unchecked)
        .map_err(|error| refused(id, &knob, one.value, &error))?;
    Ok(knob)
}
