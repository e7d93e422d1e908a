//! The activity of objects and mounts, sent repeatedly over one connection.
//!
//! A client that watches ten times a second needs little data each time. The answer therefore does
//! not end; its first line contains everything, and each later line only the differences from the
//! line before. Sampling also costs the instance time, above all with many objects: however often
//! samples are requested, the next one is not taken before a hundred times the duration of the last
//! has passed. A slow reader receives fewer lines, not later ones.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use tokio::sync::mpsc::Sender;

use crate::client::{Client, Lines, get, with_query};
use crate::context::Shared;
use crate::refusal::Refusal;
use crate::rejection::rejected;
use crate::streams;
use crate::wire::{Activity, ActivityQuery, ObjectActivity};

/// The minimum time between two samples, as a multiple of the time that one takes; 100 limits the
/// cost to one per cent.
const INTERVAL_FACTOR: u32 = 100;

/// The minimum time between two samples.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// The longest sleep before the thread checks again whether the client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The maximum number of lines that are waiting to be sent.
const MAX_UNREAD: usize = 2;

/// The objects as they were last sent to the client.
#[derive(Debug, Default)]
struct SentObjects(BTreeMap<u64, ObjectActivity>);

impl SentObjects {
    /// Returns the objects of `now` that differ from what was sent, and the numbers of sent objects
    /// that no longer exist.
    fn differences(&mut self, now: Vec<ObjectActivity>) -> (Vec<ObjectActivity>, Vec<u64>) {
        let mut differ = Vec::new();
        let mut removed = Vec::new();
        for object in &now {
            let known = self.0.get(&object.id);
            if known != Some(object) {
                self.0.insert(object.id, object.clone());
                differ.push(object.clone());
            }
        }
        // `now` contains all existing objects, and all of them have been sent.
        if self.0.len() > now.len() {
            let there: BTreeSet<u64> = now.iter().map(|object| object.id).collect();
            removed = self.0.keys().copied().filter(|id| !there.contains(id)).collect();
            removed.iter().for_each(|id| drop(self.0.remove(id)));
        }
        (differ, removed)
    }
}

/// Sends the activity of objects and mounts repeatedly until the client disconnects.
#[utoipa::path(get, path = "/activity", params(ActivityQuery), responses(
    (status = 200, description = "NDJSON: a line per look", body = Activity,
     content_type = "application/x-ndjson"),
    (status = 400, body = Refusal),
))]
pub(crate) async fn activity(
    State(shared): State<Shared>,
    query: Result<Query<ActivityQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|e| rejected("watch", e.status(), &e.body_text()))?;
    let every = query.every_ms.map_or(Duration::from_secs(1), Duration::from_millis);
    let (sender, _gone, response) = streams::lines::<Activity>();
    streams::begin("watch", move || send_samples(&shared, every.max(MIN_INTERVAL), &sender))?;
    Ok(response)
}

fn send_samples(shared: &Shared, every: Duration, sender: &Sender<Activity>) {
    let wanted = || !sender.is_closed() && !*shared.ending.borrow();
    let (began, mut sent) = (Instant::now(), SentObjects::default());
    while wanted() {
        let look = Instant::now();
        if sender.max_capacity() - sender.capacity() < MAX_UNREAD {
            let at_ns = u64::try_from(look.duration_since(began).as_nanos()).unwrap_or(u64::MAX);
            let (objects, removed) = sent.differences(shared.core.system.activity());
            let mounts = shared.core.mounts();
            if sender.blocking_send(Activity { at_ns, objects, gone: removed, mounts }).is_err() {
                return;
            }
        }
        let pause = every.max(look.elapsed() * INTERVAL_FACTOR);
        while wanted() && look.elapsed() < pause {
            thread::sleep(pause.saturating_sub(look.elapsed()).min(POLL_INTERVAL));
        }
    }
}

impl Client {
    /// Watches objects and mounts, with a sample per interval `every`; see [`Activity`].
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn activity(&self, every: Duration) -> Result<Lines<Activity>, Refusal> {
        let operation = "watch";
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let query = ActivityQuery { every_ms: Some(every_ms) };
        self.lines(operation, get(operation, &with_query(operation, "/activity", &query)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_differs_from_the_one_before() {
        let object = |id, calls| ObjectActivity { id, calls, ..ObjectActivity::default() };
        let mut sent = SentObjects::default();
        let all = vec![object(1, 5), object(2, 7)];
        assert_eq!(sent.differences(all.clone()), (all.clone(), vec![]));
        assert_eq!(sent.differences(all), (vec![], vec![]));
        let later = vec![object(2, 8), object(3, 0)];
        assert_eq!(sent.differences(later.clone()), (later, vec![1]));
        assert_eq!(sent.differences(vec![object(2, 8)]), (vec![], vec![3]));
    }
}
