//! The tables of the memory of programs.

use crate::faults::{self, Faults};
use crate::report::Report;

fn cell(text: &str) -> String {
    text.to_owned()
}

impl Report {
    /// A part that could not be measured.
    fn trouble(&mut self, why: String, columns: usize) {
        let mut cells = vec![format!("not measured: {why}")];
        cells.resize(columns, String::new());
        self.row(&cells);
    }

    pub(crate) fn faults(&mut self, measured: Result<[Faults; 4], String>) {
        let title = "A page fault of a thread, in core";
        let heads = [
            "who resolves it",
            "on one processor, µs",
            "of ten, the longest but one, µs",
            "beyond bare, µs",
            "free, µs",
            "the longest but one, µs",
            "beyond bare, µs",
            "pages one behind the other, µs each",
            "free, µs each",
            "must reach",
        ];
        self.section(title, "faults", &heads);
        let all = match measured {
            Ok(all) => all,
            Err(why) => return self.trouble(why, heads.len()),
        };
        let bare = [0, 1].map(|bound| all[1].median[bound].median());
        for (kind, one) in faults::KINDS.iter().zip(&all) {
            let mut cells = vec![cell(kind)];
            for ((median, tail), bare) in one.median.iter().zip(&one.tail).zip(bare) {
                cells.extend([median.show(2), tail.show(2)]);
                cells.push(format!("{:+.2}", median.median() - bare));
            }
            cells.extend(one.dense.each_ref().map(|dense| dense.show(2)));
            cells.push(cell(if *kind == "refit" { "≤ 7, and bare + 1" } else { "" }));
            self.row(&cells);
        }
    }
}
