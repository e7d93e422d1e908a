//! fsx, the file system exerciser: random reads, writes, mappings, truncations, holes, copies and
//! so on in one file, each read compared with the written data. Half of the operations take place
//! while the file's cache is swapped.
//!
//! `REFIT_FSX_OPERATIONS` sets another number of operations, for example 1000000, which takes some
//! minutes.

use refit_acceptance::{CacheMode, Limit, Pace, Served, possible, run, tool};
use std::fs;
use std::path::Path;
use std::process::Command;

const OPERATIONS: u64 = 400_000;
/// The number of tests that share the operations.
const TESTS: u64 = 6;
const LIMIT: u64 = 900;

/// The settings of all runs. Operations that wait for the disk are rare: they take most of the time
/// and always do the same.
const WEIGHTS: &str = "
[weights]
close_open = 1
read = 10
write = 10
invalidate = 0.5
truncate = 4
fsync = 0.02
fdatasync = 0.02
posix_fallocate = 0.5
punch_hole = 1
sendfile = 2
posix_fadvise = 0.5
copy_file_range = 1
";

/// The pattern in which a file is used. No operation is empty: `posix_fallocate` of length zero is
/// an error, which fsx does not know.
struct Use {
    name: &'static str,
    sizes: &'static str,
    /// The weight of mappings. They cost as much as ten other operations, because each of their
    /// pages is a fault of its own.
    mappings: u32,
}

/// Mostly small operations on a small file.
const NARROW: Use = Use {
    name: "narrow",
    mappings: 1,
    sizes: "\
flen = 98304
nomsyncafterwrite = true
[opsize]
min = 1
max = 8192
",
};

/// Large operations; data that is written through mappings has to be on the disk at once.
const WIDE: Use = Use {
    name: "wide",
    mappings: 8,
    sizes: "\
flen = 1048576
nomsyncafterwrite = false
[opsize]
min = 1
max = 131072
",
};

fn fsx(program: &Path, served: &Served, how: &Use, operations: u64, seed: u64) {
    let settings = served.scratch().join(format!("{}.toml", how.name));
    let (sizes, mappings) = (how.sizes, how.mappings);
    let mappings = format!("mapread = {mappings}\nmapwrite = {mappings}\n");
    fs::write(&settings, format!("{sizes}{WEIGHTS}{mappings}")).unwrap();
    let (operations, seed) = (operations.to_string(), seed.to_string());
    let mut command = Command::new(program);
    command.args(["-N", &operations, "-S", &seed, "-f"]).arg(settings);
    command.arg("-P").arg(served.scratch()).arg(served.path(how.name));
    let ran = run(&mut command, "", Limit::seconds(LIMIT));
    let fine = ran.status.success() && ran.output.contains("All operations completed A-OK!");
    assert!(fine, "{command:?}: {}\n{}\n{}", ran.status, ran.output, ran.errors);
}

fn no_fault(name: &str, cache: CacheMode, pace: Option<Pace>, seed: u64) {
    let Some(program) = possible().then(|| tool("fsx")).flatten() else { return };
    let wanted = std::env::var("REFIT_FSX_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let operations = wanted.unwrap_or(OPERATIONS) / TESTS;
    let wide = operations / 50;
    // The large file does not fit into the frames.
    let mut served = Served::new(name, cache, 512 << 10);
    let storm = pace.map(|pace| served.storm(pace));
    fsx(&program, &served, &NARROW, operations - wide, seed);
    fsx(&program, &served, &WIDE, wide, seed);
    storm.map(refit_acceptance::Storm::stop);
    served.unmount();
}

#[test]
fn no_fault_kernel() {
    no_fault("fsx-kernel", CacheMode::Kernel, None, 1);
}

#[test]
fn no_fault_direct() {
    no_fault("fsx-direct", CacheMode::Direct, None, 2);
}

#[test]
fn no_fault_passthrough() {
    no_fault("fsx-passthrough", CacheMode::Passthrough, None, 5);
}

#[test]
fn no_fault_exclusive() {
    no_fault("fsx-exclusive", CacheMode::Exclusive, None, 6);
}

#[test]
fn no_fault_while_swapping_kernel() {
    no_fault("fsx-kernel-storm", CacheMode::Kernel, Some(Pace::EachMillisecond), 3);
}

#[test]
fn no_fault_while_swapping_direct() {
    no_fault("fsx-direct-storm", CacheMode::Direct, Some(Pace::EachMillisecond), 4);
}
