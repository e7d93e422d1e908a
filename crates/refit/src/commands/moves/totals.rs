//! The moves of a program, as `refit show PID` prints them.

use refit_instance::wire::{DestinationInfo, MovesInfo, TimesInfo, TrafficInfo};
use syscalls::Sysno;

use crate::format;
use crate::table::{Align, Table};

/// Returns the facts about moves, as pairs of a name and a text.
pub(crate) fn facts(moves: &MovesInfo) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        (
            "moves",
            format!("{} out, {} back, {}", times(moves.out), times(moves.back), refused(moves)),
        ),
        ("came back", reasons(moves)),
    ];
    if moves.changes + moves.changes_here > 0 {
        facts.push(("changes", changes(moves)));
    }
    let faults = moves.destinations.iter().map(|host| host.faults.count).sum();
    if faults > 0 {
        facts.push(("retrievals", retrievals(moves, faults)));
    }
    if moves.pages.fetches.count + moves.pages.home.count > 0 {
        facts.push(("pages", pages(moves)));
    }
    facts.push((
        "queue",
        format!(
            "{} waited, the longest {}",
            times(moves.waits),
            format::nanos(moves.waits.most_ns)
        ),
    ));
    facts.extend(moves.traffic.iter().map(|one| ("messages", traffic(one))));
    facts
}

/// `12 in 140 µs each`.
fn times(times: TimesInfo) -> String {
    match times.count {
        0 => "0".to_owned(),
        count => format!("{} ({} each)", format::count(count), format::nanos(times.mean_ns())),
    }
}

fn refused(moves: &MovesInfo) -> String {
    let refused = format!("{} refused", format::count(moves.refused));
    match moves.no_memory {
        0 => refused,
        some => format!("{refused} ({} for want of memory)", format::count(some)),
    }
}

fn reasons(moves: &MovesInfo) -> String {
    format!(
        "{} wanted, {} for system calls, {} for exceptions; {} called back for signals",
        format::count(moves.recalled),
        format::count(moves.for_calls),
        format::count(moves.for_exceptions),
        format::count(moves.signals)
    )
}

fn changes(moves: &MovesInfo) -> String {
    format!(
        "{} made elsewhere, {} here; invalidations: {}, sent to {} in all",
        format::count(moves.changes),
        format::count(moves.changes_here),
        times(moves.forgets),
        format::counted(moves.invalidations_sent, "instance")
    )
}

fn retrievals(moves: &MovesInfo, faults: u64) -> String {
    let sum = |of: fn(&DestinationInfo) -> u64| -> u64 { moves.destinations.iter().map(of).sum() };
    format!(
        "{}: {} frames that others have, {} made frames, {} of files, {} of nothing; {} mapped around them; {} answered by other instances; {} retries; {:.1} messages each; {:.0} % of the time under way",
        format::count(faults),
        format::count(moves.shared),
        format::count(moves.converted),
        format::count(moves.files),
        format::count(moves.unmapped),
        format::count(sum(|host| host.fault_around)),
        format::count(sum(|host| host.by_members)),
        format::count(sum(|host| host.retries)),
        sum(|host| host.messages) as f64 / faults as f64,
        100.0 * under_way(moves)
    )
}

fn pages(moves: &MovesInfo) -> String {
    let pages = &moves.pages;
    format!(
        "{} requested elsewhere, {} to write: {} sent, {} of zeros, {} only permitted, {} of them ahead ({} proved right); {:.0} % of the time under way; {} needed here; {} recalled from elsewhere first; {} leases",
        times(pages.fetches),
        format::count(pages.to_write),
        format::count(pages.sent),
        format::count(pages.zeros),
        format::count(pages.permitted),
        format::count(pages.ahead),
        format::count(pages.ahead_used),
        100.0 * pages_under_way(moves),
        times(pages.home),
        format::count(pages.taken),
        format::count(pages.turns)
    )
}

/// Returns the share of the retrievals' time for which questions and answers were in transit
/// between instances.
pub(super) fn under_way(moves: &MovesInfo) -> f64 {
    let home = moves.questions.total_ns + moves.answers.total_ns;
    let asks = all(moves, |host| host.asks);
    share(asks.saturating_sub(home), all(moves, |host| host.faults))
}

/// Returns that share of the time in which pages came, where pages move.
fn pages_under_way(moves: &MovesInfo) -> f64 {
    let (came, home) = (all(moves, |host| host.pages), moves.pages);
    share(came.saturating_sub(home.waits.total_ns + home.fetches.total_ns), came)
}

