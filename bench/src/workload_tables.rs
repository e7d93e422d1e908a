//! The tables of the workloads of Katz 2014, chapter 6.

use crate::plot;
use crate::report::Report;
use crate::spread::{MoveTotals, Times};
use crate::workloads::{COMPILER, Case, SMP, WAYS};

const PART: &str = "workloads";
/// The number of cycles of the paper's machine per microsecond (§6.1: 1.4 GHz).
pub(crate) const CYCLES: f64 = 1400.0;
/// The parts of table 6.1 that are not counted here.
const MECHANISMS_NOTE: &str = "\n\
    Of table 6.1, these have nothing beside them: exit of a task (96.3 µs), which is a thread that comes back and ends at home;\n\
    exit of a group (4.4), which the one process at home does; breaking a copy-on-write page (13.5), which is a part of finding\n\
    what is at an address; counting the members of a group elsewhere (169.5): the coordinator knows them all.\n";

impl Report {
    pub(crate) fn workloads(&mut self, measured: Result<Vec<Case>, String>) {
        let title =
            format!("The workloads of Katz 2014, chapter 6, built by `{}`", COMPILER.join(" "));
        let heads =
            ["workload", "run", "timed part, s", "times SMP", "must reach", "from start to end, s"];
        let Some(cases) = self.begin(&title, PART, &heads, measured) else { return };
        for case in &cases {
            self.times(case);
        }
        self.picture("workloads.svg", |to| plot::workloads(to, &cases));
        self.retrievals(&cases);
        self.mechanisms(&cases);
    }

    fn times(&mut self, case: &Case) {
        for (way, taken) in WAYS.iter().zip(&case.ways) {
            let (what, way_name) = (case.title(), way.name.to_owned());
            if let Some(why) = &taken.trouble {
                let none = String::new;
                let why = format!("not measured: {why}");
                self.row(&[what, way_name, why, none(), none(), none()]);
                continue;
            }
            let ratio = taken.inside.over(&case.ways[SMP].inside).show(2);
            let [inside, outside] = [&taken.inside, &taken.outside].map(|took| took.show(3));
            let bar = case.bar().filter(|_| way.spread).map(|bar| format!("≤ {bar:.2}"));
            self.row(&[what, way_name, inside, ratio, bar.unwrap_or_default(), outside]);
        }
    }

    /// Writes a table in the manner of tables 6.2 to 6.21: by instance, and the share of messages.
    fn retrievals(&mut self, cases: &[Case]) {
        let heads = [
            "workload, run",
            "instance",
            "count",
            "max, µs",
            "min, µs",
            "average, µs",
            "in transit, µs",
            "in transit, %",
        ];
        let title = "Mapping retrievals of those (after Katz 2014, tables 6.2 – 6.21)";
        self.section(title, PART, &heads);
        for (what, moves) in moved(cases) {
            let MoveTotals { runs, faults, .. } = moves;
            let [max, min] = [faults.most, faults.least].map(micros);
            let (mean, transit) = (faults.mean(), moves.under_way());
            self.row(&[
                what,
                "1".to_owned(),
                per_run(faults.count, runs),
                max,
                min,
                format!("{mean:.1}"),
                format!("{transit:.1}"),
                format!("{:.1}", 100.0 * transit / mean),
            ]);
        }
    }

    /// Writes a table in the manner of table 6.1, of the counted mechanisms.
    fn mechanisms(&mut self, cases: &[Case]) {
        let title = "What the mechanisms cost there (after Katz 2014, table 6.1)";
        let heads =
            ["workload, run", "what", "count", "max, µs", "min, µs", "average, µs", "paper, µs"];
        self.section(title, PART, &heads);
        for (workload, moves) in moved(cases) {
            let all: [(&str, Times, Option<f64>); 6] = [
                ("a thread leaves, until it runs", moves.out, Some(188_902.0)),
                ("a thread comes back", moves.back, None),
                ("finding what is at an address", moves.answers, None),
                ("telling a change of the memory", moves.forgets, Some(40_598.0)),
                ("waiting for the coordinator", moves.waits, Some(27_777.0)),
                ("a system call by a shadow", moves.calls, None),
            ];
            for (what, times, paper) in all.into_iter().filter(|(_, times, _)| times.count > 0) {
                self.row(&[
                    workload.clone(),
                    what.to_owned(),
                    per_run(times.count, moves.runs),
                    micros(times.most),
                    micros(times.least),
                    format!("{:.1}", times.mean()),
                    paper.map(|cycles| format!("{:.1}", cycles / CYCLES)).unwrap_or_default(),
                ]);
            }
        }
        self.note(MECHANISMS_NOTE);
    }
}

/// Returns the programs that have moved, and their moves.
fn moved(cases: &[Case]) -> impl Iterator<Item = (String, MoveTotals)> {
    cases.iter().flat_map(|case| {
        let spread =
            WAYS.iter().zip(&case.ways).filter(|(way, taken)| way.spread && taken.moves.runs > 0);
        spread.map(|(way, taken)| (format!("{}, {}", case.title(), way.name), taken.moves))
    })
}

fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

/// Returns the number per run.
pub(crate) fn per_run(count: u64, runs: u64) -> String {
    format!("{:.1}", count as f64 / runs as f64)
}
