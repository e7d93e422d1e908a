//! The functions that are tried: so many of each file, on all processors.
//!
//! `REFIT_DIFFERENTIAL_FUNCTIONS` says how many, `REFIT_DIFFERENTIAL_FILES` of which files,
//! `REFIT_DIFFERENTIAL_EACH` how many of each, `REFIT_DIFFERENTIAL_ONLY` which one alone,
//! `REFIT_DIFFERENTIAL_SEED` from which states.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use parking_lot::Mutex;
use refit_analysis::functions::Sources;
use refit_analysis::{Function, FunctionId};

use super::stage::Stage;

/// The results of functions that were tried.
pub(crate) trait Tally: Default + Send {
    /// Adds those of others.
    fn add(&mut self, other: Self);

    /// Returns them as a line.
    fn summary(&self) -> String;
}

/// The functions that are tried.
pub(crate) struct Wanted {
    files: Vec<PathBuf>,
    /// Number of functions that remain to be tried.
    left: Mutex<usize>,
    /// Number of functions of each file.
    each: usize,
    /// The only function to try, for debugging.
    only: Option<String>,
}

impl Wanted {
    /// Returns what the environment asks for; if it does not, so many functions of some files, of
    /// which those of `cases.c` are built in a folder.
    pub(crate) fn new(functions: usize, folder: &Path) -> Self {
        let functions: usize = number("REFIT_DIFFERENTIAL_FUNCTIONS").unwrap_or(functions);
        let named = std::env::var("REFIT_DIFFERENTIAL_FILES").unwrap_or_default();
        let mut files: Vec<PathBuf> = named.split_whitespace().map(PathBuf::from).collect();
        if files.is_empty() {
            files = usual(folder);
        }
        let files: BTreeSet<_> = files.iter().filter_map(|one| one.canonicalize().ok()).collect();
        let files: Vec<_> = files.into_iter().collect();
        Self {
            each: number("REFIT_DIFFERENTIAL_EACH")
                .unwrap_or_else(|| functions.div_ceil(files.len())),
            files,
            left: Mutex::new(functions),
            only: std::env::var("REFIT_DIFFERENTIAL_ONLY").ok(),
        }
    }

    /// Whether only one function is tried.
    pub(crate) fn is_single(&self) -> bool {
        self.only.is_some()
    }

    /// Tries functions of all files, so many at a time.
    pub(crate) fn try_all<T: Tally>(
        &self,
        batch: usize,
        try_batch: impl Fn(&mut Stage, &[FunctionId]) -> T + Sync,
    ) -> T {
        let (queue, tally) = (Mutex::new(self.files.iter()), Mutex::new(T::default()));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| {
                    loop {
                        let Some(file) = queue.lock().next() else { break };
                        match Stage::open(file) {
                            Ok(mut stage) => {
                                let own = self.try_file(&mut stage, batch, &try_batch);
                                println!("{}: {}", file.display(), own.summary());
                                tally.lock().add(own);
                            }
                            Err(why) => println!("{}: left out: {why}", file.display()),
                        }
                    }
                });
            }
        });
        tally.into_inner()
    }

    fn try_file<T: Tally>(
        &self,
        stage: &mut Stage,
        batch: usize,
        try_batch: impl Fn(&mut Stage, &[FunctionId]) -> T,
    ) -> T {
        let runs = |function: &Function| {
            let named = |only: &String| function.name() == *only;
            !function.sources.contains(Sources::STUB) && self.only.as_ref().is_none_or(named)
        };
        let all = stage.module.functions().iter().enumerate();
        let all: Vec<_> =
            all.filter(|(_, one)| runs(one)).map(|(at, _)| FunctionId(at as u32)).collect();
        let step = all.len().div_ceil(self.each).max(1);
        let chosen: Vec<_> = all.into_iter().step_by(step).collect();
        let mut own = T::default();
        for batch in chosen.chunks(batch) {
            let share = self.share(batch.len());
            if share > 0 {
                own.add(try_batch(stage, &batch[..share]));
            }
        }
        let changed = stage.mapped.differences(&stage.program).expect("it runs");
        assert!(changed.is_empty(), "{:?} is left changed at {changed:x?}", stage.mapped.path);
        own
    }

    /// Takes up to so many functions of those that remain.
    fn share(&self, most: usize) -> usize {
        let mut left = self.left.lock();
        let share = most.min(*left);
        *left -= share;
        share
    }
}

/// Returns the number from which the states of functions are derived, besides their addresses.
pub(crate) fn seed() -> u64 {
    number("REFIT_DIFFERENTIAL_SEED").unwrap_or(0)
}

fn number<N: FromStr>(name: &str) -> Option<N> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns files of this machine, and those that are built.
fn usual(folder: &Path) -> Vec<PathBuf> {
    let options = [&["-O0"][..], &["-O1"], &["-O2"], &["-O3"], &["-Os", "-fcf-protection"]];
    let built = options.map(|options| cases(folder, options));
    let libraries = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3"];
    let libraries = libraries.map(|name| Path::new("/usr/lib/x86_64-linux-gnu").join(name));
    let programs = ["/usr/bin/sqlite3", "/bin/bash", "/usr/bin/git"].map(PathBuf::from);
    built.into_iter().chain(libraries).chain(programs).collect()
}

/// Builds the functions of `cases.c` with these compiler options.
fn cases(folder: &Path, options: &[&str]) -> PathBuf {
    let path = folder.join(format!("cases{}.so", options.concat()));
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = tests.join("../refit-probe/tests/differential/cases.c");
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-shared", "-fPIC"])
        .args(options)
        .arg("-o")
        .args([&path, &source])
        .arg("-lm")
        .status()
        .expect("a C compiler");
    assert!(built.success());
    path
}
