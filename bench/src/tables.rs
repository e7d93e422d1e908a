//! The tables of the memory of programs, and of programs that compute.

use crate::domains::{self, Domains};
use crate::faults;
use crate::messages::{self, Messages};
use crate::metadata;
use crate::paging::{self, Paging};
use crate::passthrough;
use crate::plot;
use crate::report::Report;
use crate::runs::{PROGRAMS, Runs};
use crate::sdet;
use crate::stats::Sample;
use crate::streams::{self, Streams};

fn cell(text: &str) -> String {
    text.to_owned()
}

impl Report {
    /// Begins a section about a measurement. If it failed, the section states the reason, and is
    /// complete.
    pub(crate) fn begin<T>(
        &mut self,
        title: &str,
        command: &str,
        heads: &[&str],
        measured: Result<T, String>,
    ) -> Option<T> {
        self.section(title, command, heads);
        let figures = measured.map_err(|why| {
            let mut cells = vec![format!("not measured: {why}")];
            cells.resize(heads.len(), String::new());
            self.row(&cells);
        });
        figures.ok()
    }

    pub(crate) fn sdet(&mut self, measured: Result<sdet::Rates, String>) {
        let title = "Single, replicated and adaptive file caches (Soules 2003, §6.3, fig. 5: \
                     replicated −7 % under Postmark, +8 % under SDET on 4 processors)";
        let [single, replicated, adaptive] = sdet::CACHES;
        let better = "adaptive over the better of both";
        let heads = ["work", single, replicated, adaptive, better, "must reach"];
        let Some(rates) = self.begin(title, "sdet", &heads, measured) else { return };
        for (work, [single, replicated, adaptive]) in sdet::WORK.iter().zip(&rates) {
            let best = if single.median() > replicated.median() { single } else { replicated };
            let cells = [single, replicated, adaptive].map(|rate| rate.show(1));
            self.row(
                &[&[cell(work)], &cells[..], &[adaptive.over(best).show(2), cell("≥ 0.98")]]
                    .concat(),
            );
        }
    }

    pub(crate) fn passthrough(&mut self, measured: Result<passthrough::Rates, String>) {
        let title = "Exclusive mounts and files that are passed through, a second \
                     (Soules 2003, §6.3, fig. 6: exclusive sessions 1.34× under Postmark, small \
                     files a further 1.4×)";
        let heads = [
            "contender",
            "postmark, transactions",
            "over `refit mount`",
            "time over no server",
            "fio randread 4k",
            "fio read 4k",
            "fio randwrite 4k",
            "fio write 4k",
            "must reach",
        ];
        let Some(rates) = self.begin(title, "passthrough", &heads, measured) else { return };
        let (usual, none) = (&rates[0][0], &rates[rates.len() - 1][0]);
        let bars = ["", "≥ 1.34×", "≥ 1.34×", "≥ 1.88×, ≤ 3× the time", "", ""];
        for ((contender, rates), bar) in passthrough::CONTENDERS.iter().zip(&rates).zip(bars) {
            let [postmark, fio @ ..] = rates;
            let gain = format!("{}×", postmark.over(usual).show(2));
            let time = format!("{}×", none.over(postmark).show(2));
            let mut cells = vec![cell(contender), postmark.show(0), gain, time];
            cells.extend(fio.iter().map(|rate| rate.show(0)));
            cells.push(cell(bar));
            self.row(&cells);
        }
    }

    pub(crate) fn metadata(&mut self, measured: Result<metadata::Times, String>) {
        let title = format!(
            "Names and attributes, seconds; the git repository has {} files",
            metadata::repository_files()
        );
        let mut heads = vec!["work"];
        heads.extend(metadata::CONTENDERS);
        heads.extend([
            "passthrough_hp over refit",
            "refit over no server",
            "exclusive over no server",
            "must reach",
        ]);
        let Some(times) = self.begin(&title, "metadata", &heads, measured) else { return };
        let [refit, exclusive, _, peer, none] = &times;
        for (n, (work, warm)) in metadata::WORK.into_iter().enumerate() {
            let mut cells = vec![cell(work)];
            cells.extend(times.iter().map(|times| times[n].show(2)));
            cells.push(peer[n].over(&refit[n]).show(2));
            cells.push(refit[n].over(&none[n]).show(2));
            cells.push(exclusive[n].over(&none[n]).show(2));
            cells.push(cell(if warm { "≥ 1.0, ≤ 1.5" } else { "≥ 1.0" }));
            self.row(&cells);
        }
    }

