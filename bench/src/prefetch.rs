//! How many pages are to be moved at once: the workloads, with pages that move between two instances (`refit boot --pages move`), by `--ahead`
//! (Katz 2014, chapter 6: prefetch slots). Windows take turns, each first as often as the others. Processors do not sleep meanwhile: how long the
//! host takes to wake one would be most of what differs.

use crate::report::Report;
use crate::spread::{Instances, Moves};
use crate::workload_tables::per_run;
use crate::workloads::{Taken, WAYS, Way, build};

const ROUNDS: usize = 5;
/// What `--ahead` is; the last is to be as good as the best of the others.
pub(crate) const WINDOWS: [&str; 4] = ["1", "4", "8", "adaptive"];
const ADAPTIVE: usize = WINDOWS.len() - 1;
/// So many times the best fixed window it may take.
const BAR: f64 = 1.05;

/// What is run: sizes that take a second or less on one instance.
const CASES: [(&str, &str); 5] =
    [("is", "W"), ("ft", "W"), ("cg", "W"), ("bfs", "1000000"), ("lu", "1024")];

/// One workload.
pub(crate) struct Case {
    name: &'static str,
    size: &'static str,
    windows: [Taken; WINDOWS.len()],
}

impl Case {
    /// Which fixed window takes the least time.
    fn best(&self) -> usize {
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
    // Threads that spin while they wait would have the pages that they look at moved again and again.
    let sleeps = |way: &&Way| way.spread && way.sleeps();
    let way = WAYS.iter().find(sleeps).ok_or("no such way")?;
    let mut cases = Vec::new();
    for (name, size) in CASES {
        build(name, folder.path())?;
        eprintln!("prefetch: {name} {size}");
        let program = folder.path().join(name);
        let program = program.to_str().ok_or("a path that is no text")?;
        let mut case = Case { name, size, windows: Default::default() };
        for round in 0..ROUNDS {
            for turn in 0..WINDOWS.len() {
                let window = (round + turn) % WINDOWS.len();
                case.windows[window].once(way, &instances[window], &[program, size]);
            }
        }
        cases.push(case);
    }
    Ok(cases)
}

impl Report {
    pub(crate) fn prefetch(&mut self, measured: Result<Vec<Case>, String>) {
        let title = "Workloads whose pages move between two instances, by how many at once";
        let heads = [
            "workload",
            "`--ahead`",
            "timed part, s",
            "times the best fixed",
            "must reach",
            "questions for pages",
            "each, µs",
            "pages sent ahead",
            "of that used, %",
        ];
        let Some(cases) = self.begin(title, "prefetch", &heads, measured) else { return };
        for case in &cases {
            let best = &case.windows[case.best()].inside;
            for (at, (window, taken)) in WINDOWS.iter().zip(&case.windows).enumerate() {
                let mut row = vec![format!("{} {}", case.name, case.size), (*window).to_owned()];
                match &taken.trouble {
                    Some(why) => row.push(format!("not measured: {why}")),
                    None => {
                        row.extend([taken.inside.show(3), taken.inside.over(best).show(2)]);
                        let bar = if at == ADAPTIVE { format!("≤ {BAR}") } else { String::new() };
                        row.push(bar);
                        row.extend(pages(&taken.moves));
                    }
                }
                row.resize(heads.len(), String::new());
                self.row(&row);
            }
        }
    }
}

/// Questions in one run, what each took, pages sent ahead in one, and how many of them were needed next.
fn pages(moves: &Moves) -> [String; 4] {
    let Moves { runs, fetches, ahead, ahead_used, .. } = moves;
    let used = match ahead {
        0 => String::new(),
        _ => format!("{:.0}", 100.0 * *ahead_used as f64 / *ahead as f64),
    };
    [per_run(fetches.count, *runs), format!("{:.1}", fetches.mean()), per_run(*ahead, *runs), used]
}
