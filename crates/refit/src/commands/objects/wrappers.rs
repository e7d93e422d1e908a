//! The results of wrappers, for people.

use refit_instance::wire::{Histogram, ObjectInfo};

use crate::format;
use crate::histogram;

/// Returns the wrappers around an object, outermost first, and former ones.
pub(crate) fn lines(object: &ObjectInfo) -> Vec<String> {
    let mut lines = Vec::new();
    for wrapper in object.wrappers.iter().rev() {
        let space = if wrapper.options.is_empty() { "" } else { " " };
        lines.push(format!(
            "  wrapper {:<7} {}{space}{}",
            wrapper.id, wrapper.name, wrapper.options
        ));
        for (key, n) in &wrapper.stats {
            let (key, value) = match key.strip_suffix("_ns") {
                Some(key) => (key, format::nanos(*n)),
                None => match key.strip_suffix("_percent") {
                    Some(key) => (key, format!("{n} %")),
                    None => (key.as_str(), format::count(*n)),
                },
            };
            lines.push(format!("    {key:<22}{value:>9}"));
        }
        for histogram in wrapper.histograms.iter().filter(|h| !h.ranges.is_empty()) {
            let unit = if histogram.unit.is_empty() || histogram.unit == "ns" {
                String::new()
            } else {
                format!(", {}", histogram.unit)
            };
            lines.push(format!("    {}{unit}", histogram.name));
            lines.extend(picture(histogram).into_iter().map(|line| format!("    {line}")));
        }
    }
    for failure in &object.wrapper_failures {
        lines.push(format!("  detached         {} {}", failure.wrapper, failure.why));
    }
    lines
}

/// Returns a line for each power of two from the first that is not empty to the last.
fn picture(histogram: &Histogram) -> Vec<String> {
    let mut powers = [0; 65];
    for (from, n) in &histogram.ranges {
        powers[(64 - from.leading_zeros()) as usize] += n;
    }
    let from = |power: usize| {
        let from = if power == 0 { 0 } else { 1 << (power - 1) };
        if histogram.unit == "ns" { format::nanos(from) } else { format::count(from) }
    };
    histogram::bars(&powers, from)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use refit_instance::wire::{WrapperFailure, WrapperInfo};

    use super::*;

    #[test]
    fn the_outermost_comes_first_and_failures_last() {
        let wrapper = |id, name: &str, stats: &[(&str, u64)]| WrapperInfo {
            id,
            name: name.into(),
            stats: stats.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect::<BTreeMap<_, _>>(),
            ..WrapperInfo::default()
        };
        let mut latency = wrapper(8, "latency", &[("read.p50_ns", 1_500), ("read.calls", 7)]);
        latency.options = "method=read".into();
        let ranges = vec![(0, 1), (5, 2), (7, 2)];
        latency.histograms =
            vec![Histogram { name: "run".into(), unit: "accesses".into(), ranges }];
        let failure = WrapperFailure { wrapper: "bomb".into(), why: "panicked".into() };
        let object = ObjectInfo {
            wrappers: vec![wrapper(7, "sequential", &[("following_percent", 90)]), latency],
            wrapper_failures: vec![failure],
            ..ObjectInfo::default()
        };
        let bar = |n: usize| format!("{:<40}", "█".repeat(n));
        let expected = [
            "  wrapper 8       latency method=read".to_owned(),
            "    read.calls                    7".into(),
            "    read.p50                1.50 µs".into(),
            "    run, accesses".into(),
            format!("           0  {}          1", bar(10)),
            format!("           1  {}          0", bar(0)),
            format!("           2  {}          0", bar(0)),
            format!("           4  {}          4", bar(40)),
            "  wrapper 7       sequential".into(),
            "    following                  90 %".into(),
            "  detached         bomb panicked".into(),
        ];
        assert_eq!(lines(&object), expected);
    }
}
