//! The five workloads of Katz 2014, chapter 6, as OpenMP programs of our own (`bench/workloads`),
//! in each of several ways to run a program.
//!
//! They report the duration of their timed part, and whether their result is right; the time from
//! outside includes all: the data, the threads, the verification. Ways take turns, each first as
//! often as the others.
//!
//! With libgomp's usual waiting, threads spin at barriers before they sleep, which is wasted
//! wherever there is a processor less than threads for a while. `passive` (`OMP_WAIT_POLICY=passive
//! GOMP_SPINCOUNT=0`) makes them sleep at once, and is the way with which the others are to be
//! compared.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::spread::{Instances, MoveTotals};
use crate::stats::Sample;

const ROUNDS: usize = 7;
/// The compiler command of the programs; the first word is the compiler.
pub(crate) const COMPILER: [&str; 3] = ["gcc", "-O3", "-fopenmp"];

/// One of `bench/workloads`.
struct Workload {
    name: &'static str,
    /// A class, or a number of nodes, or of rows.
    sizes: [&'static str; 2],
    quick: &'static str,
}

const WORKLOADS: [Workload; 5] = [
    Workload { name: "is", sizes: ["W", "A"], quick: "S" },
    Workload { name: "ft", sizes: ["W", "A"], quick: "S" },
    Workload { name: "cg", sizes: ["W", "A"], quick: "S" },
    Workload { name: "bfs", sizes: ["1000000", "4000000"], quick: "65536" },
    Workload { name: "lu", sizes: ["1024", "2048"], quick: "256" },
];

/// A way to run a program.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// Whether its threads run at two instances in turn.
    pub(crate) spread: bool,
    threads: u32,
    variables: &'static [(&'static str, &'static str)],
}

impl Way {
    /// Returns whether threads sleep as soon as they wait.
    pub(crate) fn sleeps(&self) -> bool {
        !self.variables.is_empty()
    }
}

const PASSIVE: &[(&str, &str)] = &[("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", "0")];

pub(crate) const WAYS: [Way; 5] = [
    Way { name: "1 thread", spread: false, threads: 1, variables: PASSIVE },
    Way { name: "2 threads", spread: false, threads: 2, variables: PASSIVE },
    Way { name: "2 threads, waiting as usual", spread: false, threads: 2, variables: &[] },
    Way { name: "over 2 instances", spread: true, threads: 2, variables: PASSIVE },
    Way { name: "over 2 instances, waiting as usual", spread: true, threads: 2, variables: &[] },
];
/// The one of [`WAYS`] with which the others are compared.
pub(crate) const SMP: usize = 1;

/// The results of one workload at one size.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) size: &'static str,
    /// The results for each of [`WAYS`].
    pub(crate) ways: [RunTimes; WAYS.len()],
}

impl Case {
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.size)
    }

    /// Returns the maximum of a ratio over two instances.
    pub(crate) fn bar(&self) -> Option<f64> {
        match self.name {
            "is" | "lu" => Some(1.1),
            "ft" | "cg" => Some(1.5),
            _ => None,
        }
    }
}

/// The times of the runs of one way, in seconds.
#[derive(Default)]
pub(crate) struct RunTimes {
    /// The timed part, by the program's own clock.
    pub(crate) inside: Sample,
    /// The time from its start to its end.
    pub(crate) outside: Sample,
    /// The totals of its moves.
    pub(crate) moves: MoveTotals,
    /// The reason that there are no more runs of it.
    pub(crate) trouble: Option<String>,
}

/// Measures all workloads at their sizes; if `quick`, each at its smallest, and once.
pub(crate) fn measure(quick: bool) -> Result<Vec<Case>, String> {
    take(quick, &Instances::boot())
}