    pub(crate) fn faults(&mut self, measured: Result<faults::All, String>) {
        let title = "A page fault of a thread, in core";
        let heads = [
            "who resolves it",
            "on one processor, µs",
            "of ten, the longest but one, µs",
            "beyond bare, µs",
            "beyond bare in another process, µs",
            "free, µs",
            "the longest but one, µs",
            "beyond bare, µs",
            "beyond bare in another process, µs",
            "pages one behind the other, µs each",
            "free, µs each",
            "must reach",
        ];
        let Some(all) = self.begin(title, "faults", &heads, measured) else { return };
        let bare = [faults::BARE, faults::APART].map(|kind| &all[kind].median);
        for (kind, one) in faults::KINDS.iter().zip(&all) {
            let mut cells = vec![cell(kind)];
            for (placed, (median, tail)) in one.median.iter().zip(&one.tail).enumerate() {
                cells.extend([median.show(2), tail.show(2)]);
                let beyond = |bare: &[Sample; 2]| median.median() - bare[placed].median();
                cells.extend(bare.map(|bare| format!("{:+.2}", beyond(bare))));
            }
            cells.extend(one.dense.each_ref().map(|dense| dense.show(2)));
            let refit = *kind == faults::KINDS[faults::REFIT];
            cells.push(cell(if refit { "≤ 7, and bare + 1" } else { "" }));
            self.row(&cells);
        }
    }

    pub(crate) fn paging(&mut self, measured: &[Paging; 4]) {
        let title = format!(
            "A working set of {} MiB where {} are allowed, zipf 0.99, one access of five a write",
            paging::SET,
            paging::BUDGET
        );
        let heads = [
            "who pages",
            "1 thread, operations/s",
            "refit's, times that",
            "2 threads, operations/s",
            "refit's, times that",
            "in the program, MiB",
            "must reach",
        ];
        self.section(&title, "paging", &heads);
        let own = measured[0].rate.each_ref().map(|rate| rate.median());
        for (n, (kind, one)) in paging::KINDS.iter().zip(measured).enumerate() {
            let mut cells = vec![match &one.trouble {
                Some(why) => format!("{kind} (failed {} times: {why})", one.failed),
                None => cell(kind),
            }];
            for (rate, own) in one.rate.iter().zip(own) {
                cells.push(rate.show(0));
                cells.push(format!("{:.2}×", own / rate.median()));
            }
            let bar = if [1, 2].contains(&n) { "≥ 1.0×" } else { "" };
            cells.extend([one.resident[1].show(1), cell(bar)]);
            self.row(&cells);
        }
    }

    pub(crate) fn runs(&mut self, measured: Result<Runs, String>) {
        let title = "Programs under `refit run`, without a limit";
        let heads = ["program", "natively", "under refit", "ratio", "must reach"];
        let Some(runs) = self.begin(title, "runs", &heads, measured) else { return };
        for ((name, took), ratio) in PROGRAMS.iter().zip(&runs.took).zip(&runs.ratio) {
            let [native, tended] = took.each_ref().map(|took| format!("{} s", took.show(2)));
            self.row(&[cell(name), native, tended, ratio.show(3), String::new()]);
        }
        let none = String::new;
        self.row(&[cell("all"), none(), none(), runs.total.show(3), cell("≤ 1.03")]);
        let [native, tended] = runs.start.each_ref().map(|took| format!("{} ms", took.show(2)));
        let more = format!("{} ms more", runs.more.show(2));
        let what = cell("`/bin/true`, its instance started with it");
        self.row(&[what, native, tended, more, cell("≤ 15 ms more")]);
    }

