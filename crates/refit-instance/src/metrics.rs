//! What an instance counts, for whoever scrapes it: OpenMetrics text, made anew for each reading.
//!
//! Objects come and go, and with them what they count; so what they count is summed over the objects of one
//! implementation that live now, and is a gauge. Changes are counted by the journal itself, and only grow.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::glob::Glob;
use crate::instance::Core;

/// The type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels and their values, in order.
type Labels = Vec<(&'static str, String)>;

/// Everything, as OpenMetrics text.
pub(crate) fn text(core: &Core) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("refit");
    objects(core, &mut registry);
    changes(core, &mut registry);
    mounts(core, &mut registry);
    moves(core, &mut registry);
    let uptime = Gauge::<f64, AtomicU64>::default();
    uptime.set(core.health().uptime_ms as f64 / 1e3);
    registry.register_with_unit("uptime", "Time since the instance began", Unit::Seconds, uptime);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

fn objects(core: &Core, registry: &mut Registry) {
    let alive = Family::<Labels, Gauge>::default();
    let reps = Family::<Labels, Gauge>::default();
    let counts = Family::<Labels, Gauge>::default();
    for object in core.objects(&Glob::new("*")) {
        let labels =
            vec![("interface", object.interface), ("implementation", object.implementation)];
        alive.get_or_create(&labels).inc();
        reps.get_or_create(&labels).inc_by(gauge(object.reps));
        for (what, n) in object.stats {
            let labels = [labels.as_slice(), &[("what", what)]].concat();
            counts.get_or_create(&labels).inc_by(gauge(n));
        }
    }
    registry.register("objects", "Objects that live", alive);
    registry.register("object_reps", "Representatives of objects that live", reps);
    registry.register("object_counts", "What objects that live count, in sum", counts);
}

fn changes(core: &Core, registry: &mut Registry) {
    let ended = Family::<Labels, Counter>::default();
    let time = Family::<Labels, Counter<f64, AtomicU64>>::default();
    let blocked = Family::<Labels, Counter>::default();
    for ((mechanism, end), total) in core.journal.totals() {
        let labels = vec![("mechanism", mechanism), ("end", end.to_owned())];
        ended.get_or_create(&labels).inc_by(total.changes);
        time.get_or_create(&labels).inc_by(total.ns as f64 / 1e9);
        blocked.get_or_create(&labels).inc_by(total.blocked);
    }
    registry.register("changes", "Changes that have ended", ended);
    registry.register_with_unit("change_time", "Time that changes took", Unit::Seconds, time);
    registry.register("change_blocked_calls", "Calls that had to wait for changes", blocked);
}

fn moves(core: &Core, registry: &mut Registry) {
    let counts = Family::<Labels, Gauge>::default();
    let time = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for moves in core.system.all_moves() {
        let labels = |what| vec![("what", String::from(what))];
        for (what, n) in [
            ("refused", moves.refused),
            ("no_memory", moves.no_memory),
            ("recalled", moves.recalled),
            ("for_calls", moves.for_calls),
            ("for_exceptions", moves.for_exceptions),
            ("signals", moves.signals),
            ("shared", moves.shared),
            ("made", moves.made),
            ("files", moves.files),
            ("nothing", moves.nothing),
            ("changes", moves.changes),
            ("changes_here", moves.changes_here),
            ("told", moves.told),
        ] {
            counts.get_or_create(&labels(what)).inc_by(gauge(n));
        }
        for (what, times) in [
            ("out", moves.out),
            ("back", moves.back),
            ("answers", moves.answers),
            ("forgets", moves.forgets),
            ("waits", moves.waits),
        ] {
            counts.get_or_create(&labels(what)).inc_by(gauge(times.count));
            time.get_or_create(&labels(what)).inc_by(times.total_ns as f64 / 1e9);
        }
    }
    let programs = "of programs that began here, and live or have ended not long ago, in sum";
    registry.register("moves", format!("What moves come to {programs}"), counts);
    let help = format!("Time that moves took {programs}");
    registry.register_with_unit("moves_time", help, Unit::Seconds, time);
}

fn mounts(core: &Core, registry: &mut Registry) {
    let counts = Family::<Labels, Gauge>::default();
    for mount in core.mounts() {
        let mountpoint = mount.mountpoint.display().to_string();
        for (what, n) in mount.stats {
            let labels = vec![("mount", mountpoint.clone()), ("what", what)];
            counts.get_or_create(&labels).set(gauge(n));
        }
    }
    registry.register("mount_counts", "What the file server of a mount counts", counts);
}

fn gauge(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
