//! The state that `refit top` shows: the difference of two looks as rates, in the selected order.

use std::collections::{BTreeMap, HashMap, VecDeque};

use refit_change::Report;
use refit_instance::wire::{Activity, Mount, ObjectActivity};

use super::processors::Processor;

/// The number of changes that are kept to be shown.
const CHANGES: usize = 64;

/// The quantity by which objects are ordered, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Calls,
    Faults,
    Resident,
    Dirty,
}

impl Order {
    /// Returns the next order, and after the last the first.
    pub(crate) fn next(self) -> Order {
        match self {
            Order::Calls => Order::Faults,
            Order::Faults => Order::Resident,
            Order::Resident => Order::Dirty,
            Order::Dirty => Order::Calls,
        }
    }

    /// Returns its name.
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
            Order::Resident => row.object.resident as f64,
            Order::Dirty => row.object.dirty as f64,
        }
    }
}

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) instance: u32,
    pub(crate) object: ObjectActivity,
    /// Calls per second.
    pub(crate) calls: f64,
    /// Faults per second.
    pub(crate) faults: f64,
}

impl Row {
    /// Updates the row to the activity `now`, which was taken `seconds` after the previous one.
    fn update(&mut self, now: ObjectActivity, seconds: f64) {
        // A swap can restart the count from zero: then the current value is the count since.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
        self.calls = since(now.calls, self.object.calls) / seconds;
        self.faults = since(now.faults, self.object.faults) / seconds;
        self.object = now;
    }
}

/// A mount.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Served {
    pub(crate) instance: u32,
    pub(crate) mountpoint: String,
    /// Requests per second.
    pub(crate) requests: f64,
    /// Bytes per second.
    pub(crate) read: f64,
    /// Bytes per second.
    pub(crate) written: f64,
    /// The number of files that wait for write-back.
    pub(crate) waiting: u64,
    /// The number of files that are open,
    pub(crate) open: u64,
    /// more than once,
    pub(crate) shared: u64,
    /// and of those that the kernel accesses in the source.
    pub(crate) passed: u64,
}

/// Shares of a processor's time, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) number: u32,
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) stolen: f64,
}

/// The whole state.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) rows: Vec<Row>,
    pub(crate) mounts: Vec<Served>,
    pub(crate) loads: Vec<Load>,
    /// The latest changes, the newest last.
    pub(crate) changes: VecDeque<Report>,
    /// The number of changes that were overwritten before they could be read.
    pub(crate) lost_changes: u64,
    pub(crate) order: Order,
    /// The index of the first row that is shown.
    pub(crate) scroll: usize,
    pub(crate) paused: bool,
    instances: BTreeMap<u32, Seen>,
    processors: Vec<Processor>,
}

/// The previous look at an instance.
#[derive(Debug, Default)]
struct Seen {
    at_ns: u64,
    looks: u64,
    mounts: Vec<Mount>,
}

impl State {
    /// Applies a look at an instance.
    pub(crate) fn update(&mut self, instance: u32, activity: Activity) {
        let Activity { at_ns, objects, gone: removed, mounts } = activity;
        let seen = self.instances.entry(instance).or_default();
        // The first look gives no rate, because the time of its counts is unknown.
        let seconds = match seen.looks {
            0 => f64::INFINITY,
            _ => (at_ns.saturating_sub(seen.at_ns) as f64 / 1e9).max(1e-9),
        };
        self.mounts.retain(|served| served.instance != instance);
        self.mounts.extend(mounts.iter().map(|now| served(instance, &seen.mounts, now, seconds)));
        *seen = Seen { at_ns, looks: seen.looks + 1, mounts };
        self.update_rows(instance, objects, &removed, seconds);
        self.sort();
    }

    fn update_rows(
        &mut self,
        instance: u32,
        objects: Vec<ObjectActivity>,
        removed: &[u64],
        seconds: f64,
    ) {
        if !removed.is_empty() {
            self.rows.retain(|row| row.instance != instance || !removed.contains(&row.object.id));
        }
        let mut places = HashMap::new();
        for (place, row) in self.rows.iter_mut().enumerate() {
            if row.instance == instance {
                // An object that is not mentioned has not changed.
                (row.calls, row.faults) = (0.0, 0.0);
                places.insert(row.object.id, place);
            }
        }
        for object in objects {
            if let Some(place) = places.get(&object.id) {
                self.rows[*place].update(object, seconds);
            } else {
                let none = ObjectActivity { calls: 0, faults: 0, ..object.clone() };
                let mut row = Row { instance, object: none, calls: 0.0, faults: 0.0 };
                row.update(object, seconds);
                self.rows.push(row);
            }
        }
    }

    /// Applies a look at the processors.
    pub(crate) fn update_processors(&mut self, next: Vec<Processor>) {
        self.loads = next.iter().filter_map(|now| load(&self.processors, now)).collect();
        self.processors = next;
    }

