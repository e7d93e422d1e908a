//! The tables of programs and servers that are watched or optimised, and of the water simulation.

use std::collections::BTreeMap;

use refit_splice::process::Stops;

use crate::bolted::Bolted;
use crate::group::Group;
use crate::layouts::{self, LaidOut};
use crate::programs::Measured as Program;
use crate::report::Report;
use crate::servers::Served;
use crate::stats::Sample;
use crate::water::{self, Water};

impl Report {
    pub(crate) fn programs(&mut self, measured: &[Program]) {
        let title =
            "Programs with every function's entry and exit, or every basic block, watched at once";
        let heads = [
            "program",
            "entries alone, of all",
            "entries and exits, of all",
            "jumps / short jumps / copies (no traps)",
            "blocks, of all",
            "stood still, ms: functions / blocks",
            "as it is, s",
            "functions watched, times as long",
            "blocks watched, times as long",
            "says the same",
        ];
        self.section(title, "programs", &heads);
        let share = |part: u64, all: u64| {
            format!("{part} ({:.2} %)", 100.0 * part as f64 / all.max(1) as f64)
        };
        let sum = |counts: &mut dyn Iterator<Item = &(usize, usize)>| {
            counts.fold((0, 0), |(had, all), one| (had + one.0 as u64, all + one.1 as u64))
        };
        let mut files = BTreeMap::new();
        for one in measured {
            if let Some(trouble) = &one.trouble {
                self.row(&[one.name.into(), format!("not measured: {trouble}")]);
                continue;
            }
            let (had, entries) = sum(&mut one.entries.values());
            files.extend(&one.entries);
            let (watched, all) = one.functions;
            let [jumps, short, copies] = one.ways;
            let times = |n: usize| format!("{:.2}", one.took[n].median() / one.took[0].median());
            let blocks = |value: String| one.no_blocks.as_ref().map_or(value, |_| "–".into());
            self.row(&[
                one.name.into(),
                share(had, entries),
                share(watched as u64, all as u64),
                format!("{jumps} / {short} / {copies}"),
                match &one.no_blocks {
                    Some(why) => format!("not measured: {why}"),
                    None => share(one.blocks.watched, one.blocks.blocks),
                },
                format!("{} / {}", one.stood[0].show(1), blocks(one.stood[1].show(1))),
                one.took[0].show(2),
                times(1),
                blocks(times(2)),
                if one.same { "yes".into() } else { "NO".into() },
            ]);
        }
        let (had, entries) = sum(&mut files.values().copied());
        self.note(&format!(
            "\nEntries alone, without a trap, of the {} files that these programs run: {} of {entries} functions; must reach ≥ 99.5 %.\n",
            files.len(),
            share(had, entries)
        ));
    }

    pub(crate) fn servers(&mut self, measured: &[Served]) {
        let title = "Servers under load while functions of them are counted";
        let heads = [
            "server and load",
            "requests/s",
            "one hot function counted",
            "must reach",
            "all functions counted",
            "must reach",
            "a flag at every block with room",
            "a flag at every block",
            "must reach",
        ];
        self.section(title, "servers", &heads);
        for one in measured {
            if let Some(trouble) = &one.trouble {
                self.row(&[one.name.into(), format!("not measured: {trouble}")]);
                continue;
            }
            let share = |n: usize| 100.0 * one.rates[n].median() / one.rates[0].median();
            self.row(&[
                one.name.into(),
                one.rates[0].show(0),
                format!("{:.1} % (`{}`)", share(1), one.hot),
                "≥ 99 %".into(),
                format!("{:.1} % ({} functions)", share(2), one.places[0]),
                "≥ 95 %".into(),
                format!("{:.1} % ({} blocks)", share(3), one.places[1]),
                format!("{:.1} % ({} blocks)", share(4), one.places[2]),
                "≥ 90 %".into(),
            ]);
        }
    }

    pub(crate) fn layouts(&mut self, measured: &[LaidOut]) {
        let title = "Programs whose hot code is laid out anew while they work";
        let heads = [
            "program and load",
            "functions, blocks",
            "jumps taken per 1,000 blocks",
            "cache lines",
            "pages",
            "gain of copies in the old order (placebo), %",
            "gain of the new order, %",
            "must reach",
            "verdict, after (without the placebo)",
            "must reach",
            "stops that do nothing; stops of the optimisation: number, median, longest",
            "must reach",
            "requests, or units of work, per second without → with the copies",
        ];
        self.section(title, "optimize", &heads);
        for one in measured {
            let (Some((functions, blocks, before, after)), Some(outcome)) =
                (&one.laid_out, &one.outcome)
            else {
                let why = one.trouble.as_deref().unwrap_or("nothing is hot");
                self.row(&[one.name.into(), format!("not measured: {why}")]);
                continue;
            };
            let gain =
                outcome.verdict.gain().map_or_else(String::new, |gain| layouts::percent(&gain));
            let placebo = outcome.placebo.as_ref().map_or_else(String::new, layouts::percent);
            let rates = one.rates.as_ref().map_or_else(String::new, |[without, with]| {
                let ratio = 100.0 * (with.median() / without.median() - 1.0);
                let digits = if with.median() < 100.0 { 2 } else { 0 };
                format!("{} → {} ({ratio:+.1} %)", without.show(digits), with.show(digits))
            });
            self.row(&[
                one.name.into(),
                format!("{functions}, {blocks}"),
                format!("{:.0} → {:.0}", before.taken, after.taken),
                format!("{} → {}", before.lines, after.lines),
                format!("{} → {}", before.pages, after.pages),
                placebo,
                gain,
                "≥ 10 on two, ≥ 20 on one".into(),
                format!(
                    "{}, {:.0} s ({:.0} s)",
                    layouts::verdict(outcome),
                    one.took.as_secs_f64(),
                    (one.took - one.placebo).as_secs_f64()
                ),
                "≤ 30 s".into(),
                [one.empty_stops, outcome.stops].map(stops).join("; "),
                "≤ 5 ms".into(),
                rates,
            ]);
        }
    }

