//! The tables of the workloads of Katz 2014, chapter 6.

use crate::report::Report;
use crate::spread::{Moves, Times};
use crate::workloads::{COMPILER, Case, SMP, WAYS};

const PART: &str = "workloads";

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
        self.retrievals(&cases);
        self.mechanisms(&cases);
    }

    fn times(&mut self, case: &Case) {
        for (way, taken) in WAYS.iter().zip(&case.ways) {
            let (what, way_name) = (named(case), way.name.to_owned());
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

    /// In the manner of tables 6.2 to 6.21: by instance, and the share that messages have.
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
            let Moves { runs, faults, .. } = moves;
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

    /// In the manner of table 6.1, of what is counted.
    fn mechanisms(&mut self, cases: &[Case]) {
        let title = "What the mechanisms cost there (after Katz 2014, table 6.1)";
        let heads = ["workload, run", "what", "count", "max, µs", "min, µs", "average, µs"];
        self.section(title, PART, &heads);
        for (workload, moves) in moved(cases) {
            let all: [(&str, Times); 6] = [
                ("a thread leaves, until it runs", moves.out),
                ("a thread comes back", moves.back),
                ("finding what is at an address", moves.answers),
                ("telling a change of the memory", moves.forgets),
                ("waiting for the custodian", moves.waits),
                ("a system call by a shadow", moves.calls),
            ];
            for (what, times) in all.into_iter().filter(|(_, times)| times.count > 0) {
                self.row(&[
                    workload.clone(),
                    what.to_owned(),
                    per_run(times.count, moves.runs),
                    micros(times.most),
                    micros(times.least),
                    format!("{:.1}", times.mean()),
                ]);
            }
        }
    }
}

fn named(case: &Case) -> String {
    format!("{} {}", case.name, case.size)
}

/// What has moved, and its moves.
fn moved(cases: &[Case]) -> impl Iterator<Item = (String, Moves)> {
    cases.iter().flat_map(|case| {
        let spread =
            WAYS.iter().zip(&case.ways).filter(|(way, taken)| way.spread && taken.moves.runs > 0);
        spread.map(|(way, taken)| (format!("{}, {}", named(case), way.name), taken.moves))
    })
}

fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

/// How many of them were in each run.
pub(crate) fn per_run(count: u64, runs: u64) -> String {
    format!("{:.1}", count as f64 / runs as f64)
}
