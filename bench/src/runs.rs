//! Measures programs that only compute, under `refit run` without a limit, where nothing of refit
//! is in their way, and the time to start one.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::stats::Sample;
use crate::workload::refit;

const ROUNDS: usize = 9;
const STARTS: usize = 60;
/// The number of functions of the C file.
const FUNCTIONS: usize = 600;
/// The size of the compressed input, in bytes.
const BINARIES: usize = 6 << 20;
const PYTHON: &str = "n = 0\nfor i in range(12000000): n = (n * 31 + i) % 1000003\nprint(n)";
pub(crate) const PROGRAMS: [&str; 3] =
    ["gcc -O2, one C file", "xz -6, binaries", "python3, a loop"];

/// The results natively and under refit.
#[derive(Default)]
pub(crate) struct Runs {
    /// The seconds of each of [`PROGRAMS`].
    pub(crate) took: [[Sample; 2]; PROGRAMS.len()],
    /// The ratio of the times, of each program and of all together.
    pub(crate) ratio: [Sample; PROGRAMS.len()],
    pub(crate) total: Sample,
    /// The start time of `/bin/true`, in ms, and the increase.
    pub(crate) start: [Sample; 2],
    pub(crate) more: Sample,
}

pub(crate) fn measure() -> Result<Runs, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let commands = commands(&folder)?;
    let mut runs = Runs::default();
    // The first round fills caches.
    for round in 0..=ROUNDS {
        let mut sums = [0.0; 2];
        for (program, command) in commands.iter().enumerate() {
            let took = pair(command, round)?;
            for (way, took) in took.into_iter().enumerate() {
                sums[way] += took;
                if round > 0 {
                    runs.took[program][way].push(took);
                }
            }
            if round > 0 {
                runs.ratio[program].push(took[1] / took[0]);
            }
        }
        if round > 0 {
            runs.total.push(sums[1] / sums[0]);
        }
    }
    for round in 0..STARTS {
        let [native, tended] = pair(&["/bin/true".to_owned()], round)?.map(|took| took * 1e3);
        runs.start[0].push(native);
        runs.start[1].push(tended);
        runs.more.push(tended - native);
    }
    Ok(runs)
}

/// Returns the seconds natively and under refit, one after the other, each first in every other
/// round.
fn pair(command: &[String], round: usize) -> Result<[f64; 2], String> {
    let tended = [&[refit(), "run".to_owned(), "--".to_owned()], command].concat();
    if round.is_multiple_of(2) {
        let native = seconds(command)?;
        return Ok([native, seconds(&tended)?]);
    }
    let tended = seconds(&tended)?;
    Ok([seconds(command)?, tended])
}

fn seconds(command: &[String]) -> Result<f64, String> {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = started.status().map_err(|e| format!("{command:?}: {e}"))?;
    let took = began.elapsed().as_secs_f64();
    if status.success() { Ok(took) } else { Err(format!("{command:?} ended with {status}")) }
}

fn commands(folder: &TempDir) -> Result<[Vec<String>; PROGRAMS.len()], String> {
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (source, binaries) = (path("large.c"), path("binaries"));
    fs::write(&source, functions()).map_err(|e| format!("{source}: {e}"))?;
    fs::write(&binaries, some_binaries()?).map_err(|e| format!("{binaries}: {e}"))?;
    let words = |all: &[&str]| all.iter().map(|&word| word.to_owned()).collect();
    Ok([
        words(&["gcc", "-O2", "-c", "-o", &path("large.o"), &source]),
        words(&["xz", "-6", "-k", "-c", &binaries]),
        words(&["/usr/bin/python3", "-c", PYTHON]),
    ])
}

/// Returns a C file that takes a compiler some seconds.
fn functions() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n");
    for n in 0..FUNCTIONS {
        let (a, b) = (n % 13 + 1, n % 7 + 2);
        let _ = writeln!(
            text,
            "unsigned f{n}(unsigned *v, unsigned k) {{\n\
             unsigned sum = {n}, t[{b}] = {{0}};\n\
             for (unsigned i = 0; i < k; i++) {{\n\
             switch (v[i] % {b}) {{ case 0: sum += v[i] * {a}; break; case 1: sum ^= v[i] >> {a}; break; default: t[i % {b}] += sum; }}\n\
             for (unsigned j = 0; j < {b}; j++) sum += t[j] * (i + {a}) / (j + 1);\n\
             }}\n\
             char s[64]; snprintf(s, sizeof s, \"%u %u\", sum, t[0]); return sum + strlen(s);\n}}"
        );
    }
    text
}

/// Returns the beginnings of programs of this host, in the order of their names.
fn some_binaries() -> Result<Vec<u8>, String> {
    let listed = fs::read_dir(Path::new("/usr/bin")).map_err(|e| format!("/usr/bin: {e}"))?;
    let mut paths: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    paths.sort_unstable();
    let mut bytes = Vec::with_capacity(BINARIES);
    for path in paths.iter().filter(|path| path.is_file()) {
        if bytes.len() >= BINARIES {
            break;
        }
        let file = fs::read(path).unwrap_or_default();
        bytes.extend(&file[..file.len().min(BINARIES - bytes.len())]);
    }
    Ok(bytes)
}
