//! The subject of a command about code: a file, or the files that a process has mapped.

use std::path::PathBuf;

use clap::Args;
use refit_analysis::lines::Lines;
use refit_analysis::{Module, OpenError};
use refit_probe::file_pattern::FilePattern;
use refit_probe::modules;

use crate::failure::Failure;

/// Arguments that select the subject.
#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// Process ID, or path of a program or library
    #[arg(short, long, value_name = "PID|FILE")]
    program: String,

    /// Select modules of the process by name (libc), or by a pattern over their file names or
    /// paths (default: the program itself)
    #[arg(long, value_name = "GLOB")]
    module: Option<String>,
}

/// A selected module.
#[derive(Debug)]
pub(crate) struct Subject {
    /// Its path, as the process sees it.
    pub(crate) path: PathBuf,
    pub(crate) module: Module,
    /// The offset that the process added to the addresses of the file.
    pub(crate) loaded_at: Option<u64>,
}

impl Subject {
    /// Returns its debug information.
    pub(crate) fn lines(&self) -> Option<Lines> {
        let lines = Lines::of(self.module.image());
        if lines.is_none() {
            say!(
                "refit: no debug information for {}: compile it with -g, or install its -dbgsym package",
                self.path.display(),
            );
        }
        lines
    }
}

impl SubjectArgs {
    /// Returns the selected modules, of which there is at least one.
    pub(crate) fn open(&self, operation: &str) -> Result<Vec<Subject>, Failure> {
        match self.program.parse::<u32>() {
            Ok(process) => self.of_process(process, operation),
            Err(_) if self.module.is_some() => Err(Failure::new(
                operation,
                "a file has no modules",
                "omit --module, or give a PID",
            )),
            Err(_) => {
                let path = PathBuf::from(&self.program);
                let module = Module::open(&path).map_err(|e| refused(operation, &e))?;
                Ok(vec![Subject { path, module, loaded_at: None }])
            }
        }
    }

    fn of_process(&self, process: u32, operation: &str) -> Result<Vec<Subject>, Failure> {
        let maps = refit_sys::maps::of(process).map_err(|e| {
            let who = "give a running process of this user, or run refit as root";
            Failure::new(operation, format!("process {process} cannot be read: {e}"), who)
        })?;
        let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
        let pattern = self.module.as_deref().map(|wanted| FilePattern::new(wanted, process));
        let mut subjects: Vec<Subject> = Vec::new();
        for mapped in modules::among(process, maps) {
            let meant = match &pattern {
                Some(pattern) => pattern.matches(&mapped),
                None => mapped.path == program,
            };
            if !meant {
                continue;
            }
            if mapped.is_deleted() {
                let why = format!(
                    "{} was replaced on disk after the program started",
                    mapped.path.display()
                );
                return Err(Failure::new(operation, why, "restart the program"));
            }
            let module = Module::open(&mapped.by_name).map_err(|e| refused(operation, &e))?;
            let loaded_at = mapped.bias(module.image());
            subjects.push(Subject { path: mapped.path, module, loaded_at });
        }
        if subjects.is_empty() {
            let which = self.module.as_deref().unwrap_or("the program itself");
            let why = format!("process {process} has no module that matches {which}");
            let remedy = format!("list all modules with --module '*' or in /proc/{process}/maps");
            return Err(Failure::new(operation, why, remedy));
        }
        Ok(subjects)
    }
}

fn refused(operation: &str, e: &OpenError) -> Failure {
    Failure::new(operation, e.to_string(), "name a program or library for x86-64 that you may read")
}

/// Returns the error that no function matches, with the names of similar ones.
pub(crate) fn no_such_function(operation: &str, wanted: &str, subjects: &[Subject]) -> Failure {
    let near: Vec<String> =
        subjects.iter().flat_map(|s| s.module.near(wanted, 5)).take(5).collect();
    let remedy = if near.is_empty() {
        "list functions with `refit funcs`".to_owned()
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    Failure::new(operation, format!("no function matches {wanted}"), remedy)
}
