//! The tables of `bench/RESULTS.md`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use refit_objects::destroy;

use crate::calls::Calls;
use crate::classes::Upgrades;
use crate::counter;
use crate::files::{Files, Place, WORK, on_off};
use crate::handover::Handovers;
use crate::instructions::Instructions;
use crate::interposer::Interposer;
use crate::load::{Load, caches, serve};
use crate::phases::{PATTERNS, Pattern, Phases};
use crate::plot;
use crate::plugins::Plugins;
use crate::probes::{MESSAGES, PROBES, Probes, STACKS, TEXTS};
use crate::recording::Recording;
use crate::stats::Sample;
use crate::swaps::{Swaps, busy, idle};
use crate::top::{self, Top};

/// The reason that two of the limits are not met.
const INSTRUCTIONS_NOTE: &str = "\n\
    In K42 a call is always within a request, so the paper's 32 (with an increment) are to be compared with the first row.\n\
    Of its instructions five are the method and the jump to it, two find the thread's memory, three look whether the\n\
    thread is in a request, two note the call for reports, eight look up the entry, two compare the id, and four call.\n\
    Tried: one piece of thread-local memory instead of statics (58 to 28); no account of panics in locks, reps and ledgers\n\
    made with the mediator, the cycle counter instead of the clock (583 to 235 forwarded). What is left of a forwarded\n\
    call is two locks of a ledger (40), a shim, an entry in the ledger, and what the compiler saves and restores around them.\n";

/// The number of swaps of each kind.
const SWAPS: usize = 10_000;

pub(crate) struct Report(String);

