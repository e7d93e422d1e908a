//! Finds the programs that tests run.

use std::path::{Path, PathBuf};

/// Finds a program in `REFIT_TOOLS`, in `target/tools/bin` (to which `ci/setup.sh` installs
/// programs from crates.io), or in `PATH`. If it returns `None`, it has printed the reason, and the
/// test must be skipped.
pub fn tool(name: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::var_os("REFIT_TOOLS").map(PathBuf::from);
    let places = places.into_iter().chain([here]).chain(std::env::split_paths(&path));
    let found = places.map(|place| place.join(name)).find(|file| file.is_file());
    if found.is_none() {
        skip(&format!("the program {name} is missing; `ci/setup.sh` installs it"));
    }
    found
}

/// Prints the reason for which a test is skipped.
///
/// # Panics
///
/// With `CI=true`, where nothing may be missing.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot be skipped with CI=true: {why}");
    eprintln!("skipped: {why}");
}
