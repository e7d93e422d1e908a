//! What `refit top` shows: the difference of two looks as rates, in the order that is asked for.

use std::collections::{BTreeMap, VecDeque};

use refit_change::Report;
use refit_instance::wire::ObjectInfo;

use super::sample::{Processor, Sample};

/// Changes that are kept to be shown.
const CHANGES: usize = 64;

/// By what objects are ordered, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Calls,
    Faults,
    Resident,
    Dirty,
}

impl Order {
    /// The next one, and after the last the first.
    pub(crate) fn next(self) -> Order {
        match self {
            Order::Calls => Order::Faults,
            Order::Faults => Order::Resident,
            Order::Resident => Order::Dirty,
            Order::Dirty => Order::Calls,
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Calls => "calls/s",
            Order::Faults => "faults/s",
            Order::Resident => "resident",
            Order::Dirty => "dirty",
        }
    }

    fn of(self, row: &Row) -> f64 {
        match self {
            Order::Calls => row.calls,
            Order::Faults => row.faults,
            Order::Resident => row.resident as f64,
            Order::Dirty => row.dirty as f64,
        }
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) instance: u32,
    pub(crate) name: String,
    /// With what is around it.
    pub(crate) implementation: String,
    /// Per second.
    pub(crate) calls: f64,
    /// Per second.
    pub(crate) faults: f64,
    /// Pages.
    pub(crate) resident: u64,
    /// Pages.
    pub(crate) dirty: u64,
}

/// A mount.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) mountpoint: String,
    /// Requests per second.
    pub(crate) requests: f64,
    /// Bytes per second.
    pub(crate) read: f64,
    /// Bytes per second.
    pub(crate) written: f64,
    /// Files that wait for it.
    pub(crate) waiting: u64,
}

/// Shares of a processor's time, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) number: u32,
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) stolen: f64,
}

/// Everything that is shown.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) rows: Vec<Row>,
    pub(crate) mounts: Vec<Served>,
    pub(crate) loads: Vec<Load>,
    /// Latest last.
    pub(crate) changes: VecDeque<Report>,
    /// Changes that were overwritten before they could be read.
    pub(crate) lost_changes: u64,
    pub(crate) order: Order,
    /// First row that is shown.
    pub(crate) scroll: usize,
    pub(crate) paused: bool,
    last: Option<Sample>,
}

impl State {
    /// Takes a look in.
    pub(crate) fn update(&mut self, next: Sample) {
        if let Some(last) = &self.last {
            let seconds = next.at.duration_since(last.at).as_secs_f64().max(1e-9);
            self.rows = rows(last, &next, seconds);
            self.mounts = mounts(last, &next, seconds);
            let loads = next.processors.iter().filter_map(|now| load(&last.processors, now));
            self.loads = loads.collect();
            self.sort();
        }
        self.last = Some(next);
    }

    /// Takes a change in.
    pub(crate) fn changed(&mut self, report: Report) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(report);
    }

    /// Orders by the next criterion.
    pub(crate) fn reorder(&mut self) {
        self.order = self.order.next();
        self.sort();
    }

    /// Goes up or down in the list.
    pub(crate) fn scroll_by(&mut self, lines: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.scroll = self.scroll.saturating_add_signed(lines).min(last);
    }

    fn sort(&mut self) {
        let order = self.order;
        self.rows
            .sort_by(|a, b| order.of(b).total_cmp(&order.of(a)).then_with(|| a.name.cmp(&b.name)));
        self.scroll_by(0);
    }
}

fn rows(last: &Sample, next: &Sample, seconds: f64) -> Vec<Row> {
    let before: BTreeMap<(u32, u64), &ObjectInfo> =
        last.objects.iter().map(|(pid, object)| ((*pid, object.id), object)).collect();
    let row = |(pid, object): &(u32, ObjectInfo)| {
        let stat = |key: &str| object.stats.get(key).copied().unwrap_or(0);
        let earlier = before.get(&(*pid, object.id)).map(|object| &object.stats);
        let rate = |key: &str| {
            let before = earlier.and_then(|stats| stats.get(key)).copied().unwrap_or(0);
            // A swap can begin the count anew: then what is there now is what was counted since.
            let since = stat(key).checked_sub(before).unwrap_or(stat(key));
            since as f64 / seconds
        };
        Row {
            instance: *pid,
            name: object.name.clone(),
            implementation: crate::commands::objects::composed(object),
            calls: rate("calls"),
            faults: rate("faults"),
            resident: stat("resident"),
            dirty: stat("dirty"),
        }
    };
    next.objects.iter().map(row).collect()
}

