//! Tasks of the workspace: `cargo xtask verify` and `cargo xtask tidy` (which change nothing),
//! `cargo xtask fix`, and `cargo xtask book`.
//!
//! `verify` runs what has to pass before a merge, apart from the tests: format, lints,
//! documentation, and a few rules that no other tool checks; `tidy` checks only those rules. `fix`
//! corrects what a machine can correct.

#![forbid(unsafe_code)]

mod book;
mod circles;
mod duplicates;
mod floors;
mod functions;
mod links;
mod module_paths;
mod prose;
mod repository;
mod tidy;
mod words;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::repository::MAN;

/// A check: prints violations on standard error, and returns whether there are none.
type Check = (&'static str, fn() -> bool);

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if env::set_current_dir(root()).is_err() {
        eprintln!(
            "xtask: {} is gone; run it from the repository it was built in",
            root().display()
        );
        return ExitCode::FAILURE;
    }
    let ok = match args[..] {
        ["verify"] => verify(),
        ["tidy"] => tidy::check(),
        ["fix"] => fix(),
        ["book"] => book::build(),
        _ => {
            eprintln!("usage: cargo xtask verify | tidy | fix | book");
            return ExitCode::from(2);
        }
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs every check, so that one run shows all violations; the fast checks run first.
fn verify() -> bool {
    let checks: [Check; 5] = [
        ("tidy", tidy::check),
        ("format", || cargo(&["fmt", "--all", "--check"], &[])),
        ("lints", || {
            let args = ["clippy", "-q", "--locked", "--workspace", "--all-targets"];
            cargo(&[&args[..], &["--", "-D", "warnings"]].concat(), &[])
        }),
        ("documentation", || {
            let args = ["doc", "-q", "--locked", "--workspace", "--no-deps"];
            cargo(&args, &[("RUSTDOCFLAGS", "-D warnings")])
        }),
        ("man pages", man_pages_are_current),
    ];
    let failed: Vec<&str> =
        checks.iter().filter(|(_, check)| !check()).map(|(name, _)| *name).collect();
    if !failed.is_empty() {
        eprintln!("xtask: not in order: {}; `cargo xtask fix` may help", failed.join(", "));
    }
    failed.is_empty()
}

fn fix() -> bool {
    let clippy = ["clippy", "-q", "--fix", "--allow-dirty", "--allow-staged", "--workspace"];
    cargo(&[&clippy[..], &["--all-targets"]].concat(), &[])
        && cargo(&["fmt", "--all"], &[])
        && generate(Path::new(MAN))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn cargo(args: &[&str], vars: &[(&str, &str)]) -> bool {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(args).envs(vars.iter().copied()).status();
    status.is_ok_and(|status| status.success())
}

/// Generates man pages and completions.
fn generate(directory: &Path) -> bool {
    let refit = |args: &[&str]| {
        let run = ["run", "-q", "--locked", "-p", "refit", "--"];
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo).args(run).args(args).stderr(Stdio::inherit()).output();
        output.ok().filter(|output| output.status.success())
    };
    let Some(path) = directory.to_str() else { return false };
    if fs::create_dir_all(directory).is_err() || refit(&["man", path]).is_none() {
        return false;
    }
    [("bash", "refit.bash"), ("zsh", "_refit"), ("fish", "refit.fish")].iter().all(
        |(shell, file)| {
            refit(&["completions", shell])
                .is_some_and(|output| fs::write(directory.join(file), output.stdout).is_ok())
        },
    )
}

fn man_pages_are_current() -> bool {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let fresh = target.join("man");
    let _ = fs::remove_dir_all(&fresh);
    if !generate(&fresh) {
        eprintln!("xtask: the man pages could not be generated");
        return false;
    }
    let same = match (contents(Path::new(MAN)), contents(&fresh)) {
        (Ok(checked_in), Ok(fresh)) => checked_in == fresh,
        _ => false,
    };
    if !same {
        eprintln!("xtask: {MAN} is not what the command line says");
    }
    same
}

fn contents(directory: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        all.push((entry.file_name().into(), fs::read(entry.path())?));
    }
    all.sort();
    Ok(all)
}