    pub(crate) fn group(&mut self, groups: &[Group]) {
        let title = "One function and what it calls, laid out anew (Tamches and Miller 2001)";
        let heads = [
            "function group",
            "functions, blocks",
            "an invocation without → with the copies, ns",
            "change",
            "paper, `tcp_rput_data`",
            "units of work per second without → with the copies",
            "change",
            "paper, end to end",
        ];
        self.section(title, "group", &heads);
        groups.iter().for_each(|group| self.group_row(group));
    }

    fn group_row(&mut self, group: &Group) {
        let name = format!("`{}` of {}", group.root, group.name);
        if let Some(why) = &group.trouble {
            return self.row(&[name, format!("not measured: {why}")]);
        }
        let pair = |[without, with]: &[Sample; 2]| {
            let ratios = with.over(without);
            let change: Sample = ratios.values().map(|one| (one - 1.0) * 100.0).collect();
            [format!("{} → {}", without.show(0), with.show(0)), format!("{} %", change.show(1))]
        };
        let ([times, slower], [rates, more]) = (pair(&group.invocations), pair(&group.rates));
        let (functions, blocks) = group.laid_out;
        let laid_out = format!("{functions}, {blocks}");
        self.row(&[name, laid_out, times, slower, "−17.6 %".into(), rates, more, "7 %".into()]);
    }

    pub(crate) fn bolted(&mut self, measured: &[Bolted]) {
        let title = "BOLT on the same interpreters";
        let heads = [
            "program and load",
            "sampling, s",
            "making the file, s",
            "processor time for the same work, gain in %",
            "restart",
        ];
        self.section(title, "bolt", &heads);
        for one in measured {
            if let Some(why) = &one.trouble {
                self.row(&[one.name.into(), format!("not measured: {why}")]);
                continue;
            }
            let [sampling, making] = one.took.map(|took| format!("{:.1}", took.as_secs_f64()));
            self.row(&[one.name.into(), sampling, making, one.gain.show(1), "needed".into()]);
        }
    }

    pub(crate) fn water(&mut self, measured: &[Water]) {
        let title = "WATER: what an event costs in a loop and between the work (Kohr 1994, tab. 1)";
        let heads = [
            "molecules/steps/threads",
            "plain, ms",
            "traced, ms",
            "events",
            "in vitro, ns",
            "in vivo, ns",
            "in vivo beyond in vitro",
            "must reach",
        ];
        self.section(title, "water", &heads);
        let name = |i: usize| {
            let (molecules, steps, threads) = water::SETTINGS[i];
            format!("{molecules}/{steps}/{threads}")
        };
        for (i, one) in measured.iter().enumerate() {
            let ms =
                |sample: &Sample| sample.values().map(|ns| ns / 1e6).collect::<Sample>().show(2);
            let beyond = 100.0 * (one.in_vivo.median() / one.in_vitro.median() - 1.0);
            let cells =
                [ms(&one.plain), ms(&one.traced), one.records.show(0), one.in_vitro.show(2)];
            let rest = [one.in_vivo.show(2), format!("{beyond:+.0} %"), "within 20 %".into()];
            self.row(&[&[name(i)], &cells[..], &rest[..]].concat());
            for trouble in &one.trouble {
                self.row(&[name(i), format!("not measured: {trouble}")]);
            }
        }
        let title = "WATER: compensated durations against a clock around the procedure alone";
        let heads = [
            "molecules/steps/threads",
            "procedure",
            "clock only, µs",
            "traced, µs",
            "compensated, µs",
            "error bar, µs",
            "off by",
            "must reach",
        ];
        self.section(title, "water", &heads);
        for (i, one) in measured.iter().enumerate() {
            for (procedure, samples) in &one.procedures {
                let us = |sample: &Sample| {
                    sample.values().map(|ns| ns / 1e3).collect::<Sample>().show(2)
                };
                let [times @ .., ratio] = samples;
                let off = |q: f64| 100.0 * (ratio.quantile(q) - 1.0);
                let off = format!("{:+.1} % ({:+.1} – {:+.1})", off(0.5), off(0.1), off(0.9));
                let mut cells = vec![name(i), (*procedure).into()];
                cells.extend(times.iter().map(us));
                cells.extend([off, "within 5 %".into()]);
                self.row(&cells);
            }
        }
        let title = "WATER: locks and barriers (Kohr 1994, tab. 6)";
        let paper = "paper, parallel: Choices / Umax, ms";
        self.section(
            title,
            "water",
            &["molecules/steps/threads", "what", "count", "mean, ns", paper],
        );
        for (i, one) in measured.iter().enumerate() {
            for (wait, [counts, means]) in &one.waits {
                let paper = if wait.contains("lock") { "0.20 / 0.03" } else { "1660 / 223.8" };
                let what = wait.trim_start_matches(':').to_owned();
                self.row(&[name(i), what, counts.show(0), means.show(0), paper.into()]);
            }
        }
    }
}

/// Returns the number of stops, their median and the longest, in milliseconds.
fn stops(stops: Stops) -> String {
    let [median, longest] = [stops.median, stops.longest].map(|one| one.as_secs_f64() * 1e3);
    format!("{}, {median:.1} ms, {longest:.1} ms", stops.count)
}
