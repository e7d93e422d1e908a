//! The file of a program whose knobs are meant.

use refit_analysis::Module;
use refit_knobs::{Knob, NotFound, locate};
use refit_probe::files::Files;
use refit_probe::modules;
use refit_splice::process::Program;

use crate::commands::code::program::failure;
use crate::failure::Failure;

/// A file that a program has mapped.
pub(super) struct Subject {
    pub(super) files: Files,
    /// Its index.
    pub(super) file: usize,
}

impl Subject {
    /// Finds the file, by a part of its path; the program's own without.
    pub(super) fn of(program: &Program, part: Option<&str>) -> Result<Self, Failure> {
        let id = program.id();
        let mut files = Files::new(program).map_err(|refusal| failure(id, &refusal.into()))?;
        let has = |file: &usize, part| files.mapped(*file).path.to_string_lossy().contains(part);
        let found: Vec<usize> = match part {
            Some(part) => files.all().filter(|file| has(file, part)).collect(),
            None => files.own(program).into_iter().collect(),
        };
        let file = match (&found[..], part) {
            ([file], _) | ([file, ..], None) => *file,
            ([], _) => {
                let wanted = part.map_or_else(|| modules::own_path(program), str::to_owned);
                let there: Vec<_> = files.all().map(|file| files.mapped(file).name()).collect();
                return Err(Failure::new(
                    format!("find knobs of process {id}"),
                    format!("it runs no file {wanted}"),
                    format!("name a part of one of these paths: {}", there.join(", ")),
                ));
            }
            (several, Some(part)) => {
                let there: Vec<_> = several.iter().map(|&file| files.mapped(file).name()).collect();
                return Err(Failure::new(
                    format!("find knobs of process {id}"),
                    format!("it runs several files whose paths contain {part}"),
                    format!("name more of one of these: {}", there.join(", ")),
                ));
            }
        };
        files.open(file).map_err(|error| failure(id, &error))?;
        Ok(Self { files, file })
    }

    /// Returns the file, and the distance of addresses in the program from those in the file.
    pub(super) fn module(&self) -> (&Module, u64) {
        // It has been opened.
        self.files.opened(self.file).expect("an open file")
    }

    /// Returns its name.
    pub(super) fn name(&self) -> String {
        self.files.mapped(self.file).name()
    }

    /// Finds a knob by its name, or by the address of its instruction: in the file or, if the file
    /// has none there, in the program.
    pub(super) fn knob(&self, what: &str, text: &str) -> Result<Knob, Failure> {
        let (module, bias) = self.module();
        let failed = |obstacle: String| {
            let remedy = "list knobs with `refit knob list --all`, of a library with --file";
            Failure::new(format!("{what} knob {text} of {}", self.name()), obstacle, remedy)
        };
        let name: refit_knobs::name::Name =
            text.parse().map_err(|error: refit_knobs::name::NoName| failed(error.to_string()))?;
        let found = match (locate(module, &name), &name) {
            (Err(NotFound::Constant { .. }), refit_knobs::name::Name::Address(address))
                if module.function_at(*address).is_none() =>
            {
                let there = refit_knobs::name::Name::Address(address.wrapping_sub(bias));
                locate(module, &there)
            }
            (found, _) => found,
        };
        found.map_err(|error| failed(error.to_string()))
    }
}