fn take(quick: bool, instances: &Result<Instances, String>) -> Result<Vec<Case>, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut cases = Vec::new();
    for workload in &WORKLOADS {
        build(workload.name, folder.path())?;
        let program = folder.path().join(workload.name);
        let program = program.to_str().ok_or("a path that is no text")?;
        let sizes = if quick { &[workload.quick][..] } else { &workload.sizes };
        for size in sizes {
            eprintln!("workloads: {} {size}", workload.name);
            let mut case = Case { name: workload.name, size, ways: Default::default() };
            for round in 0..if quick { 1 } else { ROUNDS } {
                for turn in 0..WAYS.len() {
                    let way = (round + turn) % WAYS.len();
                    case.ways[way].once(&WAYS[way], instances, &[program, size]);
                }
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

pub(crate) fn build(name: &str, folder: &Path) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("workloads/{name}.c"));
    let [compiler, flags @ ..] = COMPILER;
    let mut command = Command::new(compiler);
    command.args(flags).args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]);
    command.arg(folder.join(name)).arg(source).arg("-lm");
    let output = command.output().map_err(|e| format!("{compiler}: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{name}.c: {said}")) }
}

impl RunTimes {
    /// Runs it once more, unless it could not be run before.
    pub(crate) fn once(
        &mut self,
        way: &Way,
        instances: &Result<Instances, String>,
        program: &[&str],
    ) {
        if self.trouble.is_some() {
            return;
        }
        match run(way, instances, program) {
            Ok(([inside, outside], moves)) => {
                self.inside.push(inside);
                self.outside.push(outside);
                self.moves.add(&moves);
            }
            Err(why) => self.trouble = Some(why),
        }
    }
}

/// Returns the seconds by the program's own clock, and from outside, and its moves.
fn run(
    way: &Way,
    instances: &Result<Instances, String>,
    program: &[&str],
) -> Result<([f64; 2], MoveTotals), String> {
    let mut command = match instances {
        Ok(instances) if way.spread => instances.run(),
        Err(why) if way.spread => return Err(why.clone()),
        // An ordinary program.
        _ => Command::new("env"),
    };
    command.args(program).args(["--threads", &way.threads.to_string()]);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("OMP_") || name.starts_with("GOMP_") {
            command.env_remove(&*name);
        }
    }
    command.envs(way.variables.iter().copied());
    let began = Instant::now();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    // `refit run` becomes the program.
    let process = child.id();
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let outside = began.elapsed().as_secs_f64();
    let moves = match instances {
        Ok(instances) if way.spread => instances.moves(process),
        _ => Ok(Some(MoveTotals::default())),
    };
    let inside = verified_time(&String::from_utf8_lossy(&output.stdout));
    // The error in the result explains more than the exit code that follows from it.
    match inside {
        Ok(inside) if output.status.success() => {
            let moves = moves?.ok_or("it has ended before its threads were elsewhere")?;
            Ok(([inside, outside], moves))
        }
        Err(why) if output.stderr.is_empty() => Err(why),
        _ => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Returns the time that a workload reports, if it reports that its result is right.
fn verified_time(said: &str) -> Result<f64, String> {
    let fact = |name: &str| {
        let mut words = said.lines().filter_map(|line| line.split_once(' '));
        words.find(|(word, _)| *word == name).map(|(_, value)| value)
    };
    match (fact("verified"), fact("time").and_then(|time| time.parse().ok())) {
        (Some("yes"), Some(time)) => Ok(time),
        (Some("no"), _) => Err("its result is wrong".to_owned()),
        _ => Err(format!("it said {said:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_verify_what_they_compute() {
        // Runs over instances are tested with the command, which need not be built yet
        // (`crates/refit/tests/moves`).
        let none = Err("there are no instances".to_owned());
        for case in take(true, &none).expect("a C compiler with OpenMP") {
            for (way, taken) in WAYS.iter().zip(&case.ways).filter(|(way, _)| !way.spread) {
                let Case { name, size, .. } = case;
                assert_eq!(taken.trouble, None, "{name} {size}, {}", way.name);
                assert_eq!((taken.inside.len(), taken.outside.len()), (1, 1));
            }
        }
    }

    #[test]
    fn only_a_right_result_has_a_time() {
        assert_eq!(verified_time("name is\ntime 0.25\nverified yes\n"), Ok(0.25));
        assert_eq!(
            verified_time("time 0.25\nverified no\n"),
            Err("its result is wrong".to_owned())
        );
        for said in ["", "verified yes\n", "time 0.25\n", "time x\nverified yes\n"] {
            assert!(verified_time(said).is_err(), "{said:?}");
        }
    }
}