impl Report {
    pub(crate) fn new(parts: &[String]) -> Self {
        let mut text = String::from("# Results\n\nWritten by `bench/run");
        parts.iter().for_each(|a| {
            let _ = write!(text, " {a}");
        });
        let _ = writeln!(
            text,
            "`. Medians, with the 10th and 90th percentile in parentheses; all contenders of a table run in\n\
             turn in one run. Absolute times are of this machine on this day; ratios travel better.\n\n\
             - date: {}\n- machine: {}, {} processors\n- kernel: {}\n- load when it began: {}",
            said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            cpu(),
            refit_sys::processor::count(),
            said("uname", &["-sr"]),
            std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        );
        Report(text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn section(&mut self, title: &str, command: &str, heads: &[&str]) {
        let _ = writeln!(self.0, "\n## {title}\n\n`bench/run {command}`\n");
        let _ = writeln!(self.0, "| {} |", heads.join(" | "));
        let _ = writeln!(self.0, "|{}", "---|".repeat(heads.len()));
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.0, "| {} |", cells.join(" | "));
    }

    /// Adds a note about the table before it, after an empty line.
    pub(crate) fn note(&mut self, note: &str) {
        self.0 += note;
    }

    pub(crate) fn calls(&mut self, calls: &Calls) {
        let title = "A protected call (Soules 2003, §6.2: one load and a virtual call)";
        let heads = ["call", "ns", "over plain, ns", "times refit's overhead", "must reach"];
        self.section(title, "calls", &heads);
        let base = calls.plain.median();
        let own = calls.refit.median() - base;
        let rows: [(&str, &Sample, &str); 6] = [
            ("plain `dyn`", &calls.plain, ""),
            ("refit: look-up, request, dispatch", &calls.refit, "≤ +1.0 ns"),
            ("refit, within a request", &calls.within, ""),
            ("arc-swap `load`", &calls.arc_swap, "≥ 5×"),
            ("`RwLock` read", &calls.rwlock, "≥ 5×"),
            ("crossbeam-epoch `pin`", &calls.epoch, "≥ 3×"),
        ];
        for (name, sample, bar) in rows {
            let over = sample.median() - base;
            let (over, times) = match name {
                "plain `dyn`" => (String::new(), String::new()),
                _ => (format!("{over:.2}"), format!("{:.1}×", over / own)),
            };
            self.row(&[name.into(), sample.show(2), over, times, bar.into()]);
        }
    }

    pub(crate) fn instructions(&mut self, counted: std::io::Result<Instructions>) {
        let title = "Instructions of a call and of a switch (Hui 2000, §5.2, tab. 5.1), counted by single steps";
        self.section(title, "instructions", &["step", "instructions", "paper", "must reach"]);
        let counted = match counted {
            Ok(counted) => counted,
            Err(error) => {
                return self.row(&[
                    format!("not counted: {error}"),
                    "".into(),
                    "".into(),
                    "".into(),
                ]);
            }
        };
        let rows: [(&str, u64, &str, &str); 6] = [
            (
                "a call within a request: look-up, dispatch, method",
                counted.call_within,
                "32",
                "≤ 16",
            ),
            ("a call that is a request of its own", counted.call, "", ""),
            ("miss handling", counted.miss, "344", "≤ 200"),
            ("a call that the mediator forwards", counted.forwarded, "633", "≤ 160"),
            ("making a rep of the mediator", counted.mediator_rep(), "838", "≤ 400"),
            ("the first mediated call, all of these", counted.first_mediated, "1815", "≤ 800"),
        ];
        for (name, count, paper, bar) in rows {
            self.row(&[name.into(), count.to_string(), paper.into(), bar.into()]);
        }
        self.note(INSTRUCTIONS_NOTE);
    }

    pub(crate) fn plugins(&mut self, measured: Result<Plugins, String>) {
        let title = "A call of a loaded implementation, beside one of the host's own";
        let heads = ["method", "own, ns", "loaded, ns", "more, ns"];
        let Some(measured) = self.begin(title, "plugins", &heads, measured) else { return };
        let rows =
            [("`count`: a number", &measured.count), ("`get`: a slice, memory", &measured.get)];
        for (name, [own, loaded]) in rows {
            let more = loaded.median() - own.median();
            self.row(&[name.into(), own.show(2), loaded.show(2), format!("{more:.2}")]);
        }
    }

    pub(crate) fn recording(&mut self, measured: &Recording) {
        let title = "An event with 16 bytes of payload, written to a trace";
        self.section(title, "recording", &["what", "ns", "times refit's", "must reach"]);
        let own = measured.event.median();
        let rows: [(&str, &Sample, String); 6] = [
            ("refit, one thread", &measured.event, {
                let most = 15.0_f64.min(measured.clock.median() + 8.0);
                format!("≤ {most:.1} (15 ns, and the bare counter + 8 ns)")
            }),
            ("refit, two threads", &measured.two, String::new()),
            ("refit, suspended, over the bare loop", &measured.suspended, "≤ 0.5".into()),
            ("bare `rdtsc`", &measured.clock, String::new()),
            ("LTTng-UST", &measured.lttng, "≥ 5×".into()),
            ("`tracing` with a file writer", &measured.tracing, "≥ 20×".into()),
        ];
        for (name, sample, bar) in rows {
            let times = format!("{:.1}×", sample.median() / own);
            self.row(&[name.into(), sample.show(2), times, bar]);
        }
        let Some(sustained) = &measured.sustained else { return };
        let (end, seconds) = (sustained.summary.end, sustained.seconds);
        let lost = end.lost_full + end.lost_torn + end.lost_old + end.lost_unwritten;
        let title = "Sustained recording on two processors, stream mode, files of 1 GiB";
        self.section(title, "recording", &["what", "measured", "must reach"]);
        let rate = end.written as f64 / seconds / 1e6;
        let [early, late] = sustained.memory.map(|bytes| bytes >> 20);
        let rows = [
            ("events per second", format!("{rate:.2} million over {seconds:.0} s"), "≥ 5 million"),
            ("lost", lost.to_string(), "0"),
            ("files", sustained.summary.parts.to_string(), ""),
            ("memory after a quarter and at the end", format!("{early} and {late} MiB"), "flat"),
            ("lost in the rounds above", measured.lost.to_string(), ""),
        ];
        for (what, value, bar) in rows {
            self.row(&[what.into(), value, bar.into()]);
        }
    }

    pub(crate) fn handovers(&mut self, measured: Result<Handovers, String>) {
        let title = "Another server takes over a mount";
        self.section(title, "handover", &["what", "ms", "must reach"]);
        let measured = match measured {
            Ok(measured) => measured,
            Err(trouble) => return self.row(&["not measured".into(), trouble, String::new()]),
        };
        let Handovers { files, open, whole, pause, longest, requests, crash } = measured;
        let quantiles = |sample: &Sample| {
            let [half, most, max] = [0.5, 0.99, 1.0].map(|q| sample.quantile(q));
            format!("{half:.2}; {most:.2}; {max:.2}")
        };
        let rows = [
            (format!("hand-over, {files} inodes known, {open} files open"), whole.show(0), ""),
            ("no server serves".into(), pause.show(1), ""),
            ("longest request of each".into(), longest.show(1), ""),
            (
                "requests during it: median; 99 %; longest".into(),
                quantiles(&requests),
                "99 %: ≤ 10",
            ),
            ("longest request when the server is killed".into(), crash.show(1), "≤ 250"),
        ];
        for (what, time, bar) in rows {
            self.row(&[what, time, bar.into()]);
        }
    }

    pub(crate) fn top(&mut self, measured: Result<Top, String>) {
        let title = "`refit top` at ten looks a second";
        let heads = ["what", "% of a processor", "must reach"];
        self.section(title, "top", &heads);
        let top = match measured {
            Ok(top) => top,
            Err(trouble) => return self.row(&["not measured".into(), trouble, String::new()]),
        };
        let objects = format!("{} files, {} reads a second", top::FILES, top::READS);
        let rows = [
            (format!("`refit top`, {objects}"), &top.top, "≤ 1"),
            ("what the instance does for it".into(), &top.instance, ""),
        ];
        for (what, sample, bar) in rows {
            self.row(&[what, sample.show(2), bar.into()]);
        }
        self.row(&["frames per second".into(), top.frames.show(1), "10".into()]);
    }

    pub(crate) fn probes(&mut self, measured: Result<Probes, String>) {
        let title = "A probe at the entry of a function of a running program";
        let heads = ["what", "1 thread, ns", "2 threads, ns", "must reach"];
        self.section(title, "probes", &heads);
        let none = String::new;
        let probes = match measured {
            Ok(probes) => probes,
            Err(trouble) => return self.row(&["not measured".into(), trouble, none(), none()]),
        };
        let over = |samples: &[Sample; 2], n: usize| {
            format!("{:.2}", samples[n].median() - probes.plain[n].median())
        };
        let clocks = 2.0 * probes.clock.median() + 8.0;
        for (probe, samples) in PROBES.iter().zip(&probes.probes) {
            let bar = match *probe {
                "{ count }" => "≤ 3 / ≤ 5".to_owned(),
                "{ latency }" => format!("≤ {clocks:.1} (2 × rdtsc + 8)"),
                STACKS => "≤ 1000".to_owned(),
                TEXTS => "≤ 60".to_owned(),
                MESSAGES => "≤ 40".to_owned(),
                _ => none(),
            };
            let what = format!("`{probe}`, over the call");
            self.row(&[what, over(samples, 0), over(samples, 1), bar]);
        }
        for (what, samples) in
            [("the call", &probes.plain), ("the call with `{ count }`", &probes.probes[0])]
        {
            self.row(&[what.into(), samples[0].show(2), samples[1].show(2), none()]);
        }
        let plain = probes.plain[0].median();
        let count = probes.probes[0][0].median() - plain;
        for (peer, sample, bar) in
            [("bpftrace", &probes.uprobe, 100), ("Frida (Interceptor, C)", &probes.frida, 50)]
        {
            let times = (sample.median() - plain) / count;
            let what = format!("{peer}, {times:.0} times refit's");
            self.row(&[what, sample.show(1), none(), format!("≥ {bar} times")]);
        }
        let attach = format!("{} ms", probes.attach.show(1));
        self.row(&["from nothing to counting".into(), attach, none(), "≤ 100 ms".into()]);
        let (what, stood) = (
            format!("stands still for {} sites", probes.many),
            format!("{} ms", probes.stood.show(2)),
        );
        let bar = format!("≤ {:.1} ms (2 ms for 1,000)", 2e-3 * probes.many as f64);
        self.row(&[what, stood, none(), bar]);
    }

    pub(crate) fn interposer(&mut self, measured: &Interposer) {
        let title = "Interposer (Soules 2003, §6.2, tab. 1)";
        let heads = ["what", "ns", "mean, ns", "over the bare call, ns", "paper, µs", "must reach"];
        self.section(title, "interposer", &heads);
        let Interposer { change: [attach, first, detach], mean, apart, bare, calls } = measured;
        let rows = [
            ("attach an empty wrapper", attach, mean[0], "17.84", "≤ 1 µs"),
            ("first call, which makes the reps", first, mean[1], "", ""),
            ("detach it", detach, mean[2], "4.23", "≤ 1 µs"),
        ];
        for (name, sample, mean, paper, bar) in rows {
            let mean = format!("{mean:.0}");
            self.row(&[name.into(), sample.show(0), mean, String::new(), paper.into(), bar.into()]);
        }
        let rows = ["attach", "detach", "a bare call, to compare,"];
        for (name, sample) in rows.into_iter().zip(apart) {
            let name = format!("{name} after a pause of 20 ms");
            self.row(&[name, sample.show(0), "".into(), "".into(), "".into(), "".into()]);
        }
        self.row(&["call, bare".into(), bare.show(2), "".into(), "".into(), "".into(), "".into()]);
        for (name, sample) in calls {
            let over = format!("{:.2}", sample.median() - bare.median());
            let (paper, bar) = match *name {
                "empty, precall and postcall" => ("1.40", "≤ 10 ns over"),
                _ => ("", ""),
            };
            let name = format!("call through {name}");
            self.row(&[name, sample.show(2), "".into(), over, paper.into(), bar.into()]);
        }
    }

    pub(crate) fn swaps(&mut self) {
        let title = "Null swaps (Soules 2003, §6.2, fig. 4: 10.8 µs at random points; contended 27.6 µs, at most 132.6)";
        let heads = [
            "swap",
            "median, µs",
            "max, µs",
            "beyond the longest call in flight: median, max, µs",
            "must reach",
        ];
        self.section(title, "swaps", &heads);
        let counter = counter::object();
        let of_counter = idle(counter.id(), "plain", SWAPS);
        self.swap_row("counter, idle", &of_counter, "");
        let of_counter = idle(counter.id(), "unpromised", SWAPS);
        self.swap_row("the same, its state moved on a thread of its own", &of_counter, "");
        let call = |_: usize| {
            counter.next(1);
        };
        let of_counter = busy(counter.id(), "plain", SWAPS, &call);
        self.swap_row("counter, two threads call it without pause", &of_counter, "");
        destroy(counter.id());

        let place = Place::new().expect("a scratch directory can be made");
        let mount = serve(&place);
        let file = place.mountpoint().join("file");
        std::fs::write(&file, vec![7; 64 * 1024]).expect("the mount can be written");
        let cache = caches().pop().expect("the file has a cache");
        let of_cache = idle(cache, "shared", SWAPS);
        self.swap_row("FCM of a file of 64 KiB, idle", &of_cache, "median ≤ 10 µs");
        let open = std::fs::File::open(&file).expect("it was written");
        let call = |thread: usize| {
            use std::os::unix::fs::FileExt;
            let mut page = [0; 4096];
            open.read_exact_at(&mut page, thread as u64 * 4096).expect("it can be read");
        };
        let of_cache = busy(cache, "shared", SWAPS, &call);
        self.swap_row(
            "the same, two programs' threads read it",
            &of_cache,
            "median ≤ 30 µs, max ≤ 250 µs beyond",
        );
        let contended = of_cache.total;
        drop(open);

        let large = place.mountpoint().join("large");
        std::fs::write(&large, vec![7; 128 << 20]).expect("the mount can be written");
        mount.write_back().expect("the source can be written");
        let cache = caches().into_iter().find(|c| *c != cache).expect("the file has a cache");
        let of_cache = idle(cache, "shared", SWAPS / 100);
        self.swap_row("FCM of a file of 128 MiB, 32 768 pages, idle", &of_cache, "");
        let of_cache = idle(cache, "partitioned", SWAPS / 100);
        self.swap_row("the same, to `partitioned`", &of_cache, "");
        mount.unmount().expect("nobody uses it any more");
        let paper = [("Soules 2003: mean", 27.6), ("Soules 2003: longest", 132.6)];
        self.picture("null-swaps.svg", |to| plot::swaps(to, &contended, &paper));
    }

    pub(crate) fn phases(&mut self, phases: &Phases) {
        let most = refit_sys::processor::count();
        let title = "The counter experiment (Hui 2000, §5.3, figs. 5.3–5.5)";
        let heads = ["ns per call", "shared", "partitioned", "switched between", "must reach"];
        self.section(title, "phases", &heads);
        for (contenders, (pattern, name)) in phases.iter().zip(PATTERNS) {
            for threads in [1, most] {
                let cell = |samples: &Vec<Sample>| match &samples[threads - 1] {
                    sample if sample.len() == 0 => String::new(),
                    sample => sample.show(1),
                };
                let [shared, partitioned, switched] = contenders.each_ref().map(cell);
                let bar = match (pattern, threads == most) {
                    (Pattern::Both, true) => "switched below both",
                    _ => "",
                };
                let what = format!("{name}, {threads} threads");
                self.row(&[what, shared, partitioned, switched, bar.into()]);
            }
        }
        self.picture("counter.svg", |to| plot::phases(to, phases));
    }

    /// Adds a plot beside this page; a failure to draw it is reported, not hidden.
    pub(crate) fn picture(&mut self, name: &str, draw: impl FnOnce(&Path) -> plot::Drawn) {
        let to = Path::new("bench/plots").join(name);
        let drawn =
            std::fs::create_dir_all("bench/plots").map_err(Into::into).and_then(|()| draw(&to));
        let _ = match drawn {
            Ok(()) => writeln!(self.0, "\n![{name}](plots/{name})"),
            Err(error) => writeln!(self.0, "\n{name} could not be drawn: {error}"),
        };
    }

    pub(crate) fn classes(&mut self, upgrades: &Upgrades) {
        let heads = ["upgrade of 100,000 objects that two threads call", "", "must reach"];
        self.section("Class upgrade (Soules 2003, §7.1)", "classes", &heads);
        let rows: [(&str, &Sample, usize, &str); 4] = [
            ("the whole upgrade, s", &upgrades.total, 2, "≤ 2"),
            ("longest wait of a call for a switch, µs", &upgrades.blocked, 0, "≤ 1,000"),
            ("longest call, its thread preempted included, µs", &upgrades.longest, 0, ""),
            ("the same in as much time without an upgrade, µs", &upgrades.longest_before, 0, ""),
        ];
        for (name, sample, digits, bar) in rows {
            let worst = format!("{}, at most {:.digits$}", sample.show(digits), sample.max());
            self.row(&[name.into(), worst, bar.into()]);
        }
    }

    fn swap_row(&mut self, name: &str, swaps: &Swaps, bar: &str) {
        self.row(&[
            format!("{name} ({} swaps)", swaps.total.len()),
            swaps.total.show(1),
            format!("{:.0}", swaps.total.max()),
            format!("{:.1}, {:.0}", swaps.beyond.median(), swaps.beyond.max()),
            bar.into(),
        ]);
    }

    pub(crate) fn memory(&mut self, measured: &[(&'static str, Sample)]) {
        let heads = ["what is cached", "bytes per 4 KiB page beyond the page", "must reach"];
        self.section("Memory", "memory", &heads);
        for (name, sample) in measured {
            self.row(&[(*name).into(), sample.show(1), "≤ 64".into()]);
        }
    }

    pub(crate) fn load(&mut self, load: &Load) {
        let title = "Throughput while caches are swapped a hundred times a second";
        let heads = ["fio randrw 4k, 2 jobs, kernel cache off", "IOPS", "lost", "must reach"];
        self.section(title, "load", &heads);
        self.row(&["without swaps".into(), load.without.show(0), String::new(), String::new()]);
        let lost = (1.0 - load.ratio.median()) * 100.0;
        let (low, high) = (1.0 - load.ratio.quantile(0.9), 1.0 - load.ratio.quantile(0.1));
        self.row(&[
            format!("with {} swaps in all", load.swaps),
            load.with.show(0),
            format!("{lost:.1} % ({:.1} – {:.1})", low * 100.0, high * 100.0),
            "≤ 2 %".into(),
        ]);
    }

    pub(crate) fn files(&mut self, cached: bool, measured: &Files) {
        let title =
            format!("Files, against libfuse's passthrough_hp; kernel cache {}", on_off(cached));
        let heads = ["work", "refit, a second", "passthrough_hp, a second", "ratio", "must reach"];
        self.section(&title, "files", &heads);
        for (n, work) in WORK.into_iter().enumerate() {
            let (refit, peer) = (&measured.refit[n], &measured.peer[n]);
            let what = if work == "postmark" {
                "postmark, 5000 files, 20 000 transactions".to_owned()
            } else {
                format!("fio {work} 4k, 128 MiB")
            };
            let ratio = format!("{:.2}×", refit.median() / peer.median());
            self.row(&[what, refit.show(0), peer.show(0), ratio, "≥ 1.0×".into()]);
        }
        let peer = &measured.peer[0];
        for (what, rate) in [
            ("postmark, `refit mount --awake`", &measured.awake),
            ("postmark, without a server", &measured.native),
        ] {
            let ratio = format!("{:.2}×", rate.median() / peer.median());
            self.row(&[what.into(), rate.show(0), peer.show(0), ratio, String::new()]);
        }
    }
}

fn said(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name"));
    model.map_or_else(String::new, |m| m.trim_start_matches([' ', '\t', ':']).to_owned())
}
