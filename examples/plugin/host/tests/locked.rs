//! An interface that contradicts `interface.lock` does not compile.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiles an interface with these methods, where version 1 has `put` and `len`. Returns whether
/// that succeeded, and the messages of the compiler.
fn compiled(crate_dir: &Path, version: u32, methods: &str) -> (bool, String) {
    let source = format!(
        "#![allow(missing_docs)]\n\
         #[refit_objects::interface(name = \"store\", state = u64, version = {version})]\n\
         pub trait Store {{ {methods} }}\n"
    );
    fs::write(crate_dir.join("src/lib.rs"), source).expect("it can be written");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline"])
        .arg("--target-dir")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("locked"))
        .current_dir(crate_dir)
        .output()
        .expect("cargo runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn broken_promises_do_not_compile() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    fs::create_dir(root.join("src")).expect("it can be made");
    let objects = workspace.join("crates/refit-objects");
    let manifest = format!(
        "[package]\nname = \"locked\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         refit-objects = {{ path = {:?} }}\n",
        objects.display().to_string()
    );
    fs::write(root.join("Cargo.toml"), manifest).expect("it can be written");
    fs::copy(workspace.join("Cargo.lock"), root.join("Cargo.lock")).expect("there is one");
    let lock = "store 1 put fn(&self, u64)\nstore 1 len fn(&self) -> u64\n";
    fs::write(root.join("interface.lock"), lock).expect("it can be written");

    let (put, len) = ("fn put(&self, n: u64);", "fn len(&self) -> u64;");
    let (taken, said) = compiled(root, 1, &format!("{put}{len}"));
    assert!(taken, "{said}");
    let refused = |version, methods: &[&str], parts: &[&str]| {
        let (taken, said) = compiled(root, version, &methods.concat());
        assert!(!taken, "{methods:?}");
        parts.iter().for_each(|part| assert!(said.contains(part), "{part} in {said}"));
    };
    let new = "fn new(&self);";
    refused(2, &[put, new, len], &["method 1 is len since version 1", "version 2 has new there"]);
    refused(2, &[put], &["len since version 1", "version 2 does not have it"]);
    refused(
        1,
        &[put, "fn len(&self) -> u32;"],
        &["-> u64 since version 1", "has fn(&self) -> u32"],
    );
    refused(1, &[put, len, new], &["`version = 2`", "store 2 new fn(&self)"]);
    // The file is read again when it has changed.
    fs::write(root.join("interface.lock"), format!("{lock}store 2 new fn(&self)\n"))
        .expect("it can be written");
    let (taken, said) = compiled(root, 2, &[put, len, new].concat());
    assert!(taken, "{said}");
}
