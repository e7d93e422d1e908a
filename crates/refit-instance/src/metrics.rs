//! What an instance counts, for whoever scrapes it: OpenMetrics text, made anew for each reading.
//!
//! Objects, mounts and programs come and go, and with them what they count, whereas a counter must only grow. So the instance remembers what
//! each of them had counted at the last reading and adds up the differences ([`Totals`]); what somebody counts between the last reading and its
//! end is not seen. How much there is of something now is a gauge, summed over all that live.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use refit_change::Report;
use refit_sys::printable;

use crate::glob::Glob;
use crate::instance::Core;
use crate::wire::TimesInfo;

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels and their values, in order.
type Labels = Vec<(&'static str, String)>;

/// Whether what is told grows only.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Counter,
    Gauge,
}

/// Something that is told under a name: what it is told as, and how it is exported.
struct Known {
    told: &'static str,
    sort: Sort,
    /// Without the prefix, the unit and `_total`.
    name: &'static str,
    /// Whether it is told in bytes.
    bytes: bool,
    help: &'static str,
}

const fn counter(told: &'static str, name: &'static str, help: &'static str) -> Known {
    Known { told, sort: Sort::Counter, name, bytes: false, help }
}

const fn gauge(told: &'static str, name: &'static str, help: &'static str) -> Known {
    Known { told, sort: Sort::Gauge, name, bytes: false, help }
}

const OF_OBJECTS: &[Known] = &[
    counter("calls", "object_calls", "Calls of objects"),
    counter("faults", "object_faults", "Pages that were asked for and not there"),
    counter("around", "object_faulted_around", "Pages that came with one that was asked for"),
    counter("evictions", "object_evictions", "Pages that were given up for others"),
    counter("returns", "object_returns", "Pages that were given up and asked for again"),
    counter("write_backs", "object_write_backs", "Pages that were written back"),
    Known { bytes: true, ..gauge("size", "object_size", "Size of what is cached") },
    gauge("resident", "object_resident_pages", "Pages that are in memory"),
    gauge("dirty", "object_dirty_pages", "Pages that are to be written back"),
    gauge("total", "object_frames", "Page frames that there are"),
    gauge("free", "object_free_frames", "Page frames that hold nothing"),
    gauge("to_move", "object_lazy_pages", "Pages that a lazy transfer has not moved yet"),
];

const OF_MOUNTS: &[Known] = &[
    counter("requests", "mount_requests", "Requests of the kernel"),
    counter("replies", "mount_replies", "Requests that were answered"),
    counter("errors", "mount_errors", "Requests that were answered with an error"),
    counter("panics", "mount_panics", "Requests in which refit made a mistake"),
    counter("reads", "mount_reads", "Reads that came to refit"),
    counter("writes", "mount_writes", "Writes that came to refit"),
    Known { bytes: true, ..counter("read_bytes", "mount_read", "What was read") },
    Known { bytes: true, ..counter("written_bytes", "mount_written", "What was written") },
    counter("write_back_errors", "mount_write_back_errors", "Write-backs that failed"),
    counter("changed_beside", "mount_changed_beside", "Files found changed beside the mount"),
    counter(
        "written_over",
        "mount_written_over",
        "Such files that unstored pages were written over",
    ),
    gauge("inodes", "mount_inodes", "Files that the kernel knows"),
    gauge(
        "waiting_for_write_back",
        "mount_waiting_for_write_back",
        "Files with something to write back",
    ),
];

