//! `refit completions` and `refit man`: what is generated from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct Written<'a> {
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    written: &'a Path,
}

/// Prints the completions for a shell.
pub(crate) fn completions(
    mut refit: Command,
    shell: clap_complete::Shell,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut refit, "refit", &mut text);
    out.raw(&text)
}

/// Writes a man page per command.
pub(crate) fn man(refit: Command, directory: &Path, out: &mut Output) -> Result<(), Failure> {
    write_pages(refit, directory).map_err(|e| {
        Failure::new(
            format!("write man pages to {}", directory.display()),
            e.to_string(),
            "name a directory that you may write to",
        )
    })?;
    if out.json() {
        return out.object(&Written { written: directory });
    }
    out.line(&format!("man pages are in {}", directory.display()))
}

fn write_pages(refit: Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(refit.disable_help_subcommand(true), directory)
}
