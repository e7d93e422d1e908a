//! The results of probes as OpenMetrics text.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};
use refit_probe::action::{Do, Folding};
use refit_probe::datum::Datum;
use refit_probe::reading::Reading;
use refit_splice::Clock;

use super::reading::{Key, Read, Source};
use crate::failure::Failure;
use crate::output::Output;

/// Labels and their values, in order.
type Labels = Vec<(&'static str, String)>;
type Count = Family<Labels, Counter>;
type Time = Family<Labels, Counter<f64, AtomicU64>>;

/// All results.
#[derive(Default)]
struct Metrics {
    hits: Count,
    calls: Count,
    time: Time,
    cpu: Time,
    inside: Family<Labels, Gauge>,
    concurrency: Family<Labels, Gauge<f64, AtomicU64>>,
    values: Count,
    folded: Family<Labels, Gauge>,
    sum: Family<Labels, Gauge>,
    least: Family<Labels, Gauge>,
    greatest: Family<Labels, Gauge>,
    kept: Family<Labels, Gauge>,
    duration: Family<Labels, Spread>,
    cpu_duration: Family<Labels, Spread>,
}

/// Durations: calls by the bits of their nanoseconds, and the sum of nanoseconds.
#[derive(Clone, Debug, Default)]
struct Spread(Arc<Mutex<(Vec<u64>, u64)>>);

impl Spread {
    fn add(&self, sizes: &[u64], nanos: u64) {
        let mut all = self.0.lock();
        let length = all.0.len().max(sizes.len());
        all.0.resize(length, 0);
        all.0.iter_mut().zip(sizes).for_each(|(sum, part)| *sum += part);
        all.1 += nanos;
    }
}

impl TypedMetric for Spread {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Spread {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let all = self.0.lock();
        let last = all.0.iter().rposition(|count| *count > 0).unwrap_or(0);
        // Durations with this number of bits are less than the power of two.
        let bound = |bits: usize| ((1_u128 << bits) - 1) as f64 / 1e9;
        let mut buckets: Vec<(f64, u64)> =
            all.0.iter().take(last + 1).enumerate().map(|(bits, n)| (bound(bits), *n)).collect();
        buckets.push((f64::INFINITY, 0));
        let calls = all.0.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(all.1 as f64 / 1e9, calls, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Prints the results.
pub(super) fn print(read: &[Read<'_>], out: &mut Output) -> Result<(), Failure> {
    let metrics = Metrics::default();
    read.iter().for_each(|read| metrics.take(read));
    let mut registry = Registry::with_prefix("refit_probe");
    registry.register("hits", "Number of times that the place was reached", metrics.hits);
    registry.register("calls", "Calls that have ended", metrics.calls);
    let seconds = Unit::Seconds;
    registry.register_with_unit("time", "Time in calls", seconds, metrics.time);
    let seconds = Unit::Seconds;
    registry.register_with_unit("cpu", "CPU time in calls", seconds, metrics.cpu);
    registry.register("inside", "Calls in progress", metrics.inside);
    registry.register("threads", "Average number of threads inside", metrics.concurrency);
    let seconds = Unit::Seconds;
    registry.register_with_unit("duration", "Durations of calls", seconds, metrics.duration);
    let (seconds, about) = (Unit::Seconds, "CPU time of each call");
    registry.register_with_unit("cpu_duration", about, seconds, metrics.cpu_duration);
    registry.register(
        "values",
        "Number of values with this many bits, or from this number on",
        metrics.values,
    );
    registry.register("folded", "Number of values of the sum, least and greatest", metrics.folded);
    registry.register("sum", "Sum of values", metrics.sum);
    registry.register("least", "Least value", metrics.least);
    registry.register("greatest", "Greatest value", metrics.greatest);
    registry.register("kept", "Number that is kept in a map", metrics.kept);
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|e| Failure::new("print metrics", e.to_string(), "report this"))?;
    out.raw(text.as_bytes())
}

/// Returns a number that is kept.
fn kept(reading: &Reading) -> Option<i64> {
    if let Reading::Kept(number) = reading { Some(*number) } else { None }
}

/// Writes a part of a key.
fn label(datum: &Datum) -> String {
    match datum {
        Datum::Number(number) => number.to_string(),
        Datum::Text(text) => text.clone(),
        Datum::Stack(frames) => {
            let frames: Vec<_> = frames.iter().map(ToString::to_string).collect();
            frames.join(";")
        }
        Datum::NoStack => String::new(),
    }
}

impl Metrics {
    fn take_exits(&self, mut labels: Labels, calls: u64, ways: &[u64]) {
        self.calls.get_or_create(&labels).inc_by(calls);
        for (way, count) in ["return", "jump", "none", "exception"].into_iter().zip(ways) {
            labels.push(("exit", way.to_owned()));
            self.hits.get_or_create(&labels).inc_by(*count);
            labels.pop();
        }
    }

    fn take(&self, read: &Read<'_>) {
        let mut labels: Labels = match &read.from {
            Source::Place { process, module, name, .. } => vec![
                ("process", process.to_string()),
                ("module", (*module).to_owned()),
                ("function", (*name).to_owned()),
            ],
            Source::Map(name) => vec![("map", (*name).to_owned())],
        };
        match &read.key {
            Key::All => {}
            Key::Of(data) => {
                let parts: Vec<String> = data.iter().map(label).collect();
                labels.push(("key", parts.join(", ")));
            }
            Key::Others => labels.push(("key", "others".to_owned())),
        }
        if let ([number], None) = (read.watching.what.arguments(), kept(&read.reading)) {
            labels.push(("value", number.to_string()));
        }
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        match &read.reading {
            Reading::Nothing => {}
            Reading::Kept(number) => drop(self.kept.get_or_create(&labels).set(*number)),
            Reading::Count(count) => drop(self.hits.get_or_create(&labels).inc_by(*count)),
            Reading::Latency { ended, inside, nanos } => {
                let time = if read.watching.what == Do::Cpu { &self.cpu } else { &self.time };
                time.get_or_create(&labels).inc_by(*nanos as f64 / 1e9);
                self.calls.get_or_create(&labels).inc_by(*ended);
                self.inside.get_or_create(&labels).set(gauge(*inside));
            }
            Reading::Concurrency { mean, inside } => {
                self.concurrency.get_or_create(&labels).set(*mean);
                self.inside.get_or_create(&labels).set(gauge(*inside));
            }
            Reading::Durations { sizes, nanos } => {
                let cpu = read.watching.what == Do::Durations(Clock::Thread);
                let family = if cpu { &self.cpu_duration } else { &self.duration };
                family.get_or_create(&labels).add(&sizes[..], *nanos);
            }
            Reading::Exits { calls, ways } => self.take_exits(labels, *calls, ways),
            Reading::Folded { values: 0, .. } => {}
            Reading::Folded { values, result } => {
                let family = match read.watching.what {
                    Do::Fold(Folding::Least, _) => &self.least,
                    Do::Fold(Folding::Greatest, _) => &self.greatest,
                    // The mean is the sum divided by the number.
                    _ => &self.sum,
                };
                family.get_or_create(&labels).set(*result);
                // Set, since the sum and the mean of a value have the same labels.
                self.folded.get_or_create(&labels).set(gauge(*values));
            }
            Reading::Linear(cells) => {
                let Do::Linear { buckets, .. } = &read.watching.what else { return };
                for (bucket, count) in cells.iter().enumerate().filter(|(_, count)| **count > 0) {
                    let from = if bucket == 0 { i64::MIN } else { buckets.from(bucket) };
                    labels.push(("from", from.to_string()));
                    self.values.get_or_create(&labels).inc_by(*count);
                    labels.pop();
                }
            }
            Reading::Histogram(cells) => {
                for (bits, count) in cells.iter().enumerate().filter(|(_, count)| **count > 0) {
                    labels.push(("bits", bits.to_string()));
                    self.values.get_or_create(&labels).inc_by(*count);
                    labels.pop();
                }
            }
        }
    }
}
