//! Builds the example plugins.

#![allow(dead_code, clippy::allow_attributes, reason = "not every test uses all of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Returns the library that cargo builds from an example plugin. All builds of a package write the
/// same file, so they are serialized.
pub(crate) fn build(package: &'static str, feature: &'static str) -> Vec<u8> {
    type Builds = BTreeMap<(&'static str, &'static str), Vec<u8>>;
    static BUILT: Mutex<Builds> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = built.get(&(package, feature)) {
        return bytes.clone();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    std::fs::create_dir_all(&target).expect("it can be made");
    // Locked until the library is read: another test process may build it with another feature.
    let lock = std::fs::File::create(target.join("lock")).expect("it can be made");
    lock.lock().expect("it can be locked");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--locked", "-p", package, "--features", feature])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = format!("lib{}.so", package.replace('-', "_"));
    let bytes = std::fs::read(target.join("debug").join(file)).expect("cargo has made it");
    built.insert((package, feature), bytes.clone());
    bytes
}

/// Writes a library into a directory and returns its path.
pub(crate) fn path_of(library: &[u8], directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("plugin.so");
    std::fs::write(&path, library).expect("it can be written");
    path
}

/// Runs a function at the end of a scope, even if a test fails there.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