/// What has been counted in all, by whatever counted it.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    sums: BTreeMap<(&'static str, Labels), f64>,
    /// What was counted at the last reading, by whom.
    seen: HashMap<(&'static str, u64, Labels), f64>,
    /// The same of the reading under way.
    seeing: HashMap<(&'static str, u64, Labels), f64>,
}

impl Totals {
    /// Adds what `who` has counted since the last reading, of all that it has counted by now. What is less than before began at zero again.
    fn take(&mut self, name: &'static str, who: u64, labels: &Labels, now: f64) {
        let key = (name, who, labels.clone());
        let before = self.seen.get(&key).copied().unwrap_or(0.0);
        *self.sums.entry((name, labels.clone())).or_default() +=
            if now < before { now } else { now - before };
        self.seeing.insert(key, now);
    }

    /// Forgets what was counted by those that this reading has not seen: they have ended.
    fn end_reading(&mut self) {
        self.seen = std::mem::take(&mut self.seeing);
    }

    fn of(&self, name: &str) -> impl Iterator<Item = (&Labels, f64)> {
        self.sums
            .iter()
            .filter(move |((of, _), _)| *of == name)
            .map(|((_, labels), n)| (labels, *n))
    }
}

/// How long changes took, by mechanism and end.
#[derive(Clone, Debug)]
pub(crate) struct ChangeTimes(Family<Labels, Histogram, fn() -> Histogram>);

impl Default for ChangeTimes {
    fn default() -> Self {
        // From a microsecond on, four times as much each: the last is 17 s.
        ChangeTimes(Family::new_with_constructor(|| {
            Histogram::new(exponential_buckets(1e-6, 4.0, 13))
        }))
    }
}

impl ChangeTimes {
    pub(crate) fn observe(&self, report: &Report) {
        let labels = vec![
            ("mechanism", report.change.mechanism.clone()),
            ("end", report.end.word().to_owned()),
        ];
        self.0.get_or_create(&labels).observe(report.total_ns() as f64 / 1e9);
    }
}

/// Everything, as OpenMetrics text.
pub(crate) fn text(core: &Core) -> Result<String, std::fmt::Error> {
    let pid = std::process::id().to_string();
    let labels = [("pid".into(), pid.into())].into_iter();
    let mut registry = Registry::with_prefix_and_labels("refit", labels);
    let mut totals = core.totals();
    objects(core, &mut totals, &mut registry);
    changes(core, &mut registry);
    mounts(core, &mut totals, &mut registry);
    moves(core, &mut totals, &mut registry);
    totals.end_reading();
    drop(totals);
    let uptime = Gauge::<f64, AtomicU64>::default();
    uptime.set(core.health().uptime_ms as f64 / 1e3);
    registry.register_with_unit("uptime", "Time since the instance began", Unit::Seconds, uptime);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// What one of many tells.
struct Told<'a> {
    who: u64,
    labels: Labels,
    told: &'a BTreeMap<String, u64>,
}

/// Exports what is known of what all tell: a family each.
fn export(known: &[Known], all: &[Told<'_>], totals: &mut Totals, registry: &mut Registry) {
    for one in known {
        let found = all.iter().filter_map(|told| Some((told, *told.told.get(one.told)?)));
        if one.sort == Sort::Counter {
            found.for_each(|(told, n)| totals.take(one.name, told.who, &told.labels, n as f64));
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            for (labels, n) in totals.of(one.name) {
                family.get_or_create(labels).inc_by(n);
            }
            register(registry, one, family);
        } else {
            let family = Family::<Labels, Gauge>::default();
            found.for_each(|(told, n)| {
                family.get_or_create(&told.labels).inc_by(signed(n));
            });
            register(registry, one, family);
        }
    }
}

fn register(
    registry: &mut Registry,
    one: &Known,
    metric: impl prometheus_client::registry::Metric,
) {
    if one.bytes {
        registry.register_with_unit(one.name, one.help, Unit::Bytes, metric);
    } else {
        registry.register(one.name, one.help, metric);
    }
}

fn objects(core: &Core, totals: &mut Totals, registry: &mut Registry) {
    let alive = Family::<Labels, Gauge>::default();
    let reps = Family::<Labels, Gauge>::default();
    let objects = core.objects(&Glob::new("*"));
    let mut all = Vec::with_capacity(objects.len());
    for object in &objects {
        let labels = vec![
            ("interface", object.interface.clone()),
            ("implementation", object.implementation.clone()),
        ];
        alive.get_or_create(&labels).inc();
        reps.get_or_create(&labels).inc_by(signed(object.reps));
        all.push(Told { who: object.id, labels, told: &object.stats });
    }
    registry.register("objects", "Objects that live", alive);
    registry.register("object_reps", "Representatives of objects that live", reps);
    export(OF_OBJECTS, &all, totals, registry);
}

fn changes(core: &Core, registry: &mut Registry) {
    let ended = Family::<Labels, Counter>::default();
    let blocked = Family::<Labels, Counter>::default();
    for ((mechanism, end), total) in core.journal.totals() {
        let labels = vec![("mechanism", mechanism), ("end", end.to_owned())];
        ended.get_or_create(&labels).inc_by(total.changes);
        blocked.get_or_create(&labels).inc_by(total.blocked);
    }
    registry.register("changes", "Changes that have ended", ended);
    registry.register("change_blocked_calls", "Calls that had to wait for changes", blocked);
    let help = "How long changes took";
    registry.register_with_unit("change_time", help, Unit::Seconds, core.change_times.0.clone());
}

fn mounts(core: &Core, totals: &mut Totals, registry: &mut Registry) {
    let mounts = core.mounts();
    let told = |mount: &crate::wire::Mount| {
        let path = std::os::unix::ffi::OsStrExt::as_bytes(mount.mountpoint.as_os_str());
        vec![("mount", printable::name(path))]
    };
    let all: Vec<_> = mounts
        .iter()
        .map(|mount| Told { who: u64::from(mount.id), labels: told(mount), told: &mount.stats })
        .collect();
    export(OF_MOUNTS, &all, totals, registry);
}

/// What moves come to, by what was counted; see the control API's `/moves/{pid}`.
fn moves(core: &Core, totals: &mut Totals, registry: &mut Registry) {
    const COUNTS: &str = "moves";
    const TIME: &str = "moves_time";
    for moves in core.system.all_moves() {
        let who = u64::from(moves.pid);
        let labels = |what| vec![("what", String::from(what))];
        for (what, n) in [
            ("refused", moves.refused),
            ("no_memory", moves.no_memory),
            ("recalled", moves.recalled),
            ("for_calls", moves.for_calls),
            ("for_exceptions", moves.for_exceptions),
            ("signals", moves.signals),
            ("shared", moves.shared),
            ("converted", moves.converted),
            ("files", moves.files),
            ("unmapped", moves.unmapped),
            ("changes", moves.changes),
            ("changes_here", moves.changes_here),
            ("invalidations_sent", moves.invalidations_sent),
        ] {
            totals.take(COUNTS, who, &labels(what), n as f64);
        }
        let timed: [(&str, &TimesInfo); 5] = [
            ("out", &moves.out),
            ("back", &moves.back),
            ("answers", &moves.answers),
            ("forgets", &moves.forgets),
            ("waits", &moves.waits),
        ];
        for (what, times) in timed {
            totals.take(COUNTS, who, &labels(what), times.count as f64);
            totals.take(TIME, who, &labels(what), times.total_ns as f64 / 1e9);
        }
    }
    let summed = |name| {
        let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
        for (labels, n) in totals.of(name) {
            family.get_or_create(labels).inc_by(n);
        }
        family
    };
    registry.register(COUNTS, "What moves of programs that began here come to", summed(COUNTS));
    let help = "Time that moves of programs that began here took";
    registry.register_with_unit(TIME, help, Unit::Seconds, summed(TIME));
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Puts the texts of several instances into one: each family once, with the samples of all. Their labels tell them apart.
pub fn merged(texts: &[String]) -> String {
    let mut order: Vec<&str> = Vec::new();
    let mut families: HashMap<&str, (Vec<&str>, Vec<&str>)> = HashMap::new();
    for text in texts {
        let mut current = "";
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(about) = line.strip_prefix("# ") {
                current = about.split(' ').nth(1).unwrap_or_default();
                let (head, _) = families.entry(current).or_insert_with(|| {
                    order.push(current);
                    Default::default()
                });
                if !head.contains(&line) {
                    head.push(line);
                }
            } else if let Some((_, samples)) = families.get_mut(current) {
                samples.push(line);
            }
        }
    }
    let mut text = String::new();
    for (head, samples) in order.iter().filter_map(|name| families.get(name)) {
        head.iter().chain(samples).for_each(|line| text.extend([line, "\n"]));
    }
    text + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_grow_although_those_who_count_come_and_go() {
        let labels = vec![("interface", "fcm".to_owned())];
        let mut totals = Totals::default();
        let mut read = |all: &[(u64, f64)]| {
            all.iter().for_each(|(who, n)| totals.take("calls", *who, &labels, *n));
            totals.end_reading();
            totals.of("calls").map(|(_, n)| n).sum::<f64>()
        };
        assert_eq!(read(&[(1, 5.0), (2, 7.0)]), 12.0);
        assert_eq!(read(&[(1, 6.0)]), 13.0, "what 2 has counted stays");
        assert_eq!(read(&[(1, 2.0)]), 15.0, "1 began at zero again");
        assert_eq!(read(&[]), 15.0);
        assert_eq!(read(&[(1, 2.0)]), 17.0, "a new 1");
    }

    #[test]
    fn texts_of_several_instances_become_one_with_each_family_once() {
        let one = "# HELP a A.\n# TYPE a counter\na_total{pid=\"1\"} 1\n# HELP b B.\n# TYPE b gauge\nb{pid=\"1\"} 2\n# EOF\n";
        let two = "# HELP b B.\n# TYPE b gauge\nb{pid=\"2\"} 3\n# HELP c C.\n# TYPE c gauge\nc{pid=\"2\"} 4\n# EOF\n";
        let expected = "# HELP a A.\n# TYPE a counter\na_total{pid=\"1\"} 1\n# HELP b B.\n# TYPE b gauge\nb{pid=\"1\"} 2\nb{pid=\"2\"} 3\n\
                        # HELP c C.\n# TYPE c gauge\nc{pid=\"2\"} 4\n# EOF\n";
        assert_eq!(merged(&[one.into(), two.into()]), expected);
        assert_eq!(merged(&[one.into()]), one);
        assert_eq!(merged(&[]), "# EOF\n");
    }
}