/// Returns the sum of the nanoseconds of all hosts.
fn all(moves: &MovesInfo, of: fn(&DestinationInfo) -> TimesInfo) -> u64 {
    moves.destinations.iter().map(|host| of(host).total_ns).sum()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn traffic(traffic: &TrafficInfo) -> String {
    let mut text = format!(
        "{} ({}) to instance {}, {} ({}) from there",
        format::count(traffic.sent),
        format::size(traffic.sent_bytes),
        traffic.number,
        format::count(traffic.received),
        format::size(traffic.received_bytes)
    );
    if traffic.transit_ns > 0 {
        text += &format!(", {} under way", format::nanos(traffic.transit_ns));
    }
    text
}

/// Returns a table of the work at other instances, the longest first.
pub(crate) fn table(hosts: &[DestinationInfo]) -> Table {
    let mut table = Table::new(&[
        ("AT", Align::Right),
        ("TIMES", Align::Right),
        ("TOTAL", Align::Right),
        ("EACH", Align::Right),
        ("LEAST", Align::Right),
        ("MOST", Align::Right),
        ("WHAT", Align::Left),
    ]);
    for host in hosts {
        let mut rows = vec![
            ("mapping retrieval".to_owned(), host.faults),
            ("page that moves there".to_owned(), host.pages),
            ("call that changes memory".to_owned(), host.changes),
            (locking(host), host.locks),
        ];
        rows.extend(host.calls.iter().map(|call| (name(call.number), call.times)));
        let here = |number| format!("{}, made there", name(number));
        rows.extend(host.files.iter().map(|call| (here(call.number), call.times)));
        rows.retain(|(_, times)| times.count > 0);
        rows.sort_by_key(|(_, times)| std::cmp::Reverse(times.total_ns));
        for (what, times) in rows {
            table.row(vec![
                host.number.to_string(),
                format::count(times.count),
                format::nanos(times.total_ns),
                format::nanos(times.mean_ns()),
                format::nanos(times.least_ns),
                format::nanos(times.most_ns),
                what,
            ]);
        }
        if host.local > 0 {
            let none = || "-".to_owned();
            let (at, count) = (host.number.to_string(), format::count(host.local));
            let what = "call that needs nobody".to_owned();
            table.row(vec![at, count, none(), none(), none(), none(), what]);
        }
    }
    table
}

/// Returns, in words, the waits for the lock.
fn locking(host: &DestinationInfo) -> String {
    format!("wait for the lock on memory, in {} messages", format::count(host.lock_messages))
}

/// Returns the name of a system call.
fn name(number: u32) -> String {
    let known = Sysno::new(number as usize);
    known.map_or_else(|| format!("call {number}"), |call| call.name().to_owned())
}

#[cfg(test)]
mod tests {
    use refit_instance::wire::{CallInfo, PagesInfo};

    use super::*;

    fn once(ns: u64) -> TimesInfo {
        TimesInfo { count: 1, total_ns: ns, least_ns: ns, most_ns: ns }
    }

    #[test]
    fn what_is_neither_in_the_queue_nor_being_found_is_under_way() {
        let host =
            DestinationInfo { faults: once(100), asks: once(80), ..DestinationInfo::default() };
        let (questions, answers) = (once(10), once(30));
        let moves =
            MovesInfo { questions, answers, destinations: vec![host], ..MovesInfo::default() };
        assert!((under_way(&moves) - 0.4).abs() < 1e-9);
        assert!(under_way(&MovesInfo::default()).abs() < 1e-9);
        let host = DestinationInfo { pages: once(50), ..DestinationInfo::default() };
        let pages = PagesInfo { waits: once(10), fetches: once(20), ..PagesInfo::default() };
        let moves = MovesInfo { pages, destinations: vec![host], ..MovesInfo::default() };
        assert!((pages_under_way(&moves) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn calls_have_names() {
        let call = |number, ns| CallInfo { number, times: once(ns) };
        let host = DestinationInfo {
            calls: vec![call(0, 1), call(202, 5), call(1024, 3)],
            files: vec![call(17, 2)],
            ..DestinationInfo::default()
        };
        let lines = table(&[host]).lines();
        let last = |line: &String| line.split("  ").last().unwrap_or_default().to_owned();
        assert_eq!(
            lines.iter().map(last).collect::<Vec<_>>(),
            ["WHAT", "futex", "call 1024", "pread64, made there", "read"]
        );
    }
}
