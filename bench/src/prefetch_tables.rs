//! The tables of workloads whose pages move.

use crate::plot;
use crate::prefetch::{ADAPTIVE, CASES, Case, WINDOWS};
use crate::report::Report;
use crate::spread::{MoveTotals, Times};
use crate::workload_tables::{CYCLES, per_run};

const PART: &str = "prefetch";
/// The maximum time of the adaptive window, as a multiple of the best fixed window's.
const BAR: f64 = 1.05;

/// Katz 2014, tables 6.5, 6.9, 6.13, 6.17 and 6.21: cycles of a retrieval, and of its messages,
/// with 1, 4 and 8 prefetch slots and two kernels.
const PAPER: [[(f64, f64); ADAPTIVE]; CASES.len()] = [
    [(42011.0, 17184.0), (43432.0, 16841.0), (42872.0, 17504.0)],
    [(40690.0, 18529.0), (73068.0, 22056.0), (64785.0, 20185.0)],
    [(34269.0, 20477.0), (46800.0, 22299.0), (56051.0, 22673.0)],
    [(41140.0, 19946.0), (73191.0, 22207.0), (96065.0, 22860.0)],
    [(45266.0, 23280.0), (58428.0, 23193.0), (86505.0, 24476.0)],
];

impl Report {
    pub(crate) fn prefetch(&mut self, measured: Result<Vec<Case>, String>) {
        let title = "Workloads whose pages move between two instances, by how many at once (after Katz 2014, figs. 6.12 – 6.71)";
        let heads = [
            "workload",
            "`--ahead`",
            "timed part, s",
            "times the best fixed",
            "must reach",
            "times SMP",
            "from start to end, s",
        ];
        let Some(cases) = self.begin(title, PART, &heads, measured) else { return };
        for case in &cases {
            let best = &case.windows[case.best()].inside;
            let smp = ("2 threads of one kernel", &case.smp);
            for (window, taken) in WINDOWS.into_iter().zip(&case.windows).chain([smp]) {
                let mut row = vec![case.title(), window.to_owned()];
                match &taken.trouble {
                    Some(why) => row.push(format!("not measured: {why}")),
                    None => {
                        row.extend([taken.inside.show(3), taken.inside.over(best).show(2)]);
                        let bar = window == WINDOWS[ADAPTIVE];
                        row.push(if bar { format!("≤ {BAR}") } else { String::new() });
                        row.push(taken.inside.over(&case.smp.inside).show(2));
                        row.push(taken.outside.show(3));
                    }
                }
                row.resize(heads.len(), String::new());
                self.row(&row);
            }
        }
        self.picture("prefetch.svg", |to| plot::prefetch(to, &cases));
        self.pages(&cases);
    }

    /// Writes a table in the manner of tables 6.2 to 6.21: by instance, and the share of messages.
    fn pages(&mut self, cases: &[Case]) {
        let title = "Pages that moved there (after Katz 2014, tables 6.2 – 6.21)";
        let heads = [
            "workload",
            "`--ahead`",
            "instance",
            "count",
            "max, µs",
            "min, µs",
            "average, µs",
            "in transit, µs",
            "in transit, %",
            "paper: average, µs",
            "in transit, %",
            "pages sent ahead",
            "of that used, %",
        ];
        self.section(title, PART, &heads);
        for (case, paper) in cases.iter().zip(PAPER) {
            let moved = case.windows.iter().zip(WINDOWS).zip(0..);
            for ((taken, window), at) in moved.filter(|((taken, _), _)| taken.moves.runs > 0) {
                let moves = &taken.moves;
                let mut home = vec![case.title(), window.to_owned(), "0".to_owned()];
                home.extend(times(&moves.home, moves.runs));
                home.resize(heads.len(), String::new());
                self.row(&home);
                let mut away = vec![case.title(), window.to_owned(), "1".to_owned()];
                away.extend(times(&moves.pages, moves.runs));
                let transit = moves.pages_under_way();
                away.push(format!("{transit:.1}"));
                away.push(format!("{:.1}", 100.0 * transit / moves.pages.mean()));
                away.extend(paper.get(at).map_or_else(Default::default, said));
                away.extend(ahead(moves));
                self.row(&away);
            }
        }
    }
}

/// Returns the number in each run, and the longest, the shortest, and the mean time in
/// microseconds.
fn times(times: &Times, runs: u64) -> [String; 4] {
    let [most, least] = [times.most, times.least].map(|ns| format!("{:.1}", ns as f64 / 1e3));
    [per_run(times.count, runs), most, least, format!("{:.1}", times.mean())]
}

/// Returns the paper's values: microseconds of a retrieval, and the share of its messages.
fn said((all, transit): &(f64, f64)) -> [String; 2] {
    [format!("{:.1}", all / CYCLES), format!("{:.1}", 100.0 * transit / all)]
}

/// Returns the number of pages that were sent ahead in one run, and how many of them were needed
/// next.
fn ahead(moves: &MoveTotals) -> [String; 2] {
    let MoveTotals { runs, ahead, ahead_used, .. } = moves;
    let used = match ahead {
        0 => String::new(),
        _ => format!("{:.0}", 100.0 * *ahead_used as f64 / *ahead as f64),
    };
    [per_run(*ahead, *runs), used]
}