fn mounts(last: &Sample, next: &Sample, seconds: f64) -> Vec<Served> {
    let served = |(pid, mount): &(u32, refit_instance::wire::Mount)| {
        let stat = |key: &str| mount.stats.get(key).copied().unwrap_or(0);
        let earlier = last.mounts.iter().find(|(p, m)| p == pid && m.id == mount.id);
        let rate = |key: &str| {
            let before = earlier.and_then(|(_, m)| m.stats.get(key)).copied().unwrap_or(0);
            stat(key).saturating_sub(before) as f64 / seconds
        };
        Served {
            mountpoint: mount.mountpoint.display().to_string(),
            requests: rate("requests"),
            read: rate("read_bytes"),
            written: rate("written_bytes"),
            waiting: stat("waiting_for_write_back"),
        }
    };
    next.mounts.iter().map(served).collect()
}

fn load(before: &[Processor], now: &Processor) -> Option<Load> {
    let before = before.iter().find(|p| p.number == now.number)?;
    let spent = |of: fn(&Processor) -> u64| of(now).saturating_sub(of(before)) as f64;
    let (user, system) = (spent(|p| p.user), spent(|p| p.system));
    let (idle, stolen) = (spent(|p| p.idle), spent(|p| p.stolen));
    let all = (user + system + idle + stolen).max(1.0);
    Some(Load { number: now.number, user: user / all, system: system / all, stolen: stolen / all })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A look with objects of which only the calls and dirty pages differ.
    pub(crate) fn sample(at: Instant, objects: &[(u64, &str, u64, u64)], idle: u64) -> Sample {
        let object = |(id, name, calls, dirty): &(u64, &str, u64, u64)| {
            let stats = [("calls", *calls), ("faults", calls / 10), ("dirty", *dirty)];
            let info = ObjectInfo {
                id: *id,
                name: (*name).to_owned(),
                interface: "fcm".into(),
                implementation: "shared".into(),
                stats: stats.map(|(key, n)| (key.to_owned(), n)).into(),
                ..ObjectInfo::default()
            };
            (7, info)
        };
        let processor = Processor { number: 0, user: 100, system: 50, idle, stolen: 0 };
        Sample {
            at,
            objects: objects.iter().map(object).collect(),
            mounts: vec![],
            processors: vec![processor],
        }
    }

    #[test]
    fn counts_become_rates_and_the_busiest_comes_first() {
        let begin = Instant::now();
        let mut state = State::default();
        state.update(sample(begin, &[(1, "fcm:/a", 100, 0), (2, "fcm:/b", 0, 0)], 10));
        assert!(state.rows.is_empty(), "one look tells no rate");
        let later = begin + Duration::from_secs(2);
        state.update(sample(later, &[(1, "fcm:/a", 120, 9), (2, "fcm:/b", 400, 3)], 20));
        let seen: Vec<_> =
            state.rows.iter().map(|row| (&*row.name, row.calls, row.dirty)).collect();
        assert_eq!(seen, [("fcm:/b", 200.0, 3), ("fcm:/a", 10.0, 9)]);
        for _ in 0..3 {
            state.reorder();
        }
        assert_eq!((state.order, &*state.rows[0].name), (Order::Dirty, "fcm:/a"));
        assert_eq!(state.loads, [Load { number: 0, user: 0.0, system: 0.0, stolen: 0.0 }]);
    }

    #[test]
    fn a_swap_that_begins_counts_anew_does_not_count_backwards() {
        let begin = Instant::now();
        let mut state = State::default();
        state.update(sample(begin, &[(1, "fcm:/a", 1000, 0)], 0));
        state.update(sample(begin + Duration::from_secs(1), &[(1, "fcm:/a", 30, 0)], 0));
        assert_eq!(state.rows[0].calls, 30.0);
    }

    #[test]
    fn scrolling_ends_at_the_ends() {
        let begin = Instant::now();
        let mut state = State::default();
        let objects = [(1, "fcm:/a", 0, 0), (2, "fcm:/b", 0, 0)];
        state.update(sample(begin, &objects, 0));
        state.update(sample(begin + Duration::from_secs(1), &objects, 0));
        state.scroll_by(-5);
        assert_eq!(state.scroll, 0);
        state.scroll_by(50);
        assert_eq!(state.scroll, 1);
    }
}
