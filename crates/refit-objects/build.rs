//! Tells the crate what it is compiled for and by: plugins carry both in their note.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = env::var("TARGET").unwrap_or_else(|_| "unknown".into());
    println!("cargo::rustc-env=REFIT_TARGET={target}");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.as_deref().map(str::trim).filter(|text| !text.is_empty());
    println!("cargo::rustc-env=REFIT_RUSTC={}", version.unwrap_or("unknown"));
}
