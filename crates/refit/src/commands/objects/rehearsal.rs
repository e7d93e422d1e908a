//! The report about transferred state: in full after a dry run, in short after a swap if there is
//! something to know.

use refit_change::{Drained, Negotiation, Phase, Ranked, Report, Transferred, Way};

use crate::format;

const MARGIN: &str = "             ";

/// Adds lines for people.
pub(crate) fn explain(report: &Report, lines: &mut Vec<String>) {
    for moved in &report.transfers {
        if let Some(negotiation) = &moved.negotiation {
            negotiated(report, negotiation, lines);
            if !moved.route.is_empty() {
                lines.push(MARGIN.to_owned() + &shadow(report, moved));
            }
        }
        if let Some(drained) = &moved.drained {
            lines.push(MARGIN.to_owned() + &rest(drained));
        }
        lines.extend(moved.notes.iter().map(|note| format!("{MARGIN}note: {note}")));
    }
}

fn negotiated(report: &Report, negotiation: &Negotiation, lines: &mut Vec<String>) {
    let Negotiation { from, to, chosen, via, why } = negotiation;
    let change = &report.change;
    lines.push(format!("{MARGIN}{} can export   {}", change.from, list(from)));
    lines.push(format!("{MARGIN}{} can import   {}", change.to, list(to)));
    let Some(chosen) = chosen else { return };
    let route: Vec<&str> = [chosen].into_iter().chain(via).map(String::as_str).collect();
    lines.push(format!("{MARGIN}chosen: {} ({why})", route.join(" → ")));
}

fn list(protocols: &[Ranked]) -> String {
    let names: Vec<_> =
        protocols.iter().map(|p| format!("{} {} ({})", p.rank, p.name, way(p.way))).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Copy => "by copy",
        Way::Reference => "by reference",
        Way::Partitioned => "in partitions",
        Way::Lazy => "lazily",
        Way::None => "not at all",
    }
}

/// Returns, for example, `shadow transfer: 32 768 items; export 310 ns, import 420 ns; calls waited
/// for 3.10 µs at most`.
fn shadow(report: &Report, moved: &Transferred) -> String {
    let mut sizes = Vec::new();
    sizes.extend(moved.items.map(|n| format::counted(n, "item")));
    sizes.extend(moved.bytes.map(format::size));
    if moved.parts > 1 {
        sizes.push(format!("{} partitions", moved.parts));
    }
    let mut times = vec![format!("export {}", format::nanos(moved.export_ns))];
    if moved.route.len() > 1 {
        times.push(format!("conversion {}", format::nanos(moved.convert_ns)));
    }
    times.push(format!("import {}", format::nanos(moved.import_ns)));
    let blocking = [Phase::Quiesce, Phase::Transfer, Phase::RollBack];
    let blocked = report.phases.iter().filter(|p| blocking.contains(&p.phase)).map(|p| p.ns);
    let sizes = if sizes.is_empty() { "not counted".to_owned() } else { sizes.join(", ") };
    let (times, blocked) = (times.join(", "), format::nanos(blocked.sum()));
    format!(
        "shadow transfer: {sizes}; {times}; calls were blocked for {blocked}; nothing has changed"
    )
}

/// Returns, for example, `moved after the commit: 12 items on demand, 988 by the drain, in 1.20
/// ms`.
fn rest(drained: &Drained) -> String {
    let Drained { on_demand, by_drain, left, ns, forced, why } = drained;
    let forced = if *forced { ", the rest at once at its deadline" } else { "" };
    let mut text = format!(
        "moved after the commit: {} on demand, {} by the drain{forced}, in {}",
        format::counted(*on_demand, "item"),
        format::count(*by_drain),
        format::nanos(*ns),
    );
    if *left > 0 || !why.is_empty() {
        text += &format!("; {} left, to be moved on demand: {why}", format::count(*left));
    }
    text
}

#[cfg(test)]
mod tests {
    use refit_change::{Change, End, PhaseTime};

    use super::*;

    fn ranked(names: &[&str]) -> Vec<Ranked> {
        let ranked =
            |(rank, name): (u32, &&str)| Ranked { name: (*name).to_owned(), rank, way: Way::Copy };
        (1..).zip(names).map(ranked).collect()
    }

    #[test]
    fn a_dry_run_is_told_in_full() {
        let change = Change::new(1, "swap", "fcm:/a", "shared", "partitioned", "me");
        let negotiation = Negotiation {
            from: ranked(&["stripes", "canonical"]),
            to: ranked(&["ranges"]),
            chosen: Some("stripes".into()),
            via: vec!["ranges".into()],
            why: "they have none in common".into(),
        };
        let moved = Transferred {
            route: vec!["stripes".into(), "ranges".into()],
            items: Some(32_768),
            export_ns: 310,
            convert_ns: 5_000,
            import_ns: 420,
            notes: vec!["A.b is dropped".into()],
            negotiation: Some(negotiation),
            ..Transferred::default()
        };
        let report = Report {
            end: End::Rehearsed,
            phases: vec![PhaseTime { phase: Phase::Transfer, ns: 6_000 }],
            transfers: vec![moved],
            ..Report::refused(change, "")
        };
        let mut lines = Vec::new();
        explain(&report, &mut lines);
        let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
        assert_eq!(
            lines,
            [
                "shared can export   1 stripes (by copy), 2 canonical (by copy)",
                "partitioned can import   1 ranges (by copy)",
                "chosen: stripes → ranges (they have none in common)",
                "shadow transfer: 32 768 items; export 310 ns, conversion 5.00 µs, import 420 ns; \
                 calls were blocked for 6.00 µs; nothing has changed",
                "note: A.b is dropped",
            ]
        );
    }

    #[test]
    fn a_drain_is_told_with_what_is_left() {
        let drained = Drained { on_demand: 1, by_drain: 20, ns: 1_000, ..Drained::default() };
        let text = "moved after the commit: 1 item on demand, 20 by the drain, in 1.00 µs";
        assert_eq!(rest(&drained), text);
        let late = Drained { left: 5, why: "late".into(), ..drained };
        assert!(rest(&late).ends_with("; 5 left, to be moved on demand: late"));
    }
}
