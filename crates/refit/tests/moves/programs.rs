//! The programs, and their compilation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::SystemTime;

/// The prefixes of names.
pub(crate) const TOPICS: [&str; 10] =
    ["compute", "file", "futex", "memory", "process", "regs", "signal", "socket", "thread", "time"];

/// Programs that are also linked statically: without a loader, at fixed addresses.
const STATIC: [&str; 8] = [
    "futex_turns",
    "memory_allocator",
    "memory_break",
    "process_exec",
    "regs_avx",
    "signal_alternate_stack",
    "thread_condition",
    "thread_local_data",
];

/// Programs that are also linked with another C library, whose threads, signals and heap are
/// different.
const MUSL: [&str; 3] =
    ["process_fork_and_wait", "signal_restart_read", "thread_condition_broadcast"];

const FLAGS: [&str; 6] = ["-std=gnu11", "-O2", "-pthread", "-Wall", "-Wextra", "-Werror"];

/// A program in one of its shapes.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The name of its file, e.g. `regs_avx.c`, followed by the kind of link unless it is the usual
    /// one: `regs_avx.c:static`.
    pub(crate) name: String,
    compiler: &'static str,
    more: &'static [&'static str],
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moves/programs")
}

/// Returns all programs in all shapes that can be built here, by their names.
pub(crate) fn all() -> Vec<Program> {
    let entries = fs::read_dir(folder()).expect("the programs");
    let names = entries.map(|entry| entry.expect("a file").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("UTF-8")).collect();
    names.retain(|name| name.ends_with(".c"));
    names.sort_unstable();
    let musl = Command::new("musl-gcc").arg("--version").output().is_ok();
    let shapes = names.iter().flat_map(|name| {
        let shape = |suffix: &str, compiler, more| Program {
            name: format!("{name}{suffix}"),
            compiler,
            more,
        };
        let also = |list: &[&str]| list.iter().any(|one| name.strip_suffix(".c") == Some(*one));
        [
            Some(shape("", "cc", &[])),
            also(&STATIC).then(|| shape(":static", "cc", &["-static"])),
            (musl && also(&MUSL)).then(|| shape(":musl", "musl-gcc", &[])),
        ]
    });
    let all: Vec<_> = shapes.flatten().collect();
    if !musl {
        println!("skipped: there is no musl-gcc");
    }
    all
}

impl Program {
    pub(crate) fn source(&self) -> PathBuf {
        folder().join(self.name.split(':').next().expect("a name"))
    }

    /// Builds it, unless the last build is newer than its sources.
    pub(crate) fn build(&self) -> Result<PathBuf, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moves");
        fs::create_dir_all(&made).map_err(|error| format!("{}: {error}", made.display()))?;
        let (source, program) =
            (self.source(), made.join(self.name.replace(".c", "").replace(':', "-")));
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        let parts = [&source, &folder().join("check.h")].map(|path| changed(path));
        let newest = parts.into_iter().map(|time| time.unwrap_or_else(SystemTime::now)).max();
        if changed(&program) > newest {
            return Ok(program);
        }
        // A concurrent build of the same program finds one file or the other, complete.
        let number = NEXT.fetch_add(1, Relaxed);
        let new = made.join(format!("new-{}-{number}", std::process::id()));
        let mut compile = Command::new(self.compiler);
        compile.args(FLAGS).args(self.more).arg("-o").args([&new, &source]).arg("-lm");
        let built = compile.output().map_err(|error| format!("{}: {error}", self.compiler))?;
        if !built.status.success() {
            return Err(format!("does not compile:\n{}", String::from_utf8_lossy(&built.stderr)));
        }
        fs::rename(&new, &program).map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(program)
    }
}