    pub(crate) fn domains(&mut self, measured: Result<Domains, String>) {
        let title = "The page fault experiment (Hui 2000, §5.3.4–5.3.6, figs. 5.7, 5.8)";
        let heads = [
            "thousands of faults a second",
            "shared",
            "partitioned",
            "switched between",
            "partitioned / shared",
            "switched / the better",
            "paper",
            "must reach",
        ];
        let Some(measured) = self.begin(title, "domains", &heads, measured) else { return };
        let [halves, dealt] = &measured.objects;
        let rows = [
            ("programs", &measured.programs),
            ("objects alone, threads have halves", halves),
            ("objects alone, pages dealt out", dealt),
        ];
        for (what, rates) in rows {
            for threads in 1..=domains::MOST_THREADS {
                let [shared, partitioned, switched] = rates.each_ref().map(|r| &r[threads - 1]);
                let better =
                    if shared.median() > partitioned.median() { shared } else { partitioned };
                let (paper, bar) = match threads {
                    1 => ("shared 25 % better", "≤ 0.80; ≥ 0.97"),
                    _ => ("partitioned much better", "≥ 1.5; ≥ 0.97"),
                };
                self.row(&[
                    format!("{what}, threads: {threads}"),
                    shared.show(0),
                    partitioned.show(0),
                    switched.show(0),
                    partitioned.over(shared).show(2),
                    switched.over(better).show(2),
                    cell(paper),
                    cell(bar),
                ]);
            }
        }
        let what = format!("the kernel alone, no refit, threads: {}", domains::MOST_THREADS);
        let mut cells = vec![what, measured.kernel.show(0)];
        cells.resize(heads.len(), String::new());
        self.row(&cells);
        self.picture("domains.svg", |to| plot::domains(to, &measured));
    }

    pub(crate) fn streams(&mut self, measured: Result<Streams, String>) {
        let (set, limit, length) = (streams::SET, streams::LIMIT, streams::LENGTH);
        let title = format!(
            "Streams of {length} MiB beside a working set of {set} MiB where {limit} are allowed (Soules 2003, fig. 7)"
        );
        let heads = [
            "streams",
            "default, accesses of the working set/s",
            "adaptive",
            "adaptive / default",
            "paper",
            "must reach",
        ];
        let Some(measured) = self.begin(&title, "streams", &heads, measured) else { return };
        let [default, adaptive] = &measured;
        for ((streams, default), adaptive) in streams::STREAMS.iter().zip(default).zip(adaptive) {
            let (paper, bar) = match streams {
                0 => ("the same", ""),
                _ => ("degrades more slowly", "≥ 1.5×"),
            };
            self.row(&[
                streams.to_string(),
                default.show(0),
                adaptive.show(0),
                format!("{:.2}×", adaptive.median() / default.median()),
                cell(paper),
                cell(bar),
            ]);
        }
        self.picture("streams.svg", |to| plot::streams(to, &measured));
    }

    pub(crate) fn messages(&mut self, measured: Result<Messages, String>) {
        let title =
            "A question and its answer between two instances (`docs/internals/messages.md`)";
        let heads = ["by", "bytes each way"].into_iter().map(cell);
        let heads = heads.chain(messages::PLACES.map(|place| format!("{place}, µs")));
        let heads: Vec<String> = heads.chain([cell("bare primitives, µs")]).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let Some(measured) = self.begin(title, "messages", &heads, measured) else { return };
        // Measured on another day, with less load around them.
        let bare = [
            "ring: 0.12 spinning, 47 asleep",
            "Unix socket: 10.5 on one processor, 27.4 on two (64 B to and 4160 B fro)",
            "TCP: 12.7 on one processor, 33.6 on two (64 B to and 4160 B fro)",
        ];
        for ((contender, sizes), bare) in messages::CONTENDERS.iter().zip(&measured).zip(bare) {
            for (size, places) in messages::SIZES.iter().zip(sizes) {
                let places = places.iter().map(|place| place.show(2));
                let cells = [cell(contender), size.to_string()].into_iter().chain(places);
                self.row(&cells.chain([cell(bare)]).collect::<Vec<_>>());
            }
        }
    }
}
