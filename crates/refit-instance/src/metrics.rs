//! The metrics of an instance as OpenMetrics text, which is generated for each request.
//!
//! Objects, mounts and programs come and go together with their counters, whereas a metric of the
//! type counter must only grow. The instance therefore remembers the value of each counter at the
//! last request and sums the differences ([`Totals`]). What is counted between the last request and
//! the end of an object is not seen. Current amounts are gauges, summed over all that exist.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use refit_sys::printable;

use crate::glob::Glob;
use crate::state::Core;
use crate::totals::{Labels, Totals};
use crate::wire::CounterValue;

/// The content type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a value only grows.
#[derive(Clone, Copy, PartialEq)]
enum MetricKind {
    Counter,
    Gauge,
}

/// A statistic and the metric as which it is exported.
struct Metric {
    /// The name of the statistic in the answers of instances.
    statistic: &'static str,
    kind: MetricKind,
    /// The name without the prefix, the unit and `_total`.
    name: &'static str,
    /// Whether the unit is bytes.
    bytes: bool,
    help: &'static str,
}

const fn counter(statistic: &'static str, name: &'static str, help: &'static str) -> Metric {
    Metric { statistic, kind: MetricKind::Counter, name, bytes: false, help }
}

const fn gauge(statistic: &'static str, name: &'static str, help: &'static str) -> Metric {
    Metric { statistic, kind: MetricKind::Gauge, name, bytes: false, help }
}

const OF_OBJECTS: &[Metric] = &[
    counter("calls", "object_calls", "Calls of objects"),
    counter("faults", "object_faults", "Page faults"),
    counter("around", "object_faulted_around", "Pages fetched together with a faulting page"),
    counter("evictions", "object_evictions", "Pages evicted"),
    counter("returns", "object_returns", "Pages that faulted again soon after their eviction"),
    counter("write_backs", "object_write_backs", "Pages written back"),
    Metric { bytes: true, ..gauge("size", "object_size", "Size of the cached data") },
    gauge("resident", "object_resident_pages", "Resident pages"),
    gauge("dirty", "object_dirty_pages", "Dirty pages"),
    gauge("total", "object_frames", "Page frames"),
    gauge("free", "object_free_frames", "Free page frames"),
    gauge("to_move", "object_lazy_pages", "Pages that a lazy transfer has not moved yet"),
];

const OF_MOUNTS: &[Metric] = &[
    counter("requests", "mount_requests", "Requests of the kernel"),
    counter("replies", "mount_replies", "Requests answered"),
    counter("errors", "mount_errors", "Requests answered with an error"),
    counter("panics", "mount_panics", "Requests in which refit panicked"),
    counter("reads", "mount_reads", "Reads that reached refit"),
    counter("writes", "mount_writes", "Writes that reached refit"),
    Metric { bytes: true, ..counter("read_bytes", "mount_read", "Data read") },
    Metric { bytes: true, ..counter("written_bytes", "mount_written", "Data written") },
    counter("write_back_errors", "mount_write_back_errors", "Write-backs that failed"),
    counter("changed_beside", "mount_changed_beside", "Files found changed outside of the mount"),
    counter("written_over", "mount_written_over", "Such files whose changes dirty pages overwrote"),
    gauge("inodes", "mount_inodes", "Inodes that the kernel knows"),
    gauge("open_files", "mount_open_files", "Regular files that are open"),
    gauge("shared_files", "mount_shared_files", "Regular files that are open more than once"),
    gauge("passed_through_files", "mount_passed_through_files", "Open files passed through"),
    gauge("waiting_for_write_back", "mount_waiting_for_write_back", "Files waiting for write-back"),
];

/// Returns all metrics as OpenMetrics text.
pub(crate) fn text(core: &Core) -> Result<String, std::fmt::Error> {
    let pid = core.number.to_string();
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

/// The statistics of one object, mount or program.
struct Statistics<'a> {
    who: u64,
    labels: Labels,
    values: &'a BTreeMap<String, u64>,
}

/// Exports each of the `known` metrics as a family with the values of `all`.
fn export(known: &[Metric], all: &[Statistics<'_>], totals: &mut Totals, registry: &mut Registry) {
    for one in known {
        let found =
            all.iter().filter_map(|object| Some((object, *object.values.get(one.statistic)?)));
        if one.kind == MetricKind::Counter {
            found.for_each(|(object, n)| {
                totals.take(one.name, object.who, &object.labels, n as f64)
            });
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            for (labels, n) in totals.of(one.name) {
                family.get_or_create(labels).inc_by(n);
            }
            register(registry, one, family);
        } else {
            let family = Family::<Labels, Gauge>::default();
            found.for_each(|(object, n)| {
                family.get_or_create(&object.labels).inc_by(signed(n));
            });
            register(registry, one, family);
        }
    }
}

fn register(
    registry: &mut Registry,
    one: &Metric,
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
        all.push(Statistics { who: object.id, labels, values: &object.stats });
    }
    registry.register("objects", "Existing objects", alive);
    registry.register("object_reps", "Representatives of existing objects", reps);
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
    registry.register("changes", "Completed changes", ended);
    registry.register("change_blocked_calls", "Calls that changes blocked", blocked);
    let help = "Duration of changes";
    registry.register_with_unit("change_time", help, Unit::Seconds, core.change_times.0.clone());
}

fn mounts(core: &Core, totals: &mut Totals, registry: &mut Registry) {
    let mounts = core.mounts();
    let labels = |mount: &crate::wire::Mount| {
        let path = std::os::unix::ffi::OsStrExt::as_bytes(mount.mountpoint.as_os_str());
        vec![("mount", printable::name(path))]
    };
    let all: Vec<_> = mounts
        .iter()
        .map(|mount| Statistics {
            who: u64::from(mount.id),
            labels: labels(mount),
            values: &mount.stats,
        })
        .collect();
    export(OF_MOUNTS, &all, totals, registry);
}

/// Exports the statistics of moves, by counter; see `/moves/{pid}` of the control API.
fn moves(core: &Core, totals: &mut Totals, registry: &mut Registry) {
    const COUNTS: &str = "moves";
    const TIME: &str = "moves_time";
    /// Part of the time of `waits`.
    const NOT_EXPORTED: &str = "questions";
    for moves in core.system.all_moves() {
        let who = u64::from(moves.pid);
        let labels = |what| vec![("what", String::from(what))];
        for (what, value) in moves.counters() {
            match value {
                CounterValue::Count(n) => totals.take(COUNTS, who, &labels(what), n as f64),
                CounterValue::Times(_) if what == NOT_EXPORTED => {}
                CounterValue::Times(times) => {
                    totals.take(COUNTS, who, &labels(what), times.count as f64);
                    totals.take(TIME, who, &labels(what), times.total_ns as f64 / 1e9);
                }
            }
        }
    }
    let summed = |name| {
        let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
        for (labels, n) in totals.of(name) {
            family.get_or_create(labels).inc_by(n);
        }
        family
    };
    registry.register(
        COUNTS,
        "Operations in moves of programs that began at this instance",
        summed(COUNTS),
    );
    let help = "Time taken by moves of programs that began at this instance";
    registry.register_with_unit(TIME, help, Unit::Seconds, summed(TIME));
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Merges the texts of several instances: each family appears once, with the samples of all
/// instances, which their labels distinguish.
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