    /// Returns the number of looks at an instance that were applied.
    pub(crate) fn looks(&self, instance: u32) -> u64 {
        self.instances.get(&instance).map_or(0, |seen| seen.looks)
    }

    /// Adds a change.
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

    /// Scrolls up or down in the list.
    pub(crate) fn scroll_by(&mut self, lines: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.scroll = self.scroll.saturating_add_signed(lines).min(last);
    }

    fn sort(&mut self) {
        let order = self.order;
        self.rows.sort_by(|a, b| {
            let most = order.of(b).total_cmp(&order.of(a));
            most.then_with(|| a.object.name.cmp(&b.object.name))
        });
        self.scroll_by(0);
    }
}

fn served(instance: u32, before: &[Mount], now: &Mount, seconds: f64) -> Served {
    let earlier = before.iter().find(|mount| mount.id == now.id);
    let stat = |key: &str| now.stats.get(key).copied().unwrap_or(0);
    let rate = |key: &str| {
        let before = earlier.and_then(|mount| mount.stats.get(key)).copied().unwrap_or(0);
        stat(key).saturating_sub(before) as f64 / seconds
    };
    Served {
        instance,
        mountpoint: now.mountpoint.display().to_string(),
        requests: rate("requests"),
        read: rate("read_bytes"),
        written: rate("written_bytes"),
        waiting: stat("waiting_for_write_back"),
        open: stat("open_files"),
        shared: stat("shared_files"),
        passed: stat("passed_through_files"),
    }
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
    use super::*;

    /// Returns a look after this many seconds, with objects that differ only in calls and dirty
    /// pages.
    pub(crate) fn activity(seconds: u64, objects: &[(u64, &str, u64, u64)]) -> Activity {
        let object = |(id, name, calls, dirty): &(u64, &str, u64, u64)| ObjectActivity {
            id: *id,
            name: (*name).to_owned(),
            implementation: "shared".into(),
            calls: *calls,
            faults: calls / 10,
            resident: 0,
            dirty: *dirty,
        };
        let objects = objects.iter().map(object).collect();
        Activity { at_ns: seconds * 1_000_000_000, objects, ..Activity::default() }
    }

    #[test]
    fn counts_become_rates_and_the_busiest_comes_first() {
        let mut state = State::default();
        state.update(7, activity(0, &[(1, "fcm:/a", 100, 0), (2, "fcm:/b", 0, 0)]));
        assert!(state.rows.iter().all(|row| row.calls == 0.0), "one look tells no rate");
        state.update(7, activity(2, &[(1, "fcm:/a", 120, 9), (2, "fcm:/b", 400, 3)]));
        let seen = |state: &State| -> Vec<_> {
            let row = |row: &Row| (row.object.name.clone(), row.calls, row.object.dirty);
            state.rows.iter().map(row).collect()
        };
        let [a, b] = ["fcm:/a", "fcm:/b"].map(str::to_owned);
        assert_eq!(seen(&state), [(b.clone(), 200.0, 3), (a.clone(), 10.0, 9)]);
        for _ in 0..3 {
            state.reorder();
        }
        assert_eq!((state.order, &state.rows[0].object.name), (Order::Dirty, &a));
        state.reorder();
        let mut later = activity(3, &[(3, "fcm:/c", 5, 0)]);
        later.gone = vec![2];
        state.update(7, later);
        assert_eq!(seen(&state), [("fcm:/c".to_owned(), 5.0, 0), (a, 0.0, 9)]);
        state.update(8, activity(0, &[(1, "fcm:/other", 100, 0)]));
        assert_eq!((state.rows.len(), state.looks(7), state.looks(8)), (3, 3, 1));
    }

    #[test]
    fn a_swap_that_begins_counts_anew_does_not_count_backwards() {
        let mut state = State::default();
        state.update(7, activity(0, &[(1, "fcm:/a", 1000, 0)]));
        state.update(7, activity(1, &[(1, "fcm:/a", 30, 0)]));
        assert_eq!(state.rows[0].calls, 30.0);
    }

    #[test]
    fn processors_are_shown_by_what_they_did_since_the_last_look() {
        let mut state = State::default();
        let processor = |user, idle| Processor { number: 0, user, system: 50, idle, stolen: 0 };
        state.update_processors(vec![processor(100, 10)]);
        assert!(state.loads.is_empty());
        state.update_processors(vec![processor(110, 40)]);
        assert_eq!(state.loads, [Load { number: 0, user: 0.25, system: 0.0, stolen: 0.0 }]);
    }

    #[test]
    fn scrolling_ends_at_the_ends() {
        let mut state = State::default();
        state.update(7, activity(0, &[(1, "fcm:/a", 0, 0), (2, "fcm:/b", 0, 0)]));
        state.scroll_by(-5);
        assert_eq!(state.scroll, 0);
        state.scroll_by(50);
        assert_eq!(state.scroll, 1);
    }
}
