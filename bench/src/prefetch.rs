//! Measures the number of pages to move at once: the workloads, with pages that move between two
//! instances (`refit boot --pages move`), by `--ahead` (Katz 2014, chapter 6: prefetch slots).
//! Windows take turns, each first as often as the others. Processors do not sleep meanwhile;
//! otherwise the time to wake one would dominate the differences.

use crate::spread::Instances;
use crate::workloads::{RunTimes, SMP, WAYS, Way, build};

const ROUNDS: usize = 5;
/// The values of `--ahead`; the last has to be as good as the best of the others.
pub(crate) const WINDOWS: [&str; 4] = ["1", "4", "8", "adaptive"];
pub(crate) const ADAPTIVE: usize = WINDOWS.len() - 1;

/// The workloads and their sizes, which take a second or less on one instance.
pub(crate) const CASES: [(&str, &str); 5] =
    [("is", "W"), ("ft", "W"), ("cg", "W"), ("bfs", "1000000"), ("lu", "1024")];

/// The results of one workload.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) size: &'static str,
    pub(crate) windows: [RunTimes; WINDOWS.len()],
    /// Two threads of one kernel.
    pub(crate) smp: RunTimes,
}

impl Case {
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.size)
    }

    /// Returns the fixed window that takes the least time.
    pub(crate) fn best(&self) -> usize {
        let median = |window: &usize| self.windows[*window].inside.median();
        (0..ADAPTIVE).min_by(|a, b| median(a).total_cmp(&median(b))).unwrap_or(0)
    }
}

pub(crate) fn measure() -> Result<Vec<Case>, String> {
    let boot = |window| {
        let how = ["--instances", "2", "--awake", "--pages", "move", "--ahead", window];
        Instances::boot_with(&how)
    };
    let instances = WINDOWS.map(boot);
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    // If threads spun while they wait, the pages that they poll would move again and again.
    let sleeps = |way: &&Way| way.spread && way.sleeps();
    let way = WAYS.iter().find(sleeps).ok_or("no such way")?;
    let mut cases = Vec::new();
    for (name, size) in CASES {
        build(name, folder.path())?;
        eprintln!("prefetch: {name} {size}");
        let program = folder.path().join(name);
        let program = program.to_str().ok_or("a path that is no text")?;
        let (windows, smp) = Default::default();
        let mut case = Case { name, size, windows, smp };
        for round in 0..ROUNDS {
            for turn in 0..=WINDOWS.len() {
                let contender = (round + turn) % (WINDOWS.len() + 1);
                match instances.get(contender) {
                    Some(instances) => {
                        case.windows[contender].once(way, instances, &[program, size]);
                    }
                    None => case.smp.once(&WAYS[SMP], &instances[0], &[program, size]),
                }
            }
        }
        cases.push(case);
    }
    Ok(cases)
}
