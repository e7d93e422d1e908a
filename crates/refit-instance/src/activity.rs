//! What objects and mounts do, told again and again over one connection to who watches: what it says, and its route.
//!
//! Who watches ten times a second wants little each time. So the answer does not end, the first line says everything, and each
//! later one only what differs from the line before. Looking costs the instance something too, above all where there are
//! many objects: however often it is asked for, the next look is not taken before a hundred times the cost of the
//! last one has passed. Who reads slowly is told less often, and not later.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;
use utoipa::{IntoParams, ToSchema};

use crate::client::{Client, Lines, get, with_query};
use crate::refusal::Refusal;
use crate::rejection::rejected;
use crate::server::Shared;
use crate::streams;
use crate::wire::{Mount, ObjectInfo};

/// Time between two looks for each time that a look takes: one in a hundred is one per cent.
const RESERVE: u32 = 100;

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(10);

/// How long a pause goes on without a look whether anybody still wants to know.
const PATIENCE: Duration = Duration::from_millis(200);

/// How many lines may be on the way.
const UNREAD: usize = 2;

/// How often to look.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ActivityQuery {
    /// Milliseconds between two looks; a second without it. Longer where looking costs more than a hundredth of that.
    pub every_ms: Option<u64>,
}

/// What there was to see at one look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Activity {
    /// When, in ns since the answer began.
    pub at_ns: u64,
    /// Objects that are new, or of which something differs from the line before.
    pub objects: Vec<ObjectActivity>,
    /// Numbers of objects that are gone.
    pub gone: Vec<u64>,
    /// All mounts.
    pub mounts: Vec<Mount>,
}

/// What an object does; what its implementation does not count is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectActivity {
    /// Its number within the instance.
    pub id: u64,
    /// `interface:instance`, e.g. `fcm:/logs/a`.
    pub name: String,
    /// What serves now with what is around it, e.g. `latency(shared)`.
    pub implementation: String,
    /// Calls so far.
    pub calls: u64,
    /// Faults so far.
    pub faults: u64,
    /// Pages that it holds.
    pub resident: u64,
    /// Pages of these that are to be written back.
    pub dirty: u64,
}

impl From<refit_objects::ObjectActivity> for ObjectActivity {
    fn from(object: refit_objects::ObjectActivity) -> Self {
        let stat = |key| object.stats.iter().find(|(name, _)| *name == key).map_or(0, |(_, n)| *n);
        ObjectActivity {
            id: object.id.to_bits(),
            calls: stat("calls"),
            faults: stat("faults"),
            resident: stat("resident"),
            dirty: stat("dirty"),
            implementation: object.implementation,
            name: object.name,
        }
    }
}

impl From<ObjectInfo> for ObjectActivity {
    fn from(object: ObjectInfo) -> Self {
        let stat = |key: &str| object.stats.get(key).copied().unwrap_or(0);
        ObjectActivity {
            id: object.id,
            calls: stat("calls"),
            faults: stat("faults"),
            resident: stat("resident"),
            dirty: stat("dirty"),
            implementation: object.composed(),
            name: object.name,
        }
    }
}

/// What has been told of objects.
#[derive(Debug, Default)]
struct Told(BTreeMap<u64, ObjectActivity>);

impl Told {
    /// What of `now` was not told yet, and numbers of objects that were told and are not there any more.
    fn differences(&mut self, now: Vec<ObjectActivity>) -> (Vec<ObjectActivity>, Vec<u64>) {
        let mut differ = Vec::new();
        let mut gone = Vec::new();
        for object in &now {
            let known = self.0.get(&object.id);
            if known != Some(object) {
                self.0.insert(object.id, object.clone());
                differ.push(object.clone());
            }
        }
        // All that are there are told now.
        if self.0.len() > now.len() {
            let there: BTreeSet<u64> = now.iter().map(|object| object.id).collect();
            gone = self.0.keys().copied().filter(|id| !there.contains(id)).collect();
            gone.iter().for_each(|id| drop(self.0.remove(id)));
        }
        (differ, gone)
    }
}

/// What objects and mounts do, again and again until nobody reads it any more.
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
    streams::begin("watch", move || tell(&shared, every.max(SHORTEST), &sender))?;
    Ok(response)
}

fn tell(shared: &Shared, every: Duration, sender: &Sender<Activity>) {
    let wanted = || !sender.is_closed() && !*shared.ending.borrow();
    let (began, mut told) = (Instant::now(), Told::default());
    while wanted() {
        let look = Instant::now();
        if sender.max_capacity() - sender.capacity() < UNREAD {
            let at_ns = u64::try_from(look.duration_since(began).as_nanos()).unwrap_or(u64::MAX);
            let (objects, gone) = told.differences(shared.core.system.activity());
            let mounts = shared.core.mounts();
            if sender.blocking_send(Activity { at_ns, objects, gone, mounts }).is_err() {
                return;
            }
        }
        let pause = every.max(look.elapsed() * RESERVE);
        while wanted() && look.elapsed() < pause {
            thread::sleep(pause.saturating_sub(look.elapsed()).min(PATIENCE));
        }
    }
}

impl Client {
    /// Watches objects and mounts, looking so often; see [`Activity`].
    ///
    /// # Errors
    /// It does not answer or refuses.
    pub fn activity(&self, every: Duration) -> Result<Lines<Activity>, Refusal> {
        let asked = "watch";
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        let query = ActivityQuery { every_ms: Some(every_ms) };
        self.lines(asked, get(asked, &with_query(asked, "/activity", &query)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_differs_from_the_one_before() {
        let object = |id, calls| ObjectActivity { id, calls, ..ObjectActivity::default() };
        let mut told = Told::default();
        let all = vec![object(1, 5), object(2, 7)];
        assert_eq!(told.differences(all.clone()), (all.clone(), vec![]));
        assert_eq!(told.differences(all), (vec![], vec![]));
        let later = vec![object(2, 8), object(3, 0)];
        assert_eq!(told.differences(later.clone()), (later, vec![1]));
        assert_eq!(told.differences(vec![object(2, 8)]), (vec![], vec![3]));
    }
}
